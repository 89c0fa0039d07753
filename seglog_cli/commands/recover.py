"""`seglog recover`: what a broker does after an unclean shutdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from seglog.units import count_text
from seglog_cli.exit_codes import ExitCode
from seglog_cli.options import (
    Check,
    DryRun,
    NoKeep,
    OnePath,
    Quarantine,
    check_keeping,
    command,
    offset_option,
)
from seglog_cli.session import Session
from seglog_cli.views.recovery import show_recovery, warn_of_obstacles

if TYPE_CHECKING:
    from seglog.log.loader import RecoveryReport
    from seglog.log.segment import LogSegment
    from seglog.operations.recover import RecoveryRequest


@command(urls=["path"], only_with=["dry_run", "check"])
def run(
    session: Session,
    path: OnePath,
    dry_run: DryRun = False,
    check: Check = False,
    recovery_point: Annotated[
        int | None,
        offset_option("--recovery-point", "Recover from this offset on, not from the checkpoint's (0: the whole log)."),
    ] = None,
    no_keep: NoKeep = False,
    quarantine: Quarantine = None,
) -> int:
    """Recovers a log as a broker does when it starts after a crash.

    Everything after damage is cut off, as in a broker. `seglog verify` shows the damage, and `seglog repair`
    loses less.

    The command finishes or removes what an interrupted cleaning left, reads every segment from the recovery point on,
    cuts the log after its last good batch, and rebuilds indexes, producer snapshots and leader epochs. The recovery
    point comes from the log directory's checkpoint: everything below it was flushed and is not read. --recovery-point 0
    reads the whole log. Logs of Kafka 0.7 are skipped.

    What is cut off goes to the quarantine first, and `seglog undo` brings back the partition as it was. The same holds
    for a log that an interrupted cleaning would replace with less than it has. Partitions that lose nothing keep their
    rebuilt indexes and snapshots. --no-keep keeps nothing, as a broker does; use it if the
    disk has no room.

    Small files that a broker needs but recovery does not (partition.metadata, meta.properties) are reported if they
    cannot be read; the exit code is then 1.

    Examples:
      seglog recover --dry-run orders-none-0
      seglog recover /var/lib/kafka/data
    """
    from seglog.operations.recover import RecoveryRequest

    check_keeping(no_keep, quarantine)
    request = RecoveryRequest(path, recovery_point, not no_keep, quarantine)
    changed, stopped = recover_path(session, request, dry_run or check)
    return ExitCode.FOUND if stopped or (check and changed) else ExitCode.DONE


def recover_path(session: Session, request: RecoveryRequest, dry_run: bool) -> tuple[bool, bool]:
    """Recovers and shows each partition.

    Returns two values: whether anything but indexes and snapshots changed, and whether something else stops a broker.
    """
    from seglog.operations.recover import Recovery

    recovery = Recovery.of(session.workspace("--config", "--set", "--now"), request, dry_run=dry_run)
    obstacles, of_all = recovery.obstacles(), len(recovery.partitions)
    warn_of_obstacles(session.console, obstacles)
    ended: list[RecoveryReport] = []
    with session.progress("recover", unit="segments") as progress:

        def tell(segment: LogSegment, number: int, count: int) -> None:
            place = f" ({len(ended) + 1} of {of_all} partitions)" if of_all > 1 else ""
            progress.update(number, count, f"recover {segment.path.parent.name}{place}")

        changed, stopped = False, bool(obstacles)
        for report in recovery.run(tell, session.settled):
            changed, stopped = changed or report.changes, stopped or bool(report.obstacles)
            ended.append(report)
            show_recovery(session, report, dry_run)
    others = sum(report.run is None and bool(report.recovered) for report in ended)
    if others and any(report.run is not None for report in ended):
        session.console.message(
            f"seglog undo does not bring back the old indexes of {count_text(others, 'partition')} without loss"
        )
    return changed, stopped
