"""`seglog reindex`: rebuilds indexes and producer snapshots from the records."""

from __future__ import annotations

from seglog_cli.options import DryRun, OnePath, command
from seglog_cli.session import Session


@command
def run(session: Session, path: OnePath, dry_run: DryRun = False) -> None:
    """Rebuilds indexes, snapshots and leader epochs from the records.

    The command rebuilds offset, time and transaction indexes, producer snapshots and leader epochs. No record changes.
    If damage would make it lose bytes, the command refuses and names the commands that repair the damage.

    Examples:
      seglog reindex --dry-run customers-0
      seglog reindex /var/lib/kafka/data
    """
    from seglog.operations.recover import RecoveryOptions, recover
    from seglog.scan.listing import partition_directories, resolve_path
    from seglog_cli.views.recovery import show_recovery

    if dry_run:
        session.warn_of_runs([path])
    target = resolve_path(session.fs, path)
    config_of = session.config_of_target(target)
    options = RecoveryOptions(dry_run=dry_run, lossless=True, settled=session.settled)
    with session.reading("reindex", partition_directories(session.fs, target)) as reading:
        for report in recover(reading.fs, session.clock, target, config_of, options):
            show_recovery(session, report, dry_run, "reindex")
