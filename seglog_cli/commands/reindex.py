"""`seglog reindex`: rebuilds indexes and producer snapshots from the records."""

from __future__ import annotations

from dataclasses import replace

from seglog_cli.options import DryRun, OnePath, command
from seglog_cli.session import Session
from seglog_cli.views.recovery import show_recovery


@command()
def run(session: Session, path: OnePath, dry_run: DryRun = False) -> None:
    """Rebuilds indexes, snapshots and leader epochs from the records.

    The command rebuilds offset, time and transaction indexes, producer snapshots and leader epochs. No record changes.
    If damage would make it lose bytes, the command refuses and names the commands that repair the damage.

    Examples:
      seglog reindex --dry-run customers-0
      seglog reindex /var/lib/kafka/data
    """
    from seglog.operations.recover import Recovery, RecoveryRequest

    used = ("--config", "--set", "--now")
    recovery = Recovery.of(session.workspace(*used), RecoveryRequest(path, lossless=True), dry_run=dry_run)
    with session.reading("reindex", recovery.partitions) as reading:
        for report in replace(recovery, work=reading.workspace(*used)).run(settled=session.settled):
            show_recovery(session, report, dry_run, "reindex")
