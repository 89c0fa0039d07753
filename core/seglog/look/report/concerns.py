"""What the figures themselves say needs a hand: what blocks the cleaner and retention, and disks that fill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from seglog.escaping import command_line
from seglog.look.report.figures import CompactionState, Concern, DirectoryFigures, PartitionFigures
from seglog.units import count_text, rough_duration

DANGER, NOTE = "danger", "note"
_DAYS_OF_GROWTH = 3  # a disk with less room than the records of so many days


def partition_concerns(one: PartitionFigures, now_ms: int) -> Iterator[Concern]:
    """Yields what needs a hand in one partition."""
    path = Path(one.directory) / one.partition
    concern = partial(Concern, directory=one.directory, partition=one.partition)
    if one.problem:
        yield concern(DANGER, "PARTITION_UNREADABLE", message=one.problem, broker="Depends on what it can read itself.")
        return
    found = one.compaction
    if found is not None and found.state is CompactionState.BLOCKED:
        yield concern(
            DANGER,
            "CLEANING_BLOCKED",
            message=_blocked(one, found.blocked_bytes, now_ms),
            broker="Cleans nothing from that transaction on; readers of committed data wait there.",
            command=command_line("seglog", "txn", path, "open"),
        )
    if found is not None and found.overdue_ms > 0:
        message = f"a dirty record is {rough_duration(found.overdue_ms)} over max.compaction.lag.ms"
        trial = command_line("seglog", "clean", "--dry-run", path)
        broker = "Cleans it as soon as a cleaner thread is free."
        yield concern(DANGER, "CLEANING_OVERDUE", message=message, broker=broker, command=trial)
    if one.retention is not None and one.retention.held_by == "FUTURE_TIMESTAMP":
        advice = command_line("seglog", "explain", "--advise", path)
        broker = "Deletes nothing by time until then."
        yield concern(DANGER, "RETENTION_HELD", message=one.retention.why, broker=broker, command=advice)
    if one.retention is not None and one.retention.deleted_state:
        advice = command_line("seglog", "explain", path)
        broker = "Deletes old segments by age or size, and the state in them."
        yield concern(DANGER, "STATE_DELETED", message=one.retention.deleted_state, broker=broker, command=advice)
    if one.leftovers and one.state == "live":
        message = f"{count_text(len(one.leftovers), 'file')} of an unfinished change: {one.leftovers[0]}"
        trial = command_line("seglog", "recover", "--dry-run", path)
        broker = "Finishes or removes them when it starts."
        yield concern(NOTE, "LEFTOVERS", message=message, broker=broker, command=trial)


def _blocked(one: PartitionFigures, size: int, now_ms: int) -> str:
    first = one.transactions[0]
    age = now_ms - first.last_timestamp
    silent = f", its producer last wrote {rough_duration(age)} ago" if first.last_timestamp > 0 and age > 0 else ""
    return (
        f"{count_text(size, 'byte', ',')} are not cleaned: a transaction of producer {first.producer_id} was open at"
        f" offset {first.seen_at}, begun at offset {first.first_offset}{silent}"
    )


def directory_concerns(directories: Sequence[DirectoryFigures], day_bytes: dict[str, int]) -> Iterator[Concern]:
    """Yields the log directories with less free space than the records of some days take (by `path`)."""
    for one in directories:
        grown = day_bytes.get(one.path, 0)
        if one.free_bytes is None or not grown or one.free_bytes >= grown * _DAYS_OF_GROWTH:
            continue
        yield Concern(
            DANGER,
            "DISK_FILLS",
            one.path,
            "",
            f"{one.free_bytes:,} bytes are free, and the records of the last 24 hours take {grown:,}",
            "Takes the log directory offline when the disk is full.",
            command_line("seglog", "retain", "--dry-run", Path(one.path)),
        )
