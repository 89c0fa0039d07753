"""The options of a cleaning round and its plan, fixed before its first byte is read.

Kafka: Cleaner.doClean, LogCleanerManager, LogToClean.

1. The first dirty offset comes from the checkpoint. It is the log start offset if there is no checkpoint, or if the
   checkpoint lies outside the log.
2. The range ends before the last stable offset, the active segment, and the first segment that is younger than
   min.compaction.lag.ms.
3. The end is rounded down to the base of a segment.
4. Neighbouring segments are grouped to become one, as long as the result is no larger than a segment may be
   (`group_segments`).

A `RoundPlan` holds all of this as plain values: a dry run counts its outcome, a run carries it out, and Spark sends it
to its tasks. A `CleaningRound` is the plan with open segments.

Strategies (KIP-280, which Kafka accepted and never shipped): `offset` keeps the record with the highest offset, as
Kafka does. `timestamp` and `header:NAME` keep the one with the highest timestamp, or the highest value of a header.
Ties go to the higher offset. A header value is a number of 8 bytes, big-endian and signed. If several headers have the
name, the last one counts. A record without such a value loses to one that has it. Under every strategy the record with
the last offset of the range stays.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.clock import Clock
from seglog.errors import ConfigError, RefusedError
from seglog.kernels import indexing
from seglog.log.indexes import AbortedTransaction, index_entries_for
from seglog.log.log import Log
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments, collect_aborted
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem

# Kafka: SkimpyOffsetMap.bytesPerEntry, an MD5 digest and an offset. Buffers are counted in these entries.
KAFKA_BYTES_PER_ENTRY = 24
DEFAULT_DEDUPE_BUFFER_BYTES = 134_217_728
DEFAULT_LOAD_FACTOR = 0.9
# What is done once a chunk is Python's, a tenth of a millisecond; what a chunk brings is better in a core's cache. Of
# 126 MB a round takes 131 ms of the CPU with chunks of 1 MiB, 110 with 4 MiB, 120 with 8 MiB.
CHUNK_BYTES = 4 << 20
PACKED_CHUNK_BYTES = 1 << 20  # where records are compressed, and a chunk opened is many times as large
# Of one chunk of each thread together: more threads make chunks smaller, not memory larger.
_CHUNKS_BYTES = 9 << 20


class StrategyKind(IntEnum):
    """How versions compare; the values are the offset map's."""

    OFFSET = 0
    TIMESTAMP = 1
    HEADER = 2


@dataclass(frozen=True, slots=True)
class Strategy:
    """A compaction strategy; `header` is the name of the header that holds the version."""

    kind: StrategyKind
    header: str = ""

    @classmethod
    def parse(cls, text: str) -> Strategy:
        """`offset`, `timestamp` or `header:NAME`; ConfigError for anything else."""
        name, colon, header = text.partition(":")
        if name == "header" and header:
            return cls(StrategyKind.HEADER, header)
        if not colon and name in ("offset", "timestamp"):
            return cls(StrategyKind[name.upper()])
        raise ConfigError(f"unknown compaction strategy {text!r}: offset, timestamp or header:NAME")

    def __str__(self) -> str:
        return f"header:{self.header}" if self.kind is StrategyKind.HEADER else self.kind.name.lower()


OFFSET = Strategy(StrategyKind.OFFSET)


