"""From a timestamp to an offset (Kafka: UnifiedLog.fetchOffsetByTimestamp, FileRecords.searchForTimestamp).

For t ≥ 0: take the first segment, in order, whose largest timestamp reaches t. In it the time index gives an offset and
the offset index a position to begin at; the first record with a timestamp of at least t is the answer. If that segment
has none (its largest timestamp was only the file's time), there is no answer: later segments are not tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seglog.errors import InvalidRecordError
from seglog.format.columns import STATUS_REASONS
from seglog.log.segments import LogView
from seglog.log.unreadable import no_batch
from seglog.model import NO_LEADER_EPOCH, NO_TIMESTAMP
from seglog.scan.segment_scan import Chunk, EndReason

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
            _, offset = segment.time_index.lookup(timestamp)
            start = max(offset, view.log_start_offset)
            return _search(view, index, start, timestamp, view.log_start_offset)
    return None


def _largest(view: LogView) -> TimestampOffset | None:
    """Returns the first record with the largest timestamp, from the first segment that has it."""
    best, timestamp, offset = -1, NO_TIMESTAMP, 0
    for index, segment in enumerate(view.segments):
        if segment.max_timestamp > timestamp:
            best, timestamp, offset = index, segment.max_timestamp, segment.offset_of_max_timestamp
    if best < 0:
        return None
    return _search(view, best, offset, timestamp, 0, exact=True)


def _search(
    view: LogView,
    index: int,
    start_offset: int,
    timestamp: int,
    least_offset: int,
    exact: bool = False,
) -> TimestampOffset | None:
    segment = view.segments[index]
    size = view.size_of(index)
    scan = segment.scan(view.search_start(index, start_offset), size, chunk_bytes=_LOOK_BYTES)
    reached = max(start_offset, segment.base_offset)
    for chunk in scan:
        stamps = chunk.batches["max_timestamp"]
        # a wrapper of magic 1 has its largest inner timestamp; magic 0 has none and is never found
        for row in np.flatnonzero(stamps == timestamp if exact else stamps >= timestamp).tolist():
            batch = chunk.batches[row : row + 1]
            found = _first_in(chunk, batch, timestamp, least_offset)
            if found is not None:
                return found
        reached = max(reached, int(chunk.batches["last_offset"].max()) + 1)
    if scan.end is not None and scan.end.reason is not EndReason.COMPLETE:
        raise no_batch(segment, scan.end.position, size, reached)
    return None


def _first_in(chunk: Chunk, batch: np.ndarray, timestamp: int, least_offset: int) -> TimestampOffset | None:
    for records in chunk.records(batch):
        rows = records.rows
        hits = np.flatnonzero((rows["timestamp"] >= timestamp) & (rows["offset"] >= least_offset))
        if len(hits):
            row = rows[hits[0]]
            return TimestampOffset(int(row["timestamp"]), int(row["offset"]), int(batch["leader_epoch"][0]))
        if records.status.any() and not records.rows_after:
            reason = STATUS_REASONS[int(records.status[0])]
            raise InvalidRecordError(chunk.path, reason, int(batch["position"][0]))
    return None
