"""Reading a log: one fetch by offset, or everything from an offset to the end of the log as it is readable now.

Kafka: LocalLog.read, LogSegment.read, FetchDataInfo, and the polling consumer's side of read_committed.

1. The offset must lie in [log start, log end]; the isolation sets the limit, from which on nothing is shown.
2. The floor segment's index gives a position to begin at. From there find the batch that holds the wanted offset, or
   the next one; if compaction left none, try the next segment.
3. The answer is a span of that one segment's file: at most `max_bytes`, but with `min_one_message` at least the whole
   first batch. It ends at the limit, and may end inside a batch.
4. For read_committed the answer names the aborted transactions that reach into the span; the reader drops their
   batches.
5. If damage may hold the wanted offset, the fetch fails with its position; damage before it is skipped.

Reading on goes by position, not by offset (see `read_order`). Damage never counts as the end of a log: if good batches
follow, or bytes that no crash leaves, reading ends with an error that names the position.

Readers never block the writer: they work on the log's `view` (`LogView`). If a file is gone because segments were
replaced or deleted since, they continue on the newer view.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np

from seglog import layout
from seglog.arguments import integer, within
from seglog.errors import InvalidRecordError
from seglog.format.columns import STATUS_REASONS, Records
from seglog.format.decoder import batch_error, control_batches, scan_batches, wrong_checksum
from seglog.log.indexes import AbortedTransaction
from seglog.log.read_order import Disorder, Ranges, SeenOffsets, claimed_ranges
from seglog.log.segments import LogView, collect_aborted
from seglog.log.unreadable import Unreadable, no_batch, unreadable_at
from seglog.model import Isolation, Record, member
from seglog.scan.hidden_transactions import HiddenTransactions
from seglog.scan.segment_scan import HELD_BYTES, Chunk, EndReason, SegmentScan, find_batch
from seglog.storage.filesystem import File

_LOOK_BYTES = 32 << 10
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class FetchResult:
    """`size` bytes at `position` of a segment's file: the answer to a read of `offset` from `view`.

    The span may begin with records below `offset` and end inside a batch. `first_batch_incomplete`: not even the first
    batch fits. `aborted_transactions` is empty unless the read was read_committed. `file` stays readable while the
    result is kept, whatever happens to the segment; it is None if there is nothing to read.
    """

    view: LogView
    offset: int
    file: File | None
    segment_base_offset: int
    position: int
    size: int
    isolation: Isolation | None
    first_batch_incomplete: bool = False
    aborted_transactions: tuple[AbortedTransaction, ...] = ()

    def __repr__(self) -> str:
        where = f"{self.size} bytes at {self.position} of segment {self.segment_base_offset}"
        return f"<FetchResult from offset {self.offset}: {where if self.size else 'nothing'}>"

    @property
    def log_start_offset(self) -> int:
        """The first offset that could be read then."""
        return self.view.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record would get then."""
        return self.view.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The first offset that was not replicated then."""
        return self.view.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest transaction open then, at most the high watermark."""
        return self.view.last_stable_offset

    @cached_property
    def data(self) -> np.ndarray:
        """The bytes (uint8), read when first asked for."""
        if self.file is None or self.size == 0:
            return np.zeros(0, dtype=np.uint8)
        buffer = np.empty(self.size, dtype=np.uint8)
        return buffer[: self.file.read_into(self.position, buffer.data)]

    @cached_property
    def batches(self) -> np.ndarray:
        """The whole batches of the span (layout.BATCH), with their positions in the file."""
        if self.size <= HELD_BYTES:
            return scan_batches(self.data, 0, len(self.data), self.position).batches
        found = [chunk.batches.copy() for chunk in self._chunks()]
        return np.concatenate(found) if found else np.zeros(0, dtype=layout.BATCH)

    def _chunks(self) -> Iterator[Chunk]:
        """Yields the span in chunks: a single one, unless it is too large to be held."""
        if self.file is None or self.size == 0:
            return
        if self.size > HELD_BYTES:
            yield from SegmentScan.of_file(self.file, self.position, self.position + self.size)
        elif len(self.batches):
            yield Chunk(self.file.path, self.position, self.data, self.batches, self.file)

    def columns(self, seen: SeenOffsets | None = None) -> Iterator[Records]:
        """Yields the records visible to this reader as columns: from `offset` on, without control records.

        Each offset comes once, in the order of the file; with `seen` none that it has seen. Raises CorruptRecordError
        for a wrong checksum and InvalidRecordError for a batch that cannot be decoded, after the records before it.
        """
        seen = SeenOffsets(self.offset, self.ranges_before) if seen is None else seen
        for chunk in self._chunks():
            valid = chunk.checksums_valid()
            good = len(valid) if valid.all() else int(np.argmin(valid))
            if good:
                yield from self._decoded(replace(chunk, batches=chunk.batches[:good]), seen)
            if good < len(valid):
                raise wrong_checksum(chunk.path, chunk.batches[good])

    def _decoded(self, chunk: Chunk, seen: SeenOffsets) -> Iterator[Records]:
        """Yields the visible records of a chunk of good batches, up to one that cannot be decoded."""
        visible = self._visible(chunk.batches)
        new = seen.take(chunk.batches, chunk.records, chunk.path)
        if new is not None:
            visible &= new.shown
        numbers = np.flatnonzero(visible)
        for part in chunk.records(chunk.batches[visible]):
            rows, failed = part.rows, np.flatnonzero(part.status)
            if len(failed):
                rows = rows[rows["batch"] <= failed[0]]
            if new is not None:
                rows = new.of(rows, numbers[part.first_batch :])
            elif len(rows) and int(rows["offset"][0]) < self.offset:
                rows = rows[rows["offset"] >= self.offset]
            yield replace(part, rows=rows)
            for i in failed:
                reason = STATUS_REASONS[int(part.status[i])]
                raise batch_error(InvalidRecordError, chunk.path, reason, part.batches[i])

    def ranges_before(self, position: int) -> Ranges:
        """Yields the offsets of the span's batches before byte `position`, for `SeenOffsets`."""
        for chunk in self._chunks():
            before = chunk.batches[chunk.batches["position"] < position]
            if not len(before):
                return
            yield claimed_ranges(before, chunk.records)

    def records(self) -> Iterator[Record]:
        """Yields the visible records one by one, with the errors of `columns`."""
        return chain.from_iterable(self.columns())

    @property
    def next_offset(self) -> int:
        """The offset to read on from: after the last whole batch of the span, or `offset` if there is none.

        Otherwise always above `offset`: if the last batch ends below it, after the highest one.
        """
        if not len(self.batches):
            return self.offset
        following = int(self.batches["last_offset"][-1]) + 1
        return following if following > self.offset else int(self.batches["last_offset"].max()) + 1

    @property
    def end_position(self) -> int:
        """The byte position after the last whole batch."""
        return int(self.batches["position"][-1] + self.batches["size"][-1]) if len(self.batches) else self.position

    @cached_property
    def _aborted(self) -> HiddenTransactions:
        return HiddenTransactions(
            (entry.producer_id, entry.first_offset, entry.last_offset) for entry in self.aborted_transactions
        )

    def _visible(self, batches: np.ndarray) -> np.ndarray:
        """Returns which batches hold records for this reader (bool): neither control batches nor aborted ones."""
        visible: np.ndarray = ~control_batches(batches) & (batches["last_offset"] >= self.offset)
        if self.aborted_transactions:
            visible &= ~self._aborted.mask(batches)
        return visible


