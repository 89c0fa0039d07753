"""Cutting a log back to an offset (Kafka: UnifiedLog.truncateTo, LocalLog.truncateTo, truncateFullyAndStartAt).

1. Delete the segments that begin after the offset, the last one first: a crash in between leaves a shorter log, never a
   hole.
2. Cut the segment that holds the offset before the batch that contains it: the whole batch goes.
3. Cut the leader epochs. Load the producers' newest snapshot at or below the offset, and replay from there.

The log end offset then is the given offset, although the last batch may end before it; the next load goes back to that
end. The caller lowers recovery point, high watermark and cleaner checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seglog import layout
from seglog.arguments import within
from seglog.log.segment import LogSegment
from seglog.log.segments import rebuild_producer_state
from seglog.log.swap import retire_segments, retire_snapshots
from seglog.log.writer import WritableLog


@dataclass(frozen=True, slots=True)
class Truncation:
    """What a truncation did. `pending_removal` are the `.deleted` files, for the caller to remove."""

    offset: int
    log_start_offset: int
    pending_removal: tuple[Path, ...]


def truncate_to(log: WritableLog, offset: int) -> Truncation:
    """Drops everything at and after `offset`; below the first segment everything, and the log starts at `offset`.

    Raises CorruptRecordError, with nothing changed, if damage hides where to cut.
    """
    if log.segments.first.base_offset > offset:
        return truncate_fully(log, offset)
    gone = [segment for segment in log.segments if segment.base_offset > offset]
    last = log.segments.floor(offset)
    assert last is not None
    last.require_cut(offset)  # before anything goes
    pending = _retire(log, gone)
    log.segments.active.truncate_to(offset)
    log.segments.active.flush()
    if not log.segments.active.size:
        log.segments.active.created_ms = log.clock.now_ms()  # its age starts again
    log.leader_epochs.truncate_from_end(offset)
    start = min(offset, log.log_start_offset)
    _rebuild(log, start, offset)
    return Truncation(offset, start, tuple(pending))


def truncate_fully(log: WritableLog, offset: int) -> Truncation:
    """Drops the whole log; an empty segment at `offset` remains. Raises ValueError for an invalid offset."""
    offset = within("offset", offset, 0, layout.INT64_MAX)
    gone = list(log.segments)
    pending = _retire(log, gone)
    segment = LogSegment.create(
        log.fs,
        log.directory,
        offset,
        index_interval_bytes=gone[-1].index_interval_bytes,
        created_ms=log.clock.now_ms(),
    )
    log.fs.sync_directory(log.directory)
    log.segments.add(segment)
    log.leader_epochs.clear_and_flush()
    log.producers.truncate_fully_and_start_at(offset)
    _rebuild(log, offset, offset)
    return Truncation(offset, offset, tuple(pending))


def _retire(log: WritableLog, gone: list[LogSegment]) -> list[Path]:
    pending = retire_segments(gone, "newest")
    pending += retire_snapshots(log.fs, log.producers, [segment.base_offset for segment in gone])
    for segment in gone:
        log.segments.remove(segment.base_offset)
    return pending


def _rebuild(log: WritableLog, log_start_offset: int, offset: int) -> None:
    rebuild_producer_state(
        log.producers,
        log.segments,
        log_start_offset,
        offset,
        log.clock.now_ms(),
        reload_from_clean_shutdown=False,
    )
