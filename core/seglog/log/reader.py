"""Fetching by offset (Kafka: LocalLog.read, LogSegment.read, FetchDataInfo, and the consumer's side of
read_committed).

1. The offset must lie in [log start, log end]; the isolation gives the limit behind which nothing is shown.
2. The floor segment's index gives a place to begin; from there the batch that holds the wanted offset, or the
   next one, is found. Where compaction left none, the next segment is asked.
3. The answer is a span of that one segment's file: at most `max_bytes`, but with `min_one_message` the whole
   first batch; it ends at the limit, and may end inside a batch.
4. For read_committed the aborted transactions that reach into the span are named; the reader drops their
   batches.

Readers never block the writer: they work on `LogView`, a snapshot of offsets and of the copy-on-write
segment list.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from seglog import layout
from seglog.errors import CorruptRecordError, InvalidRecordError, OffsetOutOfRangeError
from seglog.format.buffers import byte_view
from seglog.format.columns import STATUS_REASONS, Records
from seglog.format.decoder import scan_batches
from seglog.log.batch_search import find_batch
from seglog.log.read_order import Ranges, SeenOffsets, claimed_ranges
from seglog.log.segment import LogSegment
from seglog.log.segments import collect_aborted
from seglog.log.transaction_index import AbortedTransaction
from seglog.model import ControlType, Isolation, Record
from seglog.scan.segment_scan import HELD_BYTES, Chunk, EndReason, SegmentScan
from seglog.storage.filesystem import File

_LOOK_BYTES = 32 << 10
_ABORT = int(ControlType.ABORT)


@dataclass(frozen=True, slots=True)
class LogView:
    """One consistent state of a log: what its offsets were, and which segments held them, `size` bytes in
    the last.
    """

    segments: tuple[LogSegment, ...]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    active_size: int

    def floor(self, offset: int) -> int:
        """Index of the last segment whose base offset is at most `offset`, or -1."""
        return bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1

    def first_segment(self, offset: int) -> int:
        """Index of the segment in which a read from `offset` begins. OffsetOutOfRangeError outside [log start, log
        end].
        """
        index = self.floor(offset)
        if not self.log_start_offset <= offset <= self.log_end_offset or index < 0:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)
        return index

    def size_of(self, index: int) -> int:
        """Bytes of the segment that belong to this view."""
        return self.active_size if index == len(self.segments) - 1 else self.segments[index].size

    def limit(self, isolation: Isolation | None) -> int:
        """First offset not shown: high watermark, last stable offset, or for None (a replica) the log end."""
        if isolation is None:
            return self.log_end_offset
        committed = isolation == Isolation.READ_COMMITTED
        return self.last_stable_offset if committed else self.high_watermark


@dataclass(frozen=True)
class FetchResult:
    """`size` bytes at `position` of a segment's file, for a reader who asked for `offset`.

    The span may begin with records below `offset` and end inside a batch. `first_batch_incomplete`: not even
    the first batch fits. `aborted_transactions` is empty unless the read was read_committed. `file` stays
    readable for as long as the result is kept, whatever becomes of the segment; it is None when there is
    nothing.
    """

    offset: int
    file: File | None
    segment_base_offset: int
    position: int
    size: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    isolation: Isolation | None
    first_batch_incomplete: bool = False
    aborted_transactions: tuple[AbortedTransaction, ...] = ()

    @cached_property
    def data(self) -> np.ndarray:
        """The bytes (uint8), read when first asked for."""
        if self.file is None or self.size == 0:
            return np.zeros(0, dtype=np.uint8)
        buffer = np.empty(self.size, dtype=np.uint8)
        return buffer[: self.file.read_into(self.position, byte_view(buffer))]

    @cached_property
    def batches(self) -> np.ndarray:
        """The whole batches of the span (layout.BATCH), with their positions in the file."""
        if self.size <= HELD_BYTES:
            return scan_batches(self.data, 0, len(self.data), self.position).batches
        found = [chunk.batches.copy() for chunk in self._chunks()]
        return np.concatenate(found) if found else np.zeros(0, dtype=layout.BATCH)

    def _chunks(self) -> Iterator[Chunk]:
        """The span in chunks: all of it at once, unless it is too large to be held."""
        if self.file is None or self.size == 0:
            return
        if self.size > HELD_BYTES:
            yield from SegmentScan.of_file(self.file, self.position, self.position + self.size)
        elif len(self.batches):
            yield Chunk(self.file.path, self.position, self.data, self.batches, self.file)

    def columns(self, seen: SeenOffsets | None = None) -> Iterator[Records]:
        """The records that this reader is to see, as columns: from `offset` on, without control records.

        Each offset comes once, in the order of the file; with `seen` none that it has seen. Raises CorruptRecordError
        for a wrong checksum and InvalidRecordError for a batch that cannot be decoded.
        """
        seen = SeenOffsets(self.offset, self.ranges_before) if seen is None else seen
        aborted = _AbortedBatches(self.aborted_transactions)
        for chunk in self._chunks():
            for row in chunk.batches[~chunk.checksums_valid()]:
                first, last = int(row["base_offset"]), int(row["last_offset"])
                raise CorruptRecordError(chunk.path, "the checksum is wrong", int(row["position"]), first, last)
            visible = self._visible(chunk, aborted)
            news = seen.take(chunk.batches, chunk.records, chunk.path)
            if news is not None:
                visible &= news.shown
            numbers = np.flatnonzero(visible)
            for part in chunk.records(chunk.batches[visible]):
                for i in np.flatnonzero(part.status):
                    row = part.batches[i]
                    raise InvalidRecordError(chunk.path, STATUS_REASONS[int(part.status[i])], int(row["position"]))
                rows = part.rows
                if news is not None:
                    rows = news.of(rows, numbers[part.first_batch :])
                elif len(rows) and int(rows["offset"][0]) < self.offset:
                    rows = rows[rows["offset"] >= self.offset]
                yield replace(part, rows=rows)

    def ranges_before(self, position: int) -> Ranges:
        """The offsets of the span's batches before byte `position`, for `SeenOffsets`."""
        for chunk in self._chunks():
            before = chunk.batches[chunk.batches["position"] < position]
            if not len(before):
                return
            yield claimed_ranges(before, chunk.records)

    def records(self) -> Iterator[Record]:
        """The same one by one."""
        for part in self.columns():
            yield from part

    @property
    def next_offset(self) -> int:
        """Where to read on: after the last whole batch of the span; `offset` itself when there is none.

        Always above `offset` otherwise: where the last batch ends below it, after the highest.
        """
        if not len(self.batches):
            return self.offset
        following = int(self.batches["last_offset"][-1]) + 1
        return following if following > self.offset else int(self.batches["last_offset"].max()) + 1

    @property
    def end_position(self) -> int:
        """Byte position after the last whole batch."""
        return int(self.batches["position"][-1] + self.batches["size"][-1]) if len(self.batches) else self.position

    def _visible(self, chunk: Chunk, aborted: _AbortedBatches) -> np.ndarray:
        """Which batches hold records for this reader (bool): no control batches, none of an aborted
        transaction.
        """
        batches = chunk.batches
        v2 = batches["magic"] >= 2
        control = v2 & ((batches["attributes"] & layout.CONTROL_MASK) != 0)
        visible: np.ndarray = ~control & (batches["last_offset"] >= self.offset)
        if self.aborted_transactions:
            visible &= ~aborted.among(chunk, control)
        return visible