# --- fetching -------------------------------------------------------------------------------------------


def fetch(
    view: LogView,
    offset: int,
    max_bytes: int,
    isolation: Isolation | None,
    *,
    min_one_message: bool = True,
) -> FetchResult:
    """Reads from `offset` on (specification §9.1). `isolation` of None reads to the log end, as a replica does.

    Raises OffsetOutOfRangeError outside [log start, log end], CorruptRecordError if damage may hold `offset`.
    """
    index = view.first_segment(offset)
    limit = view.limit(isolation)
    while offset < limit and index < len(view.segments):
        segment = view.segments[index]
        with ExitStack() as stack:
            file = stack.enter_context(segment.fs.open(segment.path, "r"))
            found = _find_batch(view, index, offset, file)
            if found is not None:
                position, first_size = found
                wanted = max(max_bytes, first_size) if min_one_message else max_bytes
                size = max(0, min(_limit_position(view, index, limit) - position, wanted))
                aborted = _aborted_transactions(view, index, offset, position, size, isolation)
                if size:
                    stack.pop_all()
                source, incomplete = file if size else None, wanted < first_size
                base = segment.base_offset
                return FetchResult(view, offset, source, base, position, size, isolation, incomplete, aborted)
        index += 1
    return FetchResult(view, offset, None, view.segments[0].base_offset, 0, 0, isolation)


