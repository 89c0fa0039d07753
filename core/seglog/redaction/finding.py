"""Finds the records of a selection in one log, and judges whether they can be erased: the first half of a redaction.

Every batch that may hold such a record is decoded, and every checksum that was read is compared: a batch that cannot be
read may hold what must go, so the whole request is refused. The result names batches and offsets, never keys or values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog.errors import CorruptRecordError, RefusedError
from seglog.format.columns import STATUS_REASONS, Records
from seglog.format.decoder import batch_error, control_batches, wrong_checksum
from seglog.log.log import Log
from seglog.log.segment import LogSegment
from seglog.model import TopicPartition
from seglog.redaction.rewriting import Erasure
from seglog.scan.segment_scan import Chunk, EndReason
from seglog.scan.selection import Selection
from seglog.storage.filesystem import FileSystem

Met = Callable[[Records, np.ndarray], None]  # columns, and which of their records are to be erased


@dataclass(frozen=True, slots=True)
class TouchedBatch:
    """A batch to rewrite: its place, its offsets, and those of its records that are erased (ascending, int64)."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    offsets: np.ndarray


@dataclass(frozen=True, slots=True)
class TouchedSegment:
    """A segment with batches to rewrite, in order."""

    base_offset: int
    path: Path
    size: int
    batches: tuple[TouchedBatch, ...]

    @property
    def records(self) -> int:
        """The number of records that are erased."""
        return sum(len(batch.offsets) for batch in self.batches)


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """What a search of one log found. `already` counts selected records that are erased already; `searched` bytes."""

    topic_partition: TopicPartition
    directory: Path
    segments: tuple[TouchedSegment, ...]
    already: int
    searched: int

    @property
    def records(self) -> int:
        """The number of records to erase."""
        return sum(segment.records for segment in self.segments)


@dataclass(frozen=True, slots=True)
class SearchOrder:
    """One log to search: its segments by base offset and size, and what to look for. It can be
    sent to another process.
    """

    directory: Path
    topic_partition: TopicPartition
    segments: tuple[tuple[int, int], ...]
    selection: Selection
    erasure: Erasure

    @classmethod
    def of(cls, log: Log, selection: Selection, erasure: Erasure) -> SearchOrder:
        """Returns the order for an open log."""
        segments = tuple((segment.base_offset, segment.size) for segment in log.segments)
        return cls(log.directory, log.topic_partition, segments, selection, erasure)

    @property
    def size(self) -> int:
        """The bytes of its segments."""
        return sum(size for _, size in self.segments)


def find_records(fs: FileSystem, order: SearchOrder, met: Met) -> FoundRecords:
    """Searches a log, which stays as it is; shows `met` the records to erase, while they are there.

    Raises CorruptRecordError for damage in what was read.
    """
    touched: list[TouchedSegment] = []
    already = searched = 0
    for i, (base_offset, size) in enumerate(order.segments):
        following = order.segments[i + 1][0] if i + 1 < len(order.segments) else None
        if not order.selection.reaches(base_offset, None if following is None else following - 1):
            continue
        segment = LogSegment(fs, order.directory, base_offset)
        segment.size = min(segment.size, size)
        found, done = find_in_segment(segment, order.selection, order.erasure, met)
        searched += segment.size
        already += done
        if found.batches:
            touched.append(found)
    return FoundRecords(order.topic_partition, order.directory, tuple(touched), already, searched)


