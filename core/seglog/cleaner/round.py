"""What one round works on, fixed before its first byte is read (Kafka: Cleaner.doClean, LogToClean)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from seglog import layout
from seglog.cleaner.cleanable import cleanable_offsets, round_down
from seglog.cleaner.grouping import SegmentBounds, group_segments
from seglog.cleaner.options import CleanerOptions
from seglog.cleaner.strategy import StrategyKind
from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.errors import RefusedError
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem

_PEEK_BYTES = 4096


class CleanableLog(Protocol):
    """What a round asks of `seglog.log.log.Log`."""

    @property
    def directory(self) -> Path: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def fs(self) -> FileSystem: ...
    @property
    def segments(self) -> LogSegments: ...
    @property
    def producers(self) -> ProducerStateManager: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...


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
class CleaningRound:
    """A round over [log start, `first_uncleanable_offset`) of which the part from `first_dirty_offset` on is dirty.

    `segments` are all of the log, `groups` those to rewrite, in their new arrangement. `limit_reason` says why the
    range ends where it does; `bounds` are those of each segment written. Times are epoch milliseconds.
    """

    fs: FileSystem
    directory: Path
    topic_partition: TopicPartition
    segments: tuple[LogSegment, ...]
    groups: tuple[tuple[LogSegment, ...], ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    log_start_offset: int
    now_ms: int
    delete_retention_ms: int
    legacy_horizon_ms: int
    bounds: SegmentBounds
    last_records: LastRecords
    options: CleanerOptions
    clock: Clock
    limit_reason: str = ""
    checkpoint_reset: bool = False

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
        return min(self.first_dirty_offset, self.segments[0].base_offset)

    @property
    def always_kept_offset(self) -> int:
        """KIP-280: the last record of the range stays under strategies that would let it go; -1 for none."""
        return -1 if self.options.strategy.kind is StrategyKind.OFFSET else self.first_uncleanable_offset - 1

    @cached_property
    def sources(self) -> tuple[LogSegment, ...]:
        """The segments that are rewritten, in order."""
        return tuple(segment for group in self.groups for segment in group)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Their bytes, as they were when the round was prepared."""
        return tuple(segment.size for segment in self.sources)

    @cached_property
    def dirty_segments(self) -> tuple[LogSegment, ...]:
        """The segments to index."""
        if self.first_mapped_offset >= self.first_uncleanable_offset:
            return ()
        return LogSegments(self.segments).between(self.first_mapped_offset, self.first_uncleanable_offset)

    def start_position(self, segment: LogSegment) -> int:
        """Where in a dirty segment the batches begin that reach the first mapped offset.

        The offset index's word counts only if a batch starts there that does not begin behind the offset.
        """
        offset = self.first_mapped_offset
        position = segment.offset_index.lookup(offset)[1] if offset > segment.base_offset else 0
        if not 0 < position < segment.size:
            return 0
        for chunk in segment.scan(position, chunk_bytes=_PEEK_BYTES):
            base_offset, magic = int(chunk.batches[0]["base_offset"]), int(chunk.batches[0]["magic"])
            return position if magic in (0, 1, 2) and segment.base_offset <= base_offset <= offset else 0
        return 0

    @property
    def segments_before_dirty(self) -> tuple[LogSegment, ...]:
        """The segments that may hold records in front of the first mapped offset."""
        return tuple(segment for segment in self.sources if segment.base_offset < self.first_mapped_offset)

    @property
    def source_bytes(self) -> int:
        """Bytes of the segments that are rewritten."""
        return sum(self.sizes)

    @property
    def dirty_bytes(self) -> int:
        """Bytes of the segments to index."""
        return sum(segment.size for segment in self.dirty_segments)


def prepare_round(
    log: CleanableLog, options: CleanerOptions, clock: Clock, checkpoint: int | None = None
) -> CleaningRound:
    """The round that is due for `log` now; reads indexes and headers only.

    `checkpoint` is the partition's entry in cleaner-offset-checkpoint. With `options.roll` the active segment counts
    as rolled: before the round is run, it must be. RefusedError when it cannot be (`require_rollable`).
    """
    now_ms = clock.now_ms()
    config = log.config
    if options.roll:
        require_rollable(log)
    segments = rolled_segments(log) if options.roll else log.segments
    found = cleanable_offsets(
        segments,
        checkpoint=checkpoint,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        now_ms=now_ms,
    )
    first = found.first_dirty_offset if options.first_dirty_offset is None else options.first_dirty_offset
    limit = found.first_uncleanable_offset
    if options.first_uncleanable_offset is not None:
        limit = options.first_uncleanable_offset
    upper = round_down(segments, max(first, limit))
    sources = segments.between(0, upper) if upper > 0 else ()
    before = segments.between(0, first) if first > 0 else ()
    horizon = before[-1].modified_ms - config.delete_retention_ms if before else 0
    groups = group_segments(sources, config.segment_bytes, config.segment_index_bytes, upper)
    return CleaningRound(
        fs=log.fs,
        directory=log.directory,
        topic_partition=log.topic_partition,
        segments=segments.snapshot(),
        groups=groups,
        first_dirty_offset=first,
        first_uncleanable_offset=upper,
        log_start_offset=log.log_start_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        legacy_horizon_ms=horizon,
        bounds=SegmentBounds(options.most_log_bytes, config.segment_index_bytes, config.index_interval_bytes),
        last_records=LastRecords.of(log.producers),
        options=options,
        clock=clock,
        limit_reason=found.reason,
        checkpoint_reset=found.checkpoint_reset,
    )


def require_rollable(log: CleanableLog) -> None:
    """RefusedError when the active segment holds offsets at or above the log end, as it does not ascend.

    Rolled, they would lie in a segment that ends below them, where no reader looks for them.
    """
    active = log.segments.active
    for chunk in active.scan():
        beyond = chunk.batches["last_offset"] >= log.log_end_offset
        if beyond.any():
            batch = chunk.batches[int(np.argmax(beyond))]
            raise RefusedError(
                f"{active.path}: position {int(batch['position'])}: the batch reaches offset"
                f" {int(batch['last_offset'])}, and the log ends at {log.log_end_offset - 1}: offsets do not ascend, so"
                " the segment cannot be rolled; run `seglog verify --repair` first"
            )


def rolled_segments(log: CleanableLog) -> LogSegments:
    """The segments as they will be when the active one, if it holds anything, is rolled."""
    if not log.segments.active.size:
        return log.segments
    return LogSegments([*log.segments, LogSegment(log.fs, log.directory, log.log_end_offset)])