@dataclass(frozen=True, slots=True)
class CleanerOptions:
    """Options of a round.

    `dedupe_buffer_bytes` and `load_factor` bound the keys of one index pass as they bound Kafka's map
    (log.cleaner.dedupe.buffer.size, log.cleaner.io.buffer.load.factor). `jobs` threads decompress, filter and
    compress. `roll` cleans the active segment too, rolling it first; `expire` removes tombstones and markers whose
    delete.retention.ms ended by their batch's own timestamp. `first_dirty_offset` and `first_uncleanable_offset`
    replace what checkpoint, transactions and lag say. `most_log_bytes` bounds a `.log` that is written; that of Kafka's
    positions is the largest. `hash_mask` weakens the hash of keys, for tests alone.
    """

    dedupe_buffer_bytes: int = DEFAULT_DEDUPE_BUFFER_BYTES
    load_factor: float = DEFAULT_LOAD_FACTOR
    strategy: Strategy = field(default=OFFSET)
    roll: bool = False
    expire: bool = False
    first_dirty_offset: int | None = None
    first_uncleanable_offset: int | None = None
    jobs: int = 1
    chunk_bytes: int = CHUNK_BYTES
    most_log_bytes: int = layout.INT32_MAX
    hash_mask: int = -1

    def __post_init__(self) -> None:
        if self.entry_limit < 2:
            raise ConfigError(
                f"a dedupe buffer of {self.dedupe_buffer_bytes} bytes with load factor {self.load_factor} holds"
                f" {max(self.entry_limit, 0)} keys; at least 2 are needed"
            )
        if self.jobs < 1:
            raise ConfigError(f"the cleaner needs at least one thread, not {self.jobs}")

    @property
    def map_slots(self) -> int:
        """Entries of Kafka's map in a buffer of this size."""
        return self.dedupe_buffer_bytes // KAFKA_BYTES_PER_ENTRY

    @property
    def entry_limit(self) -> int:
        """Most keys of one index pass: those after which Kafka calls its map full."""
        return int(self.map_slots * self.load_factor)

    @property
    def chunks_ahead(self) -> int:
        """Chunks that are worked on at once, where there are several threads."""
        return self.jobs + 2

    @property
    def most_chunk_bytes(self) -> int:
        """Largest chunk for so many threads."""
        return max(_CHUNKS_BYTES // self.jobs, 64 << 10)


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


# --- the plan


@dataclass(frozen=True)
class LastRecords:
    """The last batch of every active producer, by ascending id (Kafka: lastRecordsOfActiveProducers).

    Offset of the last data batch, -1 where none is known: then control batches of the epoch count.
    """

    producer_ids: np.ndarray
    offsets: np.ndarray
    epochs: np.ndarray

    @classmethod
    def of(cls, producers: ProducerStateManager) -> LastRecords:
        found = sorted((p.producer_id, p.last_data_offset, p.epoch) for p in producers.producers.values())
        table = np.array(found, dtype=np.int64).reshape(-1, 3)
        return cls(*(np.ascontiguousarray(table[:, column]) for column in range(3)))


@dataclass(frozen=True)
class RoundPlan:
    """A round over [log start, `first_uncleanable_offset`) of which the part from `first_dirty_offset` on is dirty.

    `bases` are the base offsets of all segments of the log, `groups` the ranges of them to rewrite, each of which
    becomes one segment or more, and `sizes` the bytes of those, in order. `limit_reason` says why the range ends where
    it does; `bounds` are those of each segment written. Times are epoch milliseconds.
    """

    directory: Path
    topic_partition: TopicPartition
    bases: tuple[int, ...]
    groups: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    log_start_offset: int
    now_ms: int
    delete_retention_ms: int
    legacy_horizon_ms: int
    bounds: SegmentBounds
    last_records: LastRecords
    options: CleanerOptions
    limit_reason: str

    @property
    def end_offset(self) -> int:
        """The next first dirty offset: the whole range is cleaned in one round."""
        return self.first_uncleanable_offset

    @property
    def new_horizon_ms(self) -> int:
        """The delete horizon that this round writes. Past 2^63-1 it comes out below 0, which is none: Kafka's sum
        wraps, and a tombstone that nothing will ever let go needs no horizon.
        """
        horizon_ms = self.now_ms + self.delete_retention_ms
        return horizon_ms if horizon_ms <= layout.INT64_MAX else horizon_ms - (1 << 64)

    @property
    def first_mapped_offset(self) -> int:
        """Where indexing begins. By offset, a dirty record always beats a clean one; otherwise either may win, so
        the clean section is indexed too."""
        if self.options.strategy.kind is StrategyKind.OFFSET:
            return self.first_dirty_offset
        return min(self.first_dirty_offset, self.bases[0])

    @property
    def always_kept_offset(self) -> int:
        """KIP-280: the last record of the range stays under strategies that would let it go; -1 for none."""
        return -1 if self.options.strategy.kind is StrategyKind.OFFSET else self.first_uncleanable_offset - 1

    def end_of(self, segment: LogSegment) -> int:
        """The base offset of the segment after a source."""
        return self.bases[bisect_right(self.bases, segment.base_offset)]

    @property
    def source_bases(self) -> tuple[int, ...]:
        """Base offsets of the segments that are rewritten, in order."""
        return tuple(base for begin, end in self.groups for base in self.bases[begin:end])

    @property
    def source_bytes(self) -> int:
        """Bytes of the segments that are rewritten."""
        return sum(self.sizes)


@dataclass(frozen=True)
class CleaningRound:
    """A plan with the segments open that it names: a log's own, or its files in a task."""

    plan: RoundPlan
    fs: FileSystem
    segments: tuple[LogSegment, ...]
    clock: Clock

    @property
    def options(self) -> CleanerOptions:
        return self.plan.options

    @cached_property
    def groups(self) -> tuple[tuple[LogSegment, ...], ...]:
        """The segments to rewrite, in their new arrangement."""
        return tuple(self.segments[begin:end] for begin, end in self.plan.groups)

    @cached_property
    def sources(self) -> tuple[LogSegment, ...]:
        """The segments that are rewritten, in order."""
        return tuple(segment for group in self.groups for segment in group)

    @cached_property
    def dirty_segments(self) -> tuple[LogSegment, ...]:
        """The segments to index."""
        plan = self.plan
        if plan.first_mapped_offset >= plan.first_uncleanable_offset:
            return ()
        return LogSegments(self.segments).between(plan.first_mapped_offset, plan.first_uncleanable_offset)

    @cached_property
    def _aborting(self) -> tuple[LogSegment, ...]:
        """The segments with entries in their transaction indexes: few, or none, of thousands."""
        return tuple(segment for segment in self.segments if segment.transaction_index.entries)

    def aborted_from(self, segment: LogSegment, upper_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that a read up to `upper_offset` must know of, from the indexes of `segment` and those
        after it (`collect_aborted`). CorruptIndexError for an index that cannot be read.
        """
        first = bisect_left(self._aborting, segment.base_offset, key=lambda each: each.base_offset)
        return collect_aborted(self._aborting, first, self.plan.log_start_offset, upper_offset)

    @property
    def segments_before_dirty(self) -> tuple[LogSegment, ...]:
        """The segments that may hold records in front of the first mapped offset."""
        return tuple(segment for segment in self.sources if segment.base_offset < self.plan.first_mapped_offset)


def plan_round(log: Log, options: CleanerOptions, clock: Clock, checkpoint: int | None = None) -> RoundPlan:
    """The round that is due for `log` now; reads indexes and headers only.

    `checkpoint` is the partition's entry in cleaner-offset-checkpoint. With `options.roll` the active segment counts
    as rolled: before the round is run, it must be. RefusedError when it cannot be (`require_rollable`).
    """
    now_ms = clock.now_ms()
    config = log.config
    if options.roll:
        require_rollable(log)
    segments = rolled_segments(log) if options.roll else log.segments
    found = cleanable_offsets(log, segments, checkpoint, now_ms)
    first = found.first_dirty_offset if options.first_dirty_offset is None else options.first_dirty_offset
    limit = found.first_uncleanable_offset
    if options.first_uncleanable_offset is not None:
        limit = options.first_uncleanable_offset
    upper = round_down(segments, max(first, limit))
    sources = segments.between(0, upper) if upper > 0 else ()
    before = segments.between(0, first) if first > 0 else ()
    bases = tuple(segment.base_offset for segment in segments)
    return RoundPlan(
        directory=log.directory,
        topic_partition=log.topic_partition,
        bases=bases,
        groups=_ranges(bases, group_segments(sources, config.segment_bytes, config.segment_index_bytes, upper)),
        sizes=tuple(segment.size for segment in sources),
        first_dirty_offset=first,
        first_uncleanable_offset=upper,
        log_start_offset=log.log_start_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        legacy_horizon_ms=before[-1].modified_ms - config.delete_retention_ms if before else 0,
        bounds=SegmentBounds(options.most_log_bytes, config.segment_index_bytes, config.index_interval_bytes),
        last_records=LastRecords.of(log.producers),
        options=options,
        limit_reason=found.reason,
    )


def _ranges(bases: tuple[int, ...], groups: Sequence[Sequence[LogSegment]]) -> tuple[tuple[int, int], ...]:
    numbers = {base: number for number, base in enumerate(bases)}
    return tuple((numbers[group[0].base_offset], numbers[group[-1].base_offset] + 1) for group in groups)


def require_rollable(log: Log) -> None:
    """RefusedError when the active segment's offsets do not belong where it lies.

    Offsets at or above the log end would lie, once it is rolled, in a segment that ends below them, where no reader
    looks for them. When the log ends at or below the segment's base, no segment can begin there.
    """
    active = log.segments.active
    if active.size and log.log_end_offset <= active.base_offset:
        raise RefusedError(
            f"{active.path}: its last batch ends at offset {log.log_end_offset - 1}, below the segment's name, so the"
            " segment cannot be rolled; run `seglog verify --repair` first"
        )
    for chunk in active.scan():
        beyond = chunk.batches["last_offset"] >= log.log_end_offset
        if beyond.any():
            batch = chunk.batches[int(np.argmax(beyond))]
            raise RefusedError(
                f"{active.path}: position {int(batch['position'])}: the batch reaches offset"
                f" {int(batch['last_offset'])}, and the log ends at {log.log_end_offset - 1}: offsets do not ascend, so"
                " the segment cannot be rolled; run `seglog verify --repair` first"
            )


def rolled_segments(log: Log) -> LogSegments:
    """The segments as they will be when the active one, if it holds anything, is rolled."""
    if not log.segments.active.size:
        return log.segments
    return LogSegments([*log.segments, LogSegment(log.fs, log.directory, log.log_end_offset)])


# --- the range, and the groups ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CleanableOffsets:
    """The range [`first_dirty_offset`, `first_uncleanable_offset`) of a round.

    `checkpoint_reset` says that the checkpoint was outside the log and is to be rewritten; `reason` why the range
    ends where it does, "" where the log does.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    checkpoint_reset: bool
    reason: str


def cleanable_offsets(log: Log, segments: LogSegments, checkpoint: int | None, now_ms: int) -> CleanableOffsets:
    """The range that a broker would clean now, where `log` has these segments; the end is not rounded yet."""
    first = log.log_start_offset if checkpoint is None else checkpoint
    reset = not log.log_start_offset <= first <= log.log_end_offset
    if reset:
        first = log.log_start_offset
    active = segments.active.base_offset
    is_last = active >= log.log_end_offset  # it is empty: nothing is left to be cleaned
    limits = [(active, "" if is_last else f"the active segment begins at offset {active} and is not cleaned")]
    if log.last_stable_offset < active:
        limits.append((log.last_stable_offset, "a transaction is open (last stable offset)"))
    young = _first_young(segments, first, log.config.min_compaction_lag_ms, now_ms)
    if young is not None:
        limits.append((young.base_offset, "younger than min.compaction.lag.ms"))
    end, reason = min(limits)
    return CleanableOffsets(first, max(first, end), reset, reason)


def _first_young(segments: LogSegments, first: int, lag_ms: int, now_ms: int) -> LogSegment | None:
    if lag_ms <= 0:
        return None
    inactive = (s for s in segments.from_floor(first) if s is not segments.active)
    return next((s for s in inactive if s.largest_timestamp() > now_ms - lag_ms), None)


def round_down(segments: LogSegments, offset: int) -> int:
    """The base of the first inactive segment at or after the floor of `offset`, else the active segment's base."""
    for segment in segments.from_floor(offset):
        if segment is not segments.active:
            return segment.base_offset
    return segments.active.base_offset


def group_segments(
    segments: Sequence[LogSegment], segment_bytes: int, index_bytes: int, first_uncleanable_offset: int
) -> tuple[tuple[LogSegment, ...], ...]:
    """Which neighbouring segments become one (Kafka: Cleaner.groupSegmentsBySize): groups of `segments`, in order.

    Greedy from the left, by the sizes before cleaning. The next segment joins when the sum of the logs stays within
    `segment_bytes`, the sum of each kind of index within `index_bytes`, and its last possible offset, relative to the
    group's base, within 31 bits; an empty segment always fits the last rule. What a group leaves may still be larger
    than a segment can be, as messages of magic 0 and 1 grow when they become batches; it then becomes several segments
    (`output.GroupOutput`). Kafka's round fails there.

    `index_bytes` is segment.index.bytes; `first_uncleanable_offset` bounds the last segment's offsets.
    """
    groups: list[list[LogSegment]] = []
    log_bytes = offset_bytes = time_bytes = 0
    for i, segment in enumerate(segments):
        log_bytes += segment.size
        offset_bytes += segment.offset_index.size
        time_bytes += segment.closed_time_index_size
        next_base = segments[i + 1].base_offset if i + 1 < len(segments) else first_uncleanable_offset
        fits = (
            bool(groups)
            and log_bytes <= segment_bytes
            and offset_bytes <= index_bytes
            and time_bytes <= index_bytes
            and (segment.size == 0 or next_base - 1 - groups[-1][0].base_offset <= layout.INT32_MAX)
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log_bytes, offset_bytes = segment.size, segment.offset_index.size
            time_bytes = segment.closed_time_index_size
    return tuple(tuple(group) for group in groups)
