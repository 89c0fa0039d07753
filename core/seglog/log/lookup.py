"""From a timestamp to an offset (Kafka: UnifiedLog.fetchOffsetByTimestamp, FileRecords.searchForTimestamp).

For t ≥ 0: take the first segment, in order, whose largest timestamp reaches t. In it the time index gives an offset and
the offset index a position to begin at; the first record with a timestamp of at least t is the answer. If the batches
there contradict the time index, which Kafka does not ask, the segment is searched from its start. If that segment has
none (its largest timestamp was only the file's time), there is no answer: later segments are not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog.errors import InvalidRecordError
from seglog.format.columns import STATUS_REASONS, Records
from seglog.log.places import TimeEntry
from seglog.log.segments import LogView
from seglog.log.unreadable import no_batch
from seglog.model import NO_LEADER_EPOCH, NO_TIMESTAMP
from seglog.scan.segment_scan import EndReason
from seglog.storage.filesystem import File

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4

_LOOK_BYTES = 32 << 10


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record found by time. `timestamp` (epoch milliseconds) is -1 for the log's start and end."""

    timestamp: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH


def find_offset(view: LogView, timestamp: int) -> TimestampOffset | None:
    """Returns the first record at `timestamp` or later; LATEST, EARLIEST and MAX_TIMESTAMP have Kafka's numbers.

    None if the log has no such record. MAX_TIMESTAMP finds the first record with the largest timestamp. Raises
    ValueError for another negative number, InvalidRecordError if a batch on the way cannot be decoded,
    CorruptRecordError if damage may hold the record.
    """
    if timestamp == LATEST:
        return TimestampOffset(NO_TIMESTAMP, view.log_end_offset)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(NO_TIMESTAMP, view.log_start_offset)
    if timestamp == MAX_TIMESTAMP:
        return _largest(view)
    if timestamp < 0:
        raise ValueError(f"{timestamp} is neither a timestamp nor one of -1 (latest), -2 (earliest), -3 (largest)")
    for index, segment in enumerate(view.segments):
        if segment.largest_timestamp() >= timestamp:
            return _from_entry(view, index, timestamp)
    return None


def _from_entry(view: LogView, index: int, timestamp: int) -> TimestampOffset | None:
    """Searches segment `index` from the last entry of its time index before `timestamp`, or from the log start on."""
    segment, least = view.segments[index], view.log_start_offset
    entry = TimeEntry.before(segment.time_index, timestamp)
    if entry is not None and entry.offset <= least:
        entry = None
    with segment.fs.open(segment.path, "r") as file:
        start = view.search_start(index, least if entry is None else entry.offset, file)
        return _search(view, index, file, start, timestamp, least, entry=entry if start else None)


def _largest(view: LogView) -> TimestampOffset | None:
    """Returns the first record with the largest timestamp, from the first segment that has it."""
    best, timestamp, offset = -1, NO_TIMESTAMP, 0
    for index, segment in enumerate(view.segments):
        if segment.max_timestamp > timestamp:
            best, timestamp, offset = index, segment.max_timestamp, segment.offset_of_max_timestamp
    if best < 0:
        return None
    segment = view.segments[best]
    with segment.fs.open(segment.path, "r") as file:
        return _search(view, best, file, view.search_start(best, offset, file), timestamp, 0, exact=True)


def _search(
    view: LogView,
    index: int,
    file: File,
    start: int,
    timestamp: int,
    least_offset: int,
    *,
    exact: bool = False,
    entry: TimeEntry | None = None,
) -> TimestampOffset | None:
    """Searches segment `index` from byte `start` on; from its start if the batch of `entry` is not there."""
    segment, size = view.segments[index], view.size_of(index)
    scan = segment.scan(start, size, chunk_bytes=_LOOK_BYTES, file=file)
    reached = segment.base_offset
    for chunk in scan:
        if entry is not None:
            row = entry.row_in(chunk.batches)
            if row < 0:
                break
            entry = entry if row == len(chunk.batches) else None
        batches = chunk.batches[chunk.batches["max_timestamp"] == timestamp] if exact else chunk.batches
        record = first_record(chunk.path, batches, chunk.records, timestamp, least_offset)
        if record is not None:
            return record
        reached = max(reached, int(chunk.batches["last_offset"].max()) + 1)
    if entry is not None:
        return _search(view, index, file, 0, timestamp, least_offset)
    if scan.end is not None and scan.end.reason is not EndReason.COMPLETE:
        raise no_batch(segment, scan.end.position, size, reached)
    return None


def first_record(
    path: Path,
    batches: np.ndarray,
    records_of: Callable[[np.ndarray], Iterator[Records]],
    timestamp: int,
    least_offset: int,
) -> TimestampOffset | None:
    """Returns the first record from `least_offset` on at `timestamp` or later in some batches (rows of layout.BATCH);
    `records_of` decodes their records.

    Raises InvalidRecordError if a batch on the way cannot be decoded.
    """
    # a wrapper of magic 1 has its largest inner timestamp; magic 0 has none and is never found
    for row in np.flatnonzero(batches["max_timestamp"] >= timestamp).tolist():
        batch = batches[row : row + 1]
        for records in records_of(batch):
            rows = records.rows
            hits = np.flatnonzero((rows["timestamp"] >= timestamp) & (rows["offset"] >= least_offset))
            if len(hits):
                first = rows[hits[0]]
                return TimestampOffset(int(first["timestamp"]), int(first["offset"]), int(batch["leader_epoch"][0]))
            if records.status.any() and not records.rows_after:
                reason = STATUS_REASONS[int(records.status[0])]
                raise InvalidRecordError(path, reason, int(batch["position"][0]))
    return None
