"""Where a round's batches go: into `.cleaned` segments, or, for a dry run, nowhere.

Both keep the same account (bytes, batches, index entries), so that a dry run says exactly what a run would write. A
group of segments becomes one, unless that would be larger than a segment can be (`GroupOutput`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np

from seglog import layout
from seglog.format.filenames import FileState
from seglog.kernels import indexing
from seglog.log.indexes import AbortedTransaction, closing_time_entry, index_entries_for, new_index_state
from seglog.log.segment import LogSegment
from seglog.storage.filesystem import FileSystem

_WRITE_OUT_BYTES = 2 << 20  # the disk begins with so many at once, while the next ones are made


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """What one segment can hold: bytes of its `.log` (FileRecords counts them in 31 bits), bytes of each index
    (segment.index.bytes), offsets relative to its base in 31 bits."""

    log_bytes: int
    index_bytes: int
    index_interval_bytes: int

    def fitting(self, batches: np.ndarray, base_offset: int, size: int, state: np.ndarray) -> int:
        """How many of `batches` (layout.BATCH, ascending) a segment of `size` bytes still takes, from the first on.

        `state` is that of its index rule (`kernels.indexing`), and stays as it is.
        """
        by_bytes = np.searchsorted(np.cumsum(batches["size"], dtype=np.int64), self.log_bytes - size, side="right")
        by_offset = np.searchsorted(batches["last_offset"] - base_offset, layout.INT32_MAX, side="right")
        count = int(min(by_bytes, by_offset))
        most_entries = max(int(state[indexing.OFFSET_ENTRIES]), int(state[indexing.TIME_ENTRIES])) + count
        if most_entries < self.index_bytes // layout.TIME_INDEX_ENTRY.itemsize:  # its entries are the larger ones
            return count
        return self._indexable(batches[:count], state.copy())

    def _indexable(self, batches: np.ndarray, state: np.ndarray) -> int:
        """Kafka: OffsetIndex.append and TimeIndex.maybeAppend refuse a full index; a time index keeps a last entry."""
        most_offsets = self.index_bytes // layout.OFFSET_INDEX_ENTRY.itemsize
        most_times = self.index_bytes // layout.TIME_INDEX_ENTRY.itemsize - 1
        for i in range(len(batches)):
            full = state[indexing.OFFSET_ENTRIES] >= most_offsets or state[indexing.TIME_ENTRIES] >= most_times
            if full and state[indexing.BYTES_SINCE_LAST_ENTRY] > self.index_interval_bytes:
                return i
            index_entries_for(batches[i : i + 1], self.index_interval_bytes, state)
        return len(batches)


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """A segment of the round's output: bytes of its files, and its batches."""

    base_offset: int
    size: int
    batches: int
    offset_index_bytes: int
    time_index_bytes: int
    transaction_index_bytes: int


class Output(Protocol):
    """Takes what becomes one segment."""

    @property
    def base_offset(self) -> int: ...

    def fitting(self, batches: np.ndarray, bounds: SegmentBounds) -> int: ...

    def append(self, batches: np.ndarray, data: np.ndarray) -> None: ...

    def append_aborted(self, transactions: Sequence[AbortedTransaction]) -> None: ...

    def finish(self, modified_ms: int, pool: Executor | None) -> SegmentSummary: ...

    def wait(self) -> None: ...


class NullOutput:
    """Counts what a run would write, and writes nothing."""

    def __init__(self, base_offset: int, index_interval_bytes: int) -> None:
        self.base_offset, self._interval = base_offset, index_interval_bytes
        self._state = new_index_state()
        self._size = self._batches = self._aborted = 0

    def fitting(self, batches: np.ndarray, bounds: SegmentBounds) -> int:
        return bounds.fitting(batches, self.base_offset, self._size, self._state)

    def append(self, batches: np.ndarray, data: np.ndarray) -> None:
        index_entries_for(batches, self._interval, self._state)
        self._size += len(data)
        self._batches += len(batches)

    def append_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        self._aborted += len(transactions)

    def finish(self, modified_ms: int, pool: Executor | None) -> SegmentSummary:  # noqa: ARG002 (as CleanedOutput)
        closing_time_entry(self._state)
        return SegmentSummary(
            self.base_offset,
            self._size,
            self._batches,
            int(self._state[indexing.OFFSET_ENTRIES]) * layout.OFFSET_INDEX_ENTRY.itemsize,
            int(self._state[indexing.TIME_ENTRIES]) * layout.TIME_INDEX_ENTRY.itemsize,
            self._aborted * layout.TRANSACTION_INDEX_ENTRY.itemsize,
        )

    def wait(self) -> None:
        """There is nothing to wait for."""