def fetch_on(view: LogView, last: FetchResult, limit: int, max_bytes: int) -> FetchResult:
    """Reads the span that follows `last` in the order of the files, below the offset `limit`; empty at the end.

    Raises CorruptRecordError if the next bytes are not a whole batch, FileNotFoundError if the segment is gone.
    """
    index, position = view.floor(last.segment_base_offset), last.end_position
    if index < 0 or view.segments[index].base_offset != last.segment_base_offset:
        raise FileNotFoundError(f"{last.segment_base_offset}")
    while index < len(view.segments):
        end = _limit_position(view, index, limit)
        if position < end:
            return _span_at(view, index, position, end, last, max_bytes)
        index, position = index + 1, 0
    return FetchResult(view, last.offset, None, view.segments[-1].base_offset, 0, 0, last.isolation)


def _span_at(view: LogView, index: int, position: int, end: int, last: FetchResult, max_bytes: int) -> FetchResult:
    """Reads the span of segment `index` from the batch at byte `position` on, for the reader of `last`."""
    segment = view.segments[index]
    file = segment.fs.open(segment.path, "r")
    head = file.read_at(position, layout.LOG_OVERHEAD)
    size = int.from_bytes(head[layout.SIZE_OFFSET :], "big", signed=True) + layout.LOG_OVERHEAD
    whole = len(head) == layout.LOG_OVERHEAD and layout.LEAST_ENTRY_SIZE + layout.LOG_OVERHEAD <= size <= end - position
    base = int.from_bytes(head[: layout.SIZE_OFFSET], "big", signed=True)
    wanted = min(end - position, max(max_bytes, size))
    aborted = _aborted_transactions(view, index, base, position, wanted, last.isolation) if whole else ()
    span = FetchResult(view, last.offset, file, segment.base_offset, position, wanted, last.isolation, False, aborted)
    if not whole or not len(span.batches):
        before = last.batches["last_offset"]
        follows = int(before.max()) + 1 if len(before) else last.offset
        raise no_batch(segment, position, end, max(follows, segment.base_offset))
    return span


def unreadable_end(view: LogView) -> Unreadable | None:
    """Returns the bytes after the log end in the last file; None for a log that was closed or is open for writing, and
    for preallocated zeros.
    """
    if not view.trailing_bytes:
        return None
    end = view.active_size + view.trailing_bytes
    found = unreadable_at(view.segments[-1], view.active_size, end, view.log_end_offset)
    return None if found is None or found.gap.preallocated else found


def require_end(view: LogView, writing: bool = False) -> None:
    """Raises CorruptRecordError, a reader's or a writer's, if the log ends because of damage, not because nothing more
    was written.
    """
    found = unreadable_end(view)
    if found is not None and not found.is_torn_end:
        raise found.error(writing)


def ranges_before(view: LogView, start: FetchResult, end: FetchResult, position: int) -> Ranges:
    """Yields the offsets of all batches from the start of `start` to byte `position` of `end`, for `SeenOffsets`."""
    first, last = view.floor(start.segment_base_offset), view.floor(end.segment_base_offset)
    for index in range(max(first, 0), last + 1):
        begin = start.position if index == first else 0
        stop = position if index == last else view.size_of(index)
        for chunk in view.segments[index].scan(begin, stop):
            yield claimed_ranges(chunk.batches, chunk.records)


def _find_batch(view: LogView, index: int, offset: int, file: File) -> tuple[int, int] | None:
    """Returns (position, size) of the batch that holds `offset`, or of the next one; None if the segment has neither.

    Raises CorruptRecordError if damage may hold the offset.
    """
    segment, size = view.segments[index], view.size_of(index)
    start = view.search_start(index, offset, file)
    while True:
        scan = segment.scan(start, size, chunk_bytes=_LOOK_BYTES, file=file)
        found = find_batch(scan, offset)
        if found is not None:
            return found.position, found.size
        if scan.end is None or scan.end.reason is EndReason.COMPLETE:
            return None
        ends = (int(chunk.batches["last_offset"].max()) + 1 for chunk in segment.scan(start, scan.end.position))
        hidden = unreadable_at(segment, scan.end.position, size, max(ends, default=segment.base_offset))
        if hidden is None:
            return None
        if hidden.following is None or int(hidden.following["base_offset"]) > offset:
            raise hidden.error()
        start = int(hidden.following["position"])


