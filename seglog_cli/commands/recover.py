"""`seglog recover`: what a broker does after an unclean stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import Check, DryRun, OnePath, command, offset_option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.log.segment import LogSegment


@command
def run(
    session: Session,
    path: OnePath,
    dry_run: DryRun = False,
    check: Check = False,
    recovery_point: Annotated[
        int | None,
        offset_option("--recovery-point", "Recover from this offset on; of a log directory, in every partition."),
    ] = None,
) -> int:
    """Recovers a log as a broker does that starts after a crash.

    Settles what an interrupted cleaning left, reads every segment from the recovery point on, cuts the log
    behind its last good batch, and rebuilds indexes, producer snapshots and leader epochs. Of a log
    directory, every partition is recovered from its checkpointed recovery point; a partition that is named,
    from its first segment.

    Small files that recovery does not need but a broker does (partition.metadata, meta.properties) are
    reported, with exit code 1, when they cannot be read.

    What is behind damage is lost, as with a broker: `seglog verify` shows what it would be, and `seglog
    verify --repair` loses less.

    Examples:
      seglog recover --dry-run orders-none-0
      seglog recover /var/lib/kafka/data
    """
    changed, stopped = recover_path(session, path, dry_run, recovery_point)
    return ExitCode.FOUND if stopped or (check and changed) else ExitCode.DONE


def recover_path(
    session: Session, path: Path, dry_run: bool, recovery_point: int | None = None
) -> tuple[bool, bool]:
    """Recovers and shows each partition: (whether anything but indexes and snapshots changed, whether something else
    stops a broker)."""
    from seglog.log.listing import log_directory_of, resolve_path
    from seglog.log.obstacles import directory_obstacles
    from seglog.log.recovering import RecoveryOptions, recover
    from seglog_cli.repairing import settle_unfinished
    from seglog_cli.views.recovery import show_recovery, warn_of_obstacles

    target = resolve_path(session.fs, path)
    if not dry_run:
        settle_unfinished(session, log_directory_of(target))
    config_of = session.config_of_target(target)
    obstacles = list(directory_obstacles(session.fs, log_directory_of(target)))
    warn_of_obstacles(session.console, obstacles, set())
    with session.progress("recover", unit="segments") as progress:

        def tell(segment: LogSegment, number: int, count: int) -> None:
            progress.update(number, count, f"recover {segment.path.parent.name}")

        options = RecoveryOptions(recovery_point=recovery_point, dry_run=dry_run, progress=tell)
        changed, stopped = False, bool(obstacles)
        for report in recover(session.fs, session.clock, target, config_of, options):
            changed, stopped = changed or report.changes, stopped or bool(report.obstacles)
            show_recovery(session.console, report, dry_run)
    return changed, stopped