class CleanedOutput:
    """A `.cleaned` segment. `wait` returns when everything is on stable storage."""

    def __init__(self, fs: FileSystem, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        self.segment = LogSegment.create(
            fs, directory, base_offset, index_interval_bytes=index_interval_bytes, state=FileState.CLEANED
        )
        self._batches = 0
        self._handed_over = 0
        self._flushed: Future[None] | None = None

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    def fitting(self, batches: np.ndarray, bounds: SegmentBounds) -> int:
        return bounds.fitting(batches, self.base_offset, self.segment.size, self.segment.index_state())

    def append(self, batches: np.ndarray, data: np.ndarray) -> None:
        self.segment.append(batches, data)
        self._batches += len(batches)
        if self.segment.size - self._handed_over >= _WRITE_OUT_BYTES:
            self.segment.start_flush(self._handed_over)
            self._handed_over = self.segment.size

    def append_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        for transaction in transactions:
            self.segment.transaction_index.append(transaction)

    def finish(self, modified_ms: int, pool: Executor | None) -> SegmentSummary:
        """Closes indexes, sets the times of the last source segment, and flushes, under `pool` if there is one."""
        segment = self.segment
        segment.on_become_inactive()
        for path in (segment.path, segment.offset_index.path, segment.time_index.path):
            segment.fs.set_modified(path, modified_ms)
        if pool is None:
            self._flush()
        else:
            self._flushed = pool.submit(self._flush)
        return SegmentSummary(
            segment.base_offset,
            segment.size,
            self._batches,
            segment.offset_index.size,
            segment.time_index.size,
            segment.transaction_index.size,
        )

    def _flush(self) -> None:
        """A round may have thousands of outputs, so none keeps its descriptors until the swap."""
        self.segment.flush()
        self.segment.close_files()

    def wait(self) -> None:
        if self._flushed is not None:
            self._flushed.result()
            self._flushed = None

    def discard(self) -> None:
        """Removes the files."""
        if self._flushed is not None:
            self._flushed.exception()
        self.segment.delete()


OutputT = TypeVar("OutputT", bound=Output)


class GroupOutput(Generic[OutputT]):
    """What is left of one group: a segment, or several where one cannot hold it; a batch is never divided.

    `make` begins a segment at a base offset: the group's, then that of the first batch that did not fit.
    """

    def __init__(self, make: Callable[[int], OutputT], base_offset: int, bounds: SegmentBounds) -> None:
        self._make, self._bounds = make, bounds
        self.parts = [make(base_offset)]

    def append(self, batches: np.ndarray, data: np.ndarray) -> None:
        """Takes whole batches: `data` is their bytes, `batches` their rows (layout.BATCH) in the same order."""
        while len(batches):
            part, first_offset = self.parts[-1], int(batches["base_offset"][0])
            count = part.fitting(batches, self._bounds)
            if not count and first_offset > part.base_offset:
                self.parts.append(self._make(first_offset))
                continue
            count = max(count, 1)  # a batch that begins its segment has nowhere else to go
            size = len(data) if count == len(batches) else int(batches["size"][:count].sum())
            part.append(batches[:count], data[:size])
            batches, data = batches[count:], data[size:]

    def append_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Each goes where its marker is, which was appended before."""
        for transaction in transactions:
            part = next(part for part in reversed(self.parts) if part.base_offset <= transaction.last_offset)
            part.append_aborted([transaction])

    def finish(self, modified_ms: int, pool: Executor | None) -> list[SegmentSummary]:
        """As `CleanedOutput.finish`, for every segment, in order."""
        return [part.finish(modified_ms, pool) for part in self.parts]

    def wait(self) -> None:
        """Returns when every segment is on stable storage."""
        for part in self.parts:
            part.wait()