def _limit_position(view: LogView, index: int, limit: int) -> int:
    """Returns the byte position of the limit in segment `index`: everything before it may be shown."""
    at = len(view.segments) - 1 if limit >= view.log_end_offset else view.floor(limit)
    if index < at or limit >= view.log_end_offset:
        return view.size_of(index)
    if index > at:
        return 0
    segment, size = view.segments[index], view.size_of(index)
    found = find_batch(segment.scan(view.search_start(index, limit), size, chunk_bytes=_LOOK_BYTES), limit)
    # with none, every batch lies below the limit, or damage comes first: then reading on finds the damage
    return size if found is None else found.position


def _aborted_transactions(
    view: LogView, index: int, offset: int, position: int, size: int, isolation: Isolation | None
) -> tuple[AbortedTransaction, ...]:
    """Returns the aborted transactions that reach into the span, for a reader of committed records; their entries may
    lie in later segments.
    """
    if isolation != Isolation.READ_COMMITTED or not size:
        return ()
    upper = view.segments[index].offset_index.upper_bound_offset(position, size)
    if upper is None:
        following = view.segments[index + 1 : index + 2]
        upper = following[0].base_offset if following else view.log_end_offset
    return tuple(collect_aborted(view.segments, index, offset, upper))


def _size(max_bytes: int) -> int:
    return within("max_bytes", max_bytes, 0, layout.INT64_MAX)


class Viewed(Protocol):
    """A log with a state that a writer may replace at any time."""

    @property
    def view(self) -> LogView: ...


class LogReader:
    """Reads one log. `disorders` are the places, one a segment, where the offsets read so far do not ascend."""

    def __init__(self, log: Viewed) -> None:
        self._log = log
        self.disorders: dict[Path, Disorder] = {}

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation | str | None, min_one_message: bool = True
    ) -> FetchResult:
        """Reads one span. Raises OffsetOutOfRangeError, CorruptRecordError if damage may hold `offset`."""
        offset, max_bytes = integer("offset", offset), _size(max_bytes)
        level = None if isolation is None else member(Isolation, isolation, "isolation")
        while True:
            view = self._log.view
            if offset >= view.log_end_offset:
                require_end(view)
            try:
                return fetch(view, offset, max_bytes, level, min_one_message=min_one_message)
            except FileNotFoundError:
                if self._log.view is view:
                    raise

    def columns(self, offset: int | None, isolation: Isolation | str | None, max_bytes: int) -> Iterator[Records]:
        """Yields the records from `offset` (default: log start) on that are readable now, `max_bytes` at a time."""
        level = None if isolation is None else member(Isolation, isolation, "isolation")
        start = self._log.view.log_start_offset if offset is None else integer("offset", offset)
        return self._columns(start, level, _size(max_bytes))

    def _columns(self, offset: int, isolation: Isolation | None, max_bytes: int) -> Iterator[Records]:
        view = self._log.view
        limit = view.limit(isolation)
        first = fetched = self.read(offset, max_bytes, isolation)
        seen = SeenOffsets(offset, lambda position: ranges_before(view, first, fetched, position))
        while fetched.size:
            yield from fetched.columns(seen)
            for path, disorder in seen.disorders.items():
                if path not in self.disorders:
                    _logger.warning("%s: position %d: offsets do not ascend", path, disorder.position)
                self.disorders[path] = disorder
            _ = self._log.view  # RefusedError if the log was closed meanwhile: its files are not opened again
            try:
                fetched = fetch_on(view, fetched, limit, max_bytes)
            except FileNotFoundError:
                newest = self._log.view
                if newest is view:
                    raise
                view = newest
                following = max(seen.end + 1, view.log_start_offset)
                if following >= min(limit, view.log_end_offset):
                    return
                first = fetched = self.read(following, max_bytes, isolation)
        if limit >= view.log_end_offset:
            require_end(view)
