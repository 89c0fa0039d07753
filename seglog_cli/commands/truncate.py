"""`seglog truncate`: cuts off the end of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from seglog.units import count_text
from seglog_cli.commands.recover import recover_path
from seglog_cli.console import Console
from seglog_cli.failures import UsageError
from seglog_cli.options import (
    DryRun,
    NoKeep,
    Partition,
    Quarantine,
    check_keeping,
    command,
    flag,
    offset_option,
    time_option,
)
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.operations.truncate import Cut
    from seglog.repairs.undo.journal import RunRecord


@command()
def run(
    session: Session,
    partition: Partition,
    to_offset: Annotated[int | None, offset_option("--to-offset", "Drop this offset and everything after it.")] = None,
    to_time: Annotated[
        int | None, time_option("--to-time", "Drop the first record of this time or later, and everything after it.")
    ] = None,
    at_damage: Annotated[bool, flag("--at-damage", "Drop the first damaged batch and everything after it.")] = False,
    dry_run: DryRun = False,
    no_keep: NoKeep = False,
    quarantine: Quarantine = None,
) -> None:
    """Cuts off the end of a log, as a broker truncates a follower.

    Whole batches are cut, and indexes and checkpoints are adapted.

    Give one of --to-offset, --to-time and --at-damage. A batch that contains the offset is cut as a whole, so the log
    then ends before it; the output says what was cut. Nothing is cut if the log ends before the offset. An offset below
    the log start is an error.

    --at-damage does what a recovery of the whole log would do.

    What is cut goes to the quarantine first, and `seglog undo` brings it back. --no-keep keeps nothing.

    A log that was not closed properly is recovered first, even if there is nothing to cut.

    Examples:
      seglog truncate orders-none-0 --to-offset 1000 --dry-run
      seglog truncate orders-none-0 --at-damage
    """
    from seglog.operations.truncate import TruncationRequest, truncate

    check_keeping(no_keep, quarantine)
    given = [to_offset is not None, to_time is not None, at_damage]
    if sum(given) != 1:
        raise UsageError("give one of --to-offset, --to-time and --at-damage: it says where to cut")
    if at_damage:
        from seglog.operations.recover import RecoveryRequest
        from seglog.scan.listing import require_partition

        require_partition(session.fs, partition)
        recover_path(session, RecoveryRequest(partition, 0, not no_keep, quarantine, command="truncate"), dry_run)
        return
    request = TruncationRequest(partition, to_offset, to_time, not no_keep, quarantine)
    done = truncate(session.workspace("--config", "--set", "--now"), request, dry_run=dry_run, settled=session.settled)
    session.tell_recovery(done.recovery)
    if done.run is not None:
        session.remember_run(done.run.folder)
    show_cut(session.console, done.cut, dry_run, done.run)


def show_cut(console: Console, cut: Cut, dry_run: bool, run: RunRecord | None) -> None:
    """Shows a truncation, done or planned; `run` keeps what was cut."""
    if console.as_json:
        console.json(
            {
                "type": "truncation",
                "partition": str(cut.topic_partition),
                "dry_run": dry_run,
                "to_offset": min(cut.offset, cut.end_before),
                "first_offset": None if cut.empty else cut.first_offset,
                "last_offset": None if cut.empty else cut.end_before - 1,
                "end_offset_before": cut.end_before,
                "end_offset": cut.end_offset,
                "deleted_segments": list(cut.segments),
                "truncated_bytes": cut.bytes,
                "run": None if run is None else run.name,
            }
        )
        return
    if cut.empty:
        console.line(f"{cut.topic_partition}: nothing to cut, the log ends at offset {cut.end_before}")
        return
    did = "would cut" if dry_run else "cut"
    gone = f", {count_text(len(cut.segments), 'segment')} with it" if cut.segments else ""
    offsets = f"offsets {cut.first_offset} to {cut.end_before - 1}"
    console.line(f"{did} {cut.topic_partition}: {offsets}, {bytes_text(cut.bytes)}{gone}")
    if cut.first_offset < cut.offset:
        console.line(
            f"  offset {cut.offset} is in a batch that begins at {cut.first_offset}: batches are cut as a whole"
        )
    if run is not None:
        console.line(f"  kept: seglog undo {run.name} gives it back")
