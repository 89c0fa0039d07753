"""What a round writes and what it counts: its output segments, its statistics, and its result.

Batches go into `.cleaned` segments (`CleanedOutput`), or nowhere in a dry run (`NullOutput`). Both keep the same
account of bytes, batches and index entries, so a dry run says exactly what a run would write. A group of segments
becomes one segment, unless that would be larger than a segment can be (`GroupOutput`).

`CleanerStats` are Kafka's, plus what became of every record. The counts of parts of a round add up, such as groups of
segments that were copied side by side or in Spark tasks. `CleaningResult.text` is the block in the broker's log.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from seglog import layout
from seglog.cleaner.round import RoundPlan, SegmentBounds
from seglog.clock import Clock
from seglog.escaping import escaped
from seglog.format.filenames import FileState
from seglog.kernels import filter_slots, indexing
from seglog.log.indexes import AbortedTransaction, closing_time_entry, index_entries_for, new_index_state
from seglog.log.segment import LogSegment
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem

MEBIBYTE = 1 << 20

# The timed phases of a round. Without a pool, the phase map includes the time for reading keys.
PHASES = ("checksum", "decompress", "keys", "map", "filter", "compress", "write", "fsync", "swap")

_WRITE_OUT_BYTES = 2 << 20  # the disk starts on this many at once while the next ones are made


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """A segment of the round's output: the bytes of its files, and its number of batches."""

    base_offset: int
    size: int
    batches: int
    offset_index_bytes: int
    time_index_bytes: int
    transaction_index_bytes: int


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
        """Returns at once."""