class _AbortedBatches:
    """Finds out which batches belong to aborted transactions, as a consumer does (specification §9.2)."""

    def __init__(self, transactions: Sequence[AbortedTransaction]) -> None:
        self._waiting = sorted(transactions, key=lambda entry: entry.first_offset, reverse=True)
        self._producers: set[int] = set()

    def among(self, chunk: Chunk, control: np.ndarray) -> np.ndarray:
        """Which of the next batches do (bool); `control` says which are control batches."""
        batches, waiting, producers = chunk.batches, self._waiting, self._producers
        dropped = np.zeros(len(batches), dtype=bool)
        for i in np.flatnonzero((batches["magic"] >= 2) & (batches["producer_id"] >= 0)).tolist():
            row = batches[i]
            while waiting and waiting[-1].first_offset <= row["last_offset"]:
                producers.add(waiting.pop().producer_id)
            producer = int(row["producer_id"])
            if control[i]:
                if _control_type(chunk, batches[i : i + 1]) == _ABORT:
                    producers.discard(producer)
            elif producer in producers and int(row["attributes"]) & layout.TRANSACTIONAL_MASK:
                dropped[i] = True
        return dropped


def _control_type(chunk: Chunk, batch: np.ndarray) -> int:
    """Type of a control batch's record, or -1 where it has none (emptied by the cleaner) or cannot be
    read.
    """
    for part in chunk.records(batch):
        if len(part):
            key = part.key(0)
            return int.from_bytes(key[2:4], "big", signed=True) if key is not None and len(key) >= 4 else -1
    return -1


