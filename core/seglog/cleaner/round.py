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
from seglog.cleaner.dirtiness import cleanable_offsets, round_down
from seglog.clock import Clock
from seglog.errors import ConfigError, RefusedError
from seglog.kafka_version import SPOKEN_FOR, KafkaVersion
from seglog.kernels import indexing
from seglog.log.indexes import AbortedTransaction, index_entries_for
from seglog.log.log import Log
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments, collect_aborted
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem

# Kafka: SkimpyOffsetMap.bytesPerEntry, an MD5 digest and an offset. The dedupe buffer is measured in these entries.
KAFKA_BYTES_PER_ENTRY = 24
DEFAULT_DEDUPE_BUFFER_BYTES = 134_217_728
DEFAULT_LOAD_FACTOR = 0.9
_KEEPS_BY_HIGH_WATERMARK = KafkaVersion(4, 4)
# Each chunk costs a tenth of a millisecond in Python, and a chunk should fit a core's cache. A round over 126 MB takes
# 131 ms of CPU with chunks of 1 MiB, 110 with 4 MiB, 120 with 8 MiB.
CHUNK_BYTES = 4 << 20
PACKED_CHUNK_BYTES = 1 << 20  # for compressed records, where a decompressed chunk is many times as large
# For one chunk of each thread together: more threads make chunks smaller, not memory larger.
_CHUNKS_BYTES = 9 << 20


class StrategyKind(IntEnum):
    """How the versions of a key compare. The values are those of the offset map kernel."""

    OFFSET = 0
    TIMESTAMP = 1
    HEADER = 2


@dataclass(frozen=True, slots=True)
class Strategy:
    """A compaction strategy. `header` names the header that holds the version."""

    kind: StrategyKind
    header: str = ""

    @classmethod
    def parse(cls, text: str) -> Strategy:
        """Parses `offset`, `timestamp` or `header:NAME`. Raises ConfigError for anything else."""
        name, colon, header = text.partition(":")
        if name == "header" and header:
            return cls(StrategyKind.HEADER, header)
        if not colon and name in ("offset", "timestamp"):
            return cls(StrategyKind[name.upper()])
        raise ConfigError(f"strategy: {text!r} is not offset, timestamp or header:NAME")

    def __str__(self) -> str:
        return f"header:{self.header}" if self.kind is StrategyKind.HEADER else self.kind.name.lower()


OFFSET = Strategy(StrategyKind.OFFSET)