class CleanedOutput:
    """Writes a `.cleaned` segment. `wait` returns when all of it is on stable storage."""

    def __init__(self, fs: FileSystem, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        self.segment = LogSegment(
            fs, directory, base_offset, index_interval_bytes=index_interval_bytes, state=FileState.CLEANED
        ).create()
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
        """Closes the indexes, sets the modification time of the last source segment, and flushes (on `pool`)."""
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
        """Flushes and closes the files: a round may have thousands of outputs, too many to stay open until the swap."""
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


OutputT = TypeVar("OutputT", bound=NullOutput | CleanedOutput)


class GroupOutput(Generic[OutputT]):
    """The output of one group: a segment, or several if one cannot hold it. A batch is never divided.

    `make` begins a segment at a base offset: the group's, then that of the first batch that did not fit. Once the
    output is finished, `summaries` describe its segments, in order.
    """

    def __init__(self, make: Callable[[int], OutputT], base_offset: int, bounds: SegmentBounds) -> None:
        self._make, self._bounds = make, bounds
        self.parts = [make(base_offset)]
        self.summaries: list[SegmentSummary] = []

    def append(self, batches: np.ndarray, data: np.ndarray) -> None:
        """Appends whole batches: `data` is their bytes, `batches` their rows (layout.BATCH) in the same order."""
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
        """Adds aborted transactions, each to the segment of its marker, which was appended before."""
        for transaction in transactions:
            part = next(part for part in reversed(self.parts) if part.base_offset <= transaction.last_offset)
            part.append_aborted([transaction])

    def finish(self, modified_ms: int, pool: Executor | None) -> None:
        """Finishes every segment, in order, as `CleanedOutput.finish` does."""
        self.summaries = [part.finish(modified_ms, pool) for part in self.parts]

    def wait(self) -> None:
        """Waits until every segment is on stable storage."""
        for part in self.parts:
            part.wait()


# --- counts and result


@dataclass(eq=False)
class RoundCounts:
    """The counts of a round or of a part of one. They can be added, and sent between processes.

    `map_*` count the first index pass, except that `map_entries` counts the keys of all passes and `most_map_entries`
    those of the fullest. `bytes_read` is the size of the sources, as Kafka counts it; `bytes_unread` of those bytes
    were dead (`key_index`) and not read a second time. `records_read` counts the records that were examined: batches
    deleted as a whole count only in bytes. `phases` are seconds summed over all threads.
    """

    map_bytes_read: int = 0
    map_records_read: int = 0
    map_entries: int = 0
    most_map_entries: int = 0
    index_passes: int = 1
    bytes_read: int = 0
    bytes_unread: int = 0
    bytes_written: int = 0
    batches_written: int = 0
    counters: np.ndarray = field(default_factory=lambda: np.zeros(filter_slots.COUNTER_SLOTS, dtype=np.int64))
    phases: dict[str, float] = field(default_factory=dict)

    def add(self, part: RoundCounts) -> None:
        """Adds the counts of another part of this round."""
        self.map_bytes_read += part.map_bytes_read
        self.map_records_read += part.map_records_read
        self.map_entries += part.map_entries
        self.most_map_entries = max(self.most_map_entries, part.most_map_entries)
        self.index_passes = max(self.index_passes, part.index_passes)
        self.bytes_read += part.bytes_read
        self.bytes_unread += part.bytes_unread
        self.bytes_written += part.bytes_written
        self.batches_written += part.batches_written
        self.counters += part.counters
        for name, seconds in part.phases.items():
            self.phases[name] = self.phases.get(name, 0.0) + seconds


class CleanerStats(RoundCounts):
    """The counts and times of one round (Kafka: CleanerStats, plus what became of the records).

    Times are monotonic seconds of `clock`.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.started = self.map_completed = self.ended = clock.monotonic()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        """Returns everything but the lock, so that results can travel between processes."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()

    def counts(self) -> RoundCounts:
        """Returns the counts without times."""
        counted = RoundCounts()
        counted.add(self)
        return counted

    def resumed(self) -> CleanerStats:
        """Returns a copy that goes on counting from here, independent of this one."""
        again = CleanerStats(self.clock)
        again.add(self)
        again.started, again.map_completed = self.started, self.map_completed
        return again

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time spent inside the `with` block to a phase."""
        begin = self.clock.monotonic()
        try:
            yield
        finally:
            spent = self.clock.monotonic() - begin
            with self._lock:
                self.phases[name] = self.phases.get(name, 0.0) + spent

    def index_done(self) -> None:
        """Ends the indexing time."""
        self.map_completed = self.clock.monotonic()

    def all_done(self) -> None:
        """Ends the round's time."""
        self.ended = self.clock.monotonic()

    def _counter(self, slot: int) -> int:
        return int(self.counters[slot])

    @property
    def records_read(self) -> int:
        return self._counter(filter_slots.RECORDS_READ)

    @property
    def records_written(self) -> int:
        return self._counter(filter_slots.RECORDS_WRITTEN)

    @property
    def invalid_records(self) -> int:
        """Records without a key, which a compacted log cannot keep."""
        return self._counter(filter_slots.RECORDS_WITHOUT_KEY)

    @property
    def tombstones_kept(self) -> int:
        return self._counter(filter_slots.TOMBSTONES_KEPT)

    @property
    def index_seconds(self) -> float:
        return self.map_completed - self.started

    @property
    def clean_seconds(self) -> float:
        return self.ended - self.map_completed

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    def reasons(self) -> dict[str, int]:
        """Returns the numbers of records and batches kept and dropped, by reason, in a fixed order."""
        f = filter_slots
        kept = self.records_written - self.tombstones_kept - self._counter(f.CONTROL_RECORDS_KEPT)
        return {
            "records_kept": kept,
            "tombstones_kept": self.tombstones_kept,
            "control_records_kept": self._counter(f.CONTROL_RECORDS_KEPT),
            "records_superseded": self._counter(f.RECORDS_SUPERSEDED),
            "records_without_key": self.invalid_records,
            "tombstones_expired": self._counter(f.TOMBSTONES_EXPIRED),
            "records_discarded": self._counter(f.RECORDS_DISCARDED),
            "batches_discarded": self._counter(f.BATCHES_DISCARDED),
            "batches_verbatim": self._counter(f.BATCHES_VERBATIM),
            "batches_rebuilt": self._counter(f.BATCHES_REBUILT),
            "batches_emptied": self._counter(f.BATCHES_EMPTIED),
            "delete_horizons_set": self._counter(f.HORIZONS_SET),
        }


@dataclass(frozen=True)
class CleaningResult:
    """The outcome of a round, predicted (`dry_run`) or real.

    `segments_before` are (base offset, bytes) of the rewritten segments, `segments_after` the segments they became.
    `limit_reason` says why nothing past `end_offset` was cleaned.
    """

    topic_partition: TopicPartition
    dry_run: bool
    first_dirty_offset: int
    end_offset: int
    segments_before: tuple[tuple[int, int], ...]
    segments_after: tuple[SegmentSummary, ...]
    map_slots: int
    stats: CleanerStats
    limit_reason: str = ""

    @classmethod
    def of(
        cls, plan: RoundPlan, stats: CleanerStats, summaries: Sequence[SegmentSummary], *, dry_run: bool
    ) -> CleaningResult:
        return cls(
            topic_partition=plan.topic_partition,
            dry_run=dry_run,
            first_dirty_offset=plan.first_dirty_offset,
            end_offset=plan.end_offset,
            segments_before=tuple(zip(plan.source_bases, plan.sizes, strict=True)),
            segments_after=tuple(summaries),
            map_slots=plan.options.map_slots,
            stats=stats,
            limit_reason=plan.limit_reason,
        )

    @property
    def buffer_utilization(self) -> float:
        """The largest fill of the dedupe buffer, as a fraction of the entries that Kafka's map has in it."""
        return self.stats.most_map_entries / max(self.map_slots, 1)

    @property
    def bytes_written(self) -> int:
        """Bytes of the new `.log` files."""
        return sum(segment.size for segment in self.segments_after)

    def text(self, thread: int = 0) -> str:
        """Returns the exact block that a broker logs after a round (Kafka: LogCleaner.recordStats, specification
        §12.10). For a dry run it says what would have been done.
        """
        stats = self.stats
        read, written = stats.bytes_read / MEBIBYTE, stats.bytes_written / MEBIBYTE
        mapped, total = stats.map_bytes_read / MEBIBYTE, stats.seconds
        index, clean = stats.index_seconds, stats.clean_seconds
        rewrote = "Would have cleaned" if self.dry_run else "Cleaned"
        begin = rewrote if self.dry_run else f"Log cleaner thread {thread} cleaned"
        section = f"[{self.first_dirty_offset}, {self.end_offset}]"
        lines = [
            f"{begin} log {escaped(str(self.topic_partition))} (dirty section = {section})",
            f"{_number(read)} MB of log processed in {_number(total)} seconds ({_number(_ratio(read, total))} MB/sec).",
            f"Indexed {_number(mapped)} MB in {_plain(index)} seconds ({_number(_ratio(mapped, index))} Mb/sec,"
            f" {_plain(100 * _ratio(index, total))}% of total time)",
            f"Buffer utilization: {_plain(100 * self.buffer_utilization)}%",
            f"{rewrote} {_number(read)} MB in {_plain(clean)} seconds ({_number(_ratio(read, clean))} Mb/sec,"
            f" {_plain(100 * _ratio(clean, total))}% of total time)",
            f"Start size: {_number(read)} MB ({stats.records_read:,} messages)",
            f"End size: {_number(written)} MB ({stats.records_written:,} messages)",
            f"{_plain(100 * (1 - _ratio(stats.bytes_written, stats.bytes_read)))}% size reduction"
            f" ({_plain(100 * (1 - _ratio(stats.records_written, stats.records_read)))}% fewer messages)",
        ]
        return "\n" + "".join(f"\t{line}\n" for line in lines)

    def to_json(self) -> dict[str, Any]:
        """Returns the object of type `cleaning` in the command line's JSON."""
        stats = self.stats
        return {
            "type": "cleaning",
            "partition": str(self.topic_partition),
            "dry_run": self.dry_run,
            "first_dirty_offset": self.first_dirty_offset,
            "end_offset": self.end_offset,
            "index_passes": stats.index_passes,
            "map_slots": self.map_slots,
            "map_entries": stats.map_entries,
            "buffer_utilization": self.buffer_utilization,
            "bytes_read": stats.bytes_read,
            "bytes_unread": stats.bytes_unread,
            "bytes_written": stats.bytes_written,
            "records_read": stats.records_read,
            "records_written": stats.records_written,
            "batches_written": stats.batches_written,
            "tombstones_kept": stats.tombstones_kept,
            "reasons": stats.reasons(),
            "segments_before": [{"base_offset": base, "size": size} for base, size in self.segments_before],
            "segments_after": [{"base_offset": s.base_offset, "size": s.size} for s in self.segments_after],
            "index_seconds": stats.index_seconds,
            "clean_seconds": stats.clean_seconds,
            "phase_seconds": dict(stats.phases),
        }


def _ratio(part: float, whole: float) -> float:
    """Divides as Java divides doubles: x/0 is infinite, 0/0 is NaN."""
    if whole == 0:
        return math.nan if part == 0 else math.copysign(math.inf, part)
    return part / whole


def _number(value: float) -> str:
    return _plain(value) if not math.isfinite(value) else f"{value:,.1f}"


def _plain(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{value:.1f}"