# --- fetching -------------------------------------------------------------------------------------------


def fetch(
    view: LogView,
    offset: int,
    max_bytes: int,
    isolation: Isolation | None,
    *,
    min_one_message: bool = True,
) -> FetchResult:
    """Reads from `offset` on (specification §9.1). `isolation` of None reads to the log end, as a replica
    does.

    Raises OffsetOutOfRangeError outside [log start, log end].
    """
    index = view.first_segment(offset)
    limit = view.limit(isolation)
    while offset < limit and index < len(view.segments):
        found = _find_batch(view, index, offset)
        if found is not None:
            return _span(view, index, found, offset, limit, max_bytes, isolation, min_one_message)
        index += 1
    return _result(view, offset, isolation, None, 0, 0, 0)


def fetch_on(view: LogView, last: FetchResult, limit: int, max_bytes: int) -> FetchResult:
    """What follows on `last` in the order of the files, below the offset `limit`; empty at the end.

    CorruptRecordError where the next bytes are no whole batch. FileNotFoundError when the segment is gone.
    """
    index, position = view.floor(last.segment_base_offset), last.end_position
    if index < 0 or view.segments[index].base_offset != last.segment_base_offset:
        raise FileNotFoundError(f"{last.segment_base_offset}")
    while index < len(view.segments):
        end = _limit_position(view, index, limit)
        if position < end:
            return _span_at(view, index, position, end, last, max_bytes)
        index, position = index + 1, 0
    return _result(view, last.offset, last.isolation, None, len(view.segments) - 1, 0, 0)


def _span_at(view: LogView, index: int, position: int, end: int, last: FetchResult, max_bytes: int) -> FetchResult:
    """The span of segment `index` from the batch at byte `position` on, for the reader of `last`."""
    segment = view.segments[index]
    file = segment.fs.open(segment.path, "r")
    head = file.read_at(position, layout.LOG_OVERHEAD)
    size = int.from_bytes(head[layout.SIZE_OFFSET :], "big", signed=True) + layout.LOG_OVERHEAD
    whole = len(head) == layout.LOG_OVERHEAD and layout.LEAST_ENTRY_SIZE + layout.LOG_OVERHEAD <= size <= end - position
    if not whole:
        raise _no_batch(segment, position, end)
    base = int.from_bytes(head[: layout.SIZE_OFFSET], "big", signed=True)
    wanted = min(end - position, max(max_bytes, size))
    aborted: tuple[AbortedTransaction, ...] = ()
    if last.isolation == Isolation.READ_COMMITTED:
        aborted = _aborted_transactions(view, index, base, position, wanted)
    span = _result(view, last.offset, last.isolation, file, index, position, wanted, False, aborted)
    if not len(span.batches):
        raise _no_batch(segment, position, end)
    return span