def find_in_segment(
    segment: LogSegment, selection: Selection, erasure: Erasure, met: Met, start: int = 0, end: int | None = None
) -> tuple[TouchedSegment, int]:
    """Returns the batches to rewrite in a segment, or in its bytes from `start` (where a batch begins) to `end`.

    Returns with them the number of selected records that are erased already.
    """
    batches: list[TouchedBatch] = []
    already = 0
    scan = segment.scan(start, end)
    for chunk in scan:
        _require_checksums(chunk)
        rows = chunk.batches[selection.may_be_in(chunk.batches) & _has_records(chunk.batches)]
        for records in chunk.records(rows):
            _require_decoded(chunk.path, records)
            mask = selection.mask(records)
            if not mask.any():
                continue
            if erasure.keeps_key:
                done = mask & erasure.done(records)
                already += int(np.count_nonzero(done))
                mask &= ~done
            met(records, mask)
            batches += _touched(records, mask)
    assert scan.end is not None
    if scan.end.reason is not EndReason.COMPLETE:
        raise CorruptRecordError(segment.path, scan.end.reason.value, scan.end.position)
    size = (segment.size if end is None else end) - start
    return TouchedSegment(segment.base_offset, segment.path, size, _merged(batches)), already


def _has_records(batches: np.ndarray) -> np.ndarray:
    """Returns which batches (bool) have records of producers: not those that a cleaner emptied, or of control."""
    has_records: np.ndarray = ~control_batches(batches) & (batches["count"] != 0)
    return has_records


def _touched(records: Records, mask: np.ndarray) -> Iterator[TouchedBatch]:
    rows = records.rows[mask]
    numbers, starts = np.unique(rows["batch"], return_index=True)
    batches, offsets = records.batches[numbers], np.split(rows["offset"], starts[1:])
    columns = (batches[name].tolist() for name in ("position", "size", "base_offset", "last_offset"))
    yield from map(TouchedBatch, *columns, offsets)


def _merged(batches: Sequence[TouchedBatch]) -> tuple[TouchedBatch, ...]:
    """Joins the parts of a large batch, which was decoded in parts."""
    merged: list[TouchedBatch] = []
    for batch in batches:
        if merged and merged[-1].position == batch.position:
            offsets = np.concatenate((merged[-1].offsets, batch.offsets))
            batch = TouchedBatch(batch.position, batch.size, batch.base_offset, batch.last_offset, offsets)
            merged.pop()
        merged.append(batch)
    return tuple(merged)


def _require_checksums(chunk: Chunk) -> None:
    valid = chunk.checksums_valid()
    if not valid.all():
        raise wrong_checksum(chunk.path, chunk.batches[int(np.argmin(valid))])


def _require_decoded(path: Path, records: Records) -> None:
    bad = np.flatnonzero(records.status)
    if len(bad):
        reason = STATUS_REASONS[int(records.status[bad[0]])]
        raise batch_error(CorruptRecordError, path, reason, records.batches[int(bad[0])])


def require_erasable(log: Log, found: FoundRecords, erasure: Erasure) -> None:
    """Raises RefusedError for a record that cannot be erased: one after the start of an open transaction, or a message
    of magic 0 or 1 at the log end that would go as a whole.
    """
    if not found.segments:
        return
    open_transactions = log.producers.open_transactions
    if open_transactions:
        first, producer = min(open_transactions.items())
        last = found.segments[-1].batches[-1]
        if last.last_offset >= first:
            raise RefusedError(
                f"{log.directory}: a selected record lies after offset {first}, where producer {producer} has begun a"
                " transaction that is still open; nothing was changed. It must end first (`seglog txn`)"
            )
    if erasure.whole_record:
        _require_end_stays(log, found)


def _require_end_stays(log: Log, found: FoundRecords) -> None:
    """Refuses to take the last message of a log of magic 0 or 1: nothing would keep its offset."""
    last = found.segments[-1].batches[-1]
    active = log.segments.active
    if last.last_offset + 1 < log.log_end_offset or found.segments[-1].base_offset != active.base_offset:
        return
    for chunk in active.scan(last.position, last.position + last.size):
        if chunk.batches["magic"][0] < 2 and int(last.offsets[-1]) == last.last_offset:
            raise RefusedError(
                f"{active.path}: the record at offset {last.last_offset} is the last one of a log whose format (magic"
                f" {chunk.batches['magic'][0]}) cannot keep its offset without it; nothing was changed. Erase its value"
            )