@dataclass(frozen=True, slots=True)
class CleanerOptions:
    """Options of a round.

    `dedupe_buffer_bytes` and `load_factor` bound the keys of one index pass as they bound Kafka's map
    (log.cleaner.dedupe.buffer.size, log.cleaner.io.buffer.load.factor). `jobs` threads decompress, filter and
    compress. `roll` first rolls the active segment, so that it is cleaned too. `expire` removes tombstones and markers
    whose delete.retention.ms has ended, by their batch's own timestamp. `first_dirty_offset` and
    `first_uncleanable_offset` override the range that checkpoint, transactions and lag give. `most_log_bytes` bounds a
    `.log` that is written; the default is the largest that Kafka's positions allow. `kafka` is the Kafka whose files a
    round writes. Tests weaken the hash of keys with `hash_mask`.
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
    kafka: KafkaVersion = SPOKEN_FOR
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
        """The most keys of one index pass: the number at which Kafka calls its map full."""
        return int(self.map_slots * self.load_factor)

    @property
    def chunks_ahead(self) -> int:
        """Chunks in work at once when there are several threads."""
        return self.jobs + 2

    @property
    def most_chunk_bytes(self) -> int:
        """Size of the largest chunk for this number of threads."""
        return max(_CHUNKS_BYTES // self.jobs, 64 << 10)


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """The capacity of a segment: bytes of its `.log` (FileRecords counts them in 31 bits) and of each index
    (segment.index.bytes). Offsets relative to its base must also fit 31 bits."""

    log_bytes: int
    index_bytes: int
    index_interval_bytes: int

    def fitting(self, batches: np.ndarray, base_offset: int, size: int, state: np.ndarray) -> int:
        """Returns how many of `batches` (layout.BATCH, ascending), from the first on, a segment of `size` bytes takes.

        `state` is the segment's state of the index rule (`kernels.indexing`) and is not changed.
        """
        by_bytes = np.searchsorted(np.cumsum(batches["size"], dtype=np.int64), self.log_bytes - size, side="right")
        by_offset = np.searchsorted(batches["last_offset"] - base_offset, layout.INT32_MAX, side="right")
        count = int(min(by_bytes, by_offset))
        most_entries = max(int(state[indexing.OFFSET_ENTRIES]), int(state[indexing.TIME_ENTRIES])) + count
        if most_entries < self.index_bytes // layout.TIME_INDEX_ENTRY.itemsize:  # the larger entries
            return count
        return self._indexable(batches[:count], state.copy())

    def _indexable(self, batches: np.ndarray, state: np.ndarray) -> int:
        """Returns how many batches fit the indexes. Kafka's OffsetIndex.append and TimeIndex.maybeAppend refuse a full
        index, and a time index keeps room for a last entry.
        """
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

    Offsets are those of the last data batch. If none is known, the offset is -1, and control batches of the epoch count
    instead.
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
    """A round over [log start, `first_uncleanable_offset`); the part from `first_dirty_offset` on is dirty.

    `bases` are the base offsets of all segments of the log, and `high_watermark` is the log's. `groups` are the ranges
    of `bases` to rewrite, each of which becomes one or more segments, and `sizes` the bytes of the segments in them, in
    order. `limit_reason` says why the range ends where it does. `bounds` limit each segment that is written. Times are
    epoch milliseconds.
    """

    directory: Path
    topic_partition: TopicPartition
    bases: tuple[int, ...]
    groups: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    log_start_offset: int
    high_watermark: int
    now_ms: int
    delete_retention_ms: int
    legacy_horizon_ms: int
    bounds: SegmentBounds
    last_records: LastRecords
    options: CleanerOptions
    limit_reason: str

    @property
    def end_offset(self) -> int:
        """The next first dirty offset. One round always cleans the whole range."""
        return self.first_uncleanable_offset

    @property
    def kept_end_offset(self) -> int:
        """The offset at which a batch ends that stays even if it becomes empty, so that no restart loses the log end.

        Up to 4.3 it is the end of the range (KAFKA-17076), from 4.4 on the high watermark: above that end, unless
        nothing follows the range.
        """
        return self.high_watermark if self.options.kafka >= _KEEPS_BY_HIGH_WATERMARK else self.first_uncleanable_offset

    @property
    def new_horizon_ms(self) -> int:
        """The delete horizon that this round writes. Beyond 2^63-1 it wraps below 0, as Kafka's sum does, and counts as
        none: a tombstone that is never removed needs no horizon.
        """
        horizon_ms = self.now_ms + self.delete_retention_ms
        return horizon_ms if horizon_ms <= layout.INT64_MAX else horizon_ms - (1 << 64)

    @property
    def first_mapped_offset(self) -> int:
        """The offset where indexing begins. By offset, a dirty record always beats a clean one. Under other strategies
        either may win, so the clean section is indexed too."""
        if self.options.strategy.kind is StrategyKind.OFFSET:
            return self.first_dirty_offset
        return min(self.first_dirty_offset, self.bases[0])

    @property
    def always_kept_offset(self) -> int:
        """The offset of the last record of the range, which strategies other than offset must keep (KIP-280); -1 for
        none."""
        return -1 if self.options.strategy.kind is StrategyKind.OFFSET else self.first_uncleanable_offset - 1

    def end_of(self, segment: LogSegment) -> int:
        """Returns the base offset of the segment after a source segment."""
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
    """A plan with its segments open: those of a log, or their files in a Spark task."""

    plan: RoundPlan
    fs: FileSystem
    segments: tuple[LogSegment, ...]
    clock: Clock

    @property
    def options(self) -> CleanerOptions:
        """The plan's options."""
        return self.plan.options

    @cached_property
    def groups(self) -> tuple[tuple[LogSegment, ...], ...]:
        """The segments to rewrite, in their new groups."""
        return tuple(self.segments[begin:end] for begin, end in self.plan.groups)

    @cached_property
    def sources(self) -> tuple[LogSegment, ...]:
        """The segments to rewrite, in order."""
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
        """The segments with entries in their transaction indexes: few or none among thousands."""
        return tuple(segment for segment in self.segments if segment.transaction_index.entries)

    def aborted_from(self, segment: LogSegment, upper_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that a read of `segment` up to `upper_offset` must know (`collect_aborted`).

        They come from the transaction indexes of `segment` and those after it. Raises CorruptIndexError for an index
        that cannot be read.
        """
        first = bisect_left(self._aborting, segment.base_offset, key=lambda each: each.base_offset)
        return collect_aborted(self._aborting, first, self.plan.log_start_offset, upper_offset)

    @property
    def segments_before_dirty(self) -> tuple[LogSegment, ...]:
        """The segments that may hold records before the first mapped offset."""
        return tuple(segment for segment in self.sources if segment.base_offset < self.plan.first_mapped_offset)


def plan_round(log: Log, options: CleanerOptions, clock: Clock, checkpoint: int | None = None) -> RoundPlan:
    """Plans the round that is due for `log` now. Reads only indexes and headers.

    `checkpoint` is the partition's entry in cleaner-offset-checkpoint. With `options.roll` the plan counts the active
    segment as rolled; it must be rolled before the round runs. Raises RefusedError if it cannot be
    (`require_rollable`).
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
    # if the log start lies above every closed segment, retention deletes them, and a broker never cleans them
    is_gone = options.first_dirty_offset is None and log.log_start_offset >= upper
    sources = segments.between(0, upper) if upper > 0 and not is_gone else ()
    before = segments.between(0, first) if first > 0 else ()
    bases = tuple(segment.base_offset for segment in segments)
    numbers = {base: number for number, base in enumerate(bases)}
    groups = group_segments(sources, config.segment_bytes, config.segment_index_bytes, upper)
    return RoundPlan(
        directory=log.directory,
        topic_partition=log.topic_partition,
        bases=bases,
        groups=tuple((numbers[group[0].base_offset], numbers[group[-1].base_offset] + 1) for group in groups),
        sizes=tuple(segment.size for segment in sources),
        first_dirty_offset=first,
        first_uncleanable_offset=upper,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        legacy_horizon_ms=before[-1].modified_ms - config.delete_retention_ms if before else 0,
        bounds=SegmentBounds(options.most_log_bytes, config.segment_index_bytes, config.index_interval_bytes),
        last_records=LastRecords.of(log.producers),
        options=options,
        limit_reason=found.reason,
    )


def require_rollable(log: Log) -> None:
    """Raises RefusedError if the offsets of the active segment do not fit its place, so that it cannot be rolled.

    After a roll, offsets at or above the log end would be in a segment that ends below them, where no reader looks for
    them. If the log ends at or below the segment's base, no new segment can begin at its end.
    """
    active = log.segments.active
    if active.size and log.log_end_offset <= active.base_offset:
        raise RefusedError(
            f"{active.path}: its last batch ends at offset {log.log_end_offset - 1}, below the segment's name, so the"
            " segment cannot be rolled; run `seglog repair` first"
        )
    for chunk in active.scan():
        beyond = chunk.batches["last_offset"] >= log.log_end_offset
        if beyond.any():
            batch = chunk.batches[int(np.argmax(beyond))]
            raise RefusedError(
                f"{active.path}: position {int(batch['position'])}: the batch reaches offset"
                f" {int(batch['last_offset'])}, and the log ends at {log.log_end_offset - 1}: offsets do not ascend, so"
                " the segment cannot be rolled; run `seglog repair` first"
            )


def rolled_segments(log: Log) -> LogSegments:
    """Returns the segments as they will be once the active one is rolled, if it holds anything."""
    if not log.segments.active.size:
        return log.segments
    return LogSegments([*log.segments, LogSegment(log.fs, log.directory, log.log_end_offset)])


# --- the range, and the groups ---------------------------------------------------------------------------------


def group_segments(
    segments: Sequence[LogSegment], segment_bytes: int, index_bytes: int, first_uncleanable_offset: int
) -> tuple[tuple[LogSegment, ...], ...]:
    """Groups neighbouring segments that become one (Kafka: Cleaner.groupSegmentsBySize). Returns groups in order.

    The grouping is greedy from the left, by the sizes before cleaning. The next segment joins if the sum of the logs
    stays within `segment_bytes`, the sum of each kind of index within `index_bytes` (segment.index.bytes), and its last
    possible offset, relative to the group's base, within 31 bits. An empty segment always satisfies the last rule.
    `first_uncleanable_offset` bounds the last segment's offsets.

    The output of a group may still exceed a segment, because messages of magic 0 and 1 grow when they become batches.
    It then becomes several segments (`output.GroupOutput`), where Kafka's round fails.
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