def _no_batch(segment: LogSegment, position: int, end: int) -> CorruptRecordError:
    """Why there is no batch at byte `position`."""
    scan = segment.scan(position, end, chunk_bytes=_LOOK_BYTES)
    deque(scan, maxlen=0)
    reason = EndReason.TRAILING if scan.end is None or scan.end.reason is EndReason.COMPLETE else scan.end.reason
    return CorruptRecordError(segment.path, reason.value, position)


def ranges_before(view: LogView, start: FetchResult, end: FetchResult, position: int) -> Ranges:
    """The offsets of all batches from where `start` begins to byte `position` of `end`, for `SeenOffsets`."""
    first, last = view.floor(start.segment_base_offset), view.floor(end.segment_base_offset)
    for index in range(max(first, 0), last + 1):
        begin = start.position if index == first else 0
        stop = position if index == last else view.size_of(index)
        for chunk in view.segments[index].scan(begin, stop):
            yield claimed_ranges(chunk.batches, chunk.records)


def _find_batch(view: LogView, index: int, offset: int) -> tuple[int, int] | None:
    """(position, size) of the batch that holds `offset`, or of the next one; None when the segment has neither."""
    segment = view.segments[index]
    size = view.size_of(index)
    _, start = segment.offset_index.lookup(offset)
    found = find_batch(segment.scan(start if start <= size else 0, size, chunk_bytes=_LOOK_BYTES), offset)
    return None if found is None else (found.position, found.size)


def _limit_position(view: LogView, index: int, limit: int) -> int:
    """Where in segment `index` the limit lies: everything before it may be shown."""
    at = len(view.segments) - 1 if limit >= view.log_end_offset else view.floor(limit)
    if index < at or limit >= view.log_end_offset:
        return view.size_of(index)
    found = _find_batch(view, index, limit) if index == at else None
    if found is None:
        # every batch here lies below the limit, or (behind the limit's segment) none does
        return view.size_of(index) if index == at else 0
    return found[0]


def _span(
    view: LogView,
    index: int,
    found: tuple[int, int],
    offset: int,
    limit: int,
    max_bytes: int,
    isolation: Isolation | None,
    min_one_message: bool,
) -> FetchResult:
    segment, (position, first_size) = view.segments[index], found
    wanted = max(max_bytes, first_size) if min_one_message else max_bytes
    size = max(0, min(_limit_position(view, index, limit) - position, wanted))
    aborted: tuple[AbortedTransaction, ...] = ()
    if isolation == Isolation.READ_COMMITTED and size:
        aborted = _aborted_transactions(view, index, offset, position, size)
    file = segment.fs.open(segment.path, "r") if size else None
    return _result(view, offset, isolation, file, index, position, size, wanted < first_size, aborted)


def _aborted_transactions(
    view: LogView, index: int, offset: int, position: int, size: int
) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions that reach into the span; their entries may lie in later segments."""
    upper = view.segments[index].offset_index.upper_bound_offset(position, size)
    if upper is None:
        following = view.segments[index + 1 : index + 2]
        upper = following[0].base_offset if following else view.log_end_offset
    return tuple(collect_aborted(view.segments, index, offset, upper))


def _result(
    view: LogView,
    offset: int,
    isolation: Isolation | None,
    file: File | None,
    index: int,
    position: int,
    size: int,
    incomplete: bool = False,
    aborted: tuple[AbortedTransaction, ...] = (),
) -> FetchResult:
    return FetchResult(
        offset=offset,
        file=file,
        segment_base_offset=view.segments[index].base_offset,
        position=position,
        size=size,
        log_start_offset=view.log_start_offset,
        log_end_offset=view.log_end_offset,
        high_watermark=view.high_watermark,
        last_stable_offset=view.last_stable_offset,
        isolation=isolation,
        first_batch_incomplete=incomplete,
        aborted_transactions=aborted,
    )
