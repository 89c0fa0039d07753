"""The active segment: how much more it takes, writing to it, and rolling to the next.

Kafka: LocalLog, UnifiedLog.roll, LogSegment.shouldRoll, RollParams, UnifiedLog.flush.

1. `room`: how many batches fit before one of them must begin a new segment (`batches_before_roll`). A roll is decided
   per batch, for a whole run of batches at once, and on append only; there is no timer.
2. `write_run`: producers, leader epochs, the segment's files, aborted transactions, and last what readers
   see.
3. `roll_to`: the old segment gets its last time entry and trimmed indexes, the producers a snapshot at the
   new base offset; the new segment's files are made; everything below is flushed, so that recovery starts
   here.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

import numpy as np

from seglog import layout
from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.errors import RefusedError, SeglogError
from seglog.log.leader_epochs import LeaderEpochCache
from seglog.log.producer_state import CompletedTransaction, ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments
from seglog.storage.filesystem import FileSystem


class WritableLog(Protocol):
    """What the append path asks of a log (`seglog.log.log.Log`): its parts, its offsets, and making a change known."""

    directory_changed: bool

    @property
    def directory(self) -> Path: ...
    @property
    def fs(self) -> FileSystem: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def segments(self) -> LogSegments: ...
    @property
    def producers(self) -> ProducerStateManager: ...
    @property
    def leader_epochs(self) -> LeaderEpochCache: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def recovery_point(self) -> int: ...
    def publish(self, start: int, end: int, high_watermark: int) -> None: ...
    def flush_below(self, offset: int) -> None: ...
    def flush_if_due(self, now_ms: int) -> bool: ...
    def fail(self, error: Exception) -> None: ...


class _Tried(Exception):
    """A trial is over."""


class SegmentWriter:
    """Writes to the active segment of one log; the log's lock is held by the caller."""

    def __init__(self, log: WritableLog) -> None:
        self._log = log
        self._first_timestamp: int | None = None
        self._jitter_ms = self._drawn_jitter()

    def forget_segment(self) -> None:
        """Tells that another segment became active, or that the active one was cut."""
        self._first_timestamp, self._jitter_ms = None, self._drawn_jitter()

    def room(self, batches: np.ndarray, now_ms: int) -> int:
        """How many of `batches` (layout.BATCH) the active segment takes before it must roll; for the appender."""
        log, config = self._log, self._log.config
        active = log.segments.active
        if self._first_timestamp is None and active.size:
            self._first_timestamp = active.first_batch_timestamp()
        room = min(
            config.segment_index_bytes // layout.OFFSET_INDEX_ENTRY.itemsize - active.offset_index.entries,
            config.segment_index_bytes // layout.TIME_INDEX_ENTRY.itemsize - 1 - active.time_index.entries,
        )
        first_timestamp = -1 if self._first_timestamp is None else self._first_timestamp
        state = SegmentState(active.base_offset, active.size, first_timestamp, active.created_ms, room)
        age_ms = config.segment_ms
        if config.compact and config.max_compaction_lag_ms > 0:
            age_ms = min(age_ms, config.max_compaction_lag_ms)
        return batches_before_roll(state, RollLimits(config.segment_bytes, age_ms - self._jitter_ms), batches, now_ms)

    def write_run(self, data: np.ndarray, batches: np.ndarray, position: int, replicated: bool) -> None:
        """Writes batches to the active segment and takes them into account.

        `position` is that of `data[0]` in the coordinates of `batches`. Readers see the batches at the end;
        `replicated` lets the high watermark follow.
        """
        log = self._log
        segment = log.segments.active
        # Kafka notes the last stable offset at the end of the append, which may be after a transaction that the same
        # producer began meanwhile and aborts later: readers up to there would not be told of that one.
        completed: list[tuple[CompletedTransaction, int]] = []
        # producers first: a batch that contradicts an open transaction is refused before anything is changed
        with log.producers.unchanged_on_error(batches):
            log.producers.replay(data, batches, position, segment.path, lambda *ended: completed.append(ended))
        log.leader_epochs.assign_appended(batches)
        try:
            segment.append(batches, data)
            for transaction, last_stable_offset in completed:
                segment.append_aborted(transaction, last_stable_offset)
        except SeglogError as error:
            log.fail(error)
            raise
        end = int(batches["last_offset"][-1]) + 1
        log.publish(log.log_start_offset, end, end if replicated else log.high_watermark)

    def check_producers(self, data: np.ndarray, batches: np.ndarray) -> None:
        """Raises what `write_run` would raise over producers and their transactions, before a roll for these batches;
        `data[0]` has position 0.
        """
        producers = self._log.producers
        with contextlib.suppress(_Tried), producers.unchanged_on_error(batches):
            producers.replay(data, batches, 0, self._log.segments.active.path)
            raise _Tried

    def roll_to(self, base_offset: int) -> LogSegment:
        """Begins a segment at `base_offset`; what is below is flushed. RefusedError when one is there already."""
        log = self._log
        active = log.segments.active
        if base_offset < active.base_offset or (base_offset == active.base_offset and active.size):
            raise RefusedError(f"{log.directory}: the active segment begins at offset {active.base_offset} already")
        if base_offset == active.base_offset:
            log.flush_below(base_offset)
            return active
        active.on_become_inactive()
        # before the next segment exists: a power cut must not leave that one after a shortened predecessor
        log.flush_below(base_offset)
        active.close_files()  # a log may have more segments than a process descriptors
        log.producers.end_offset = base_offset
        log.producers.take_snapshot()
        created = LogSegment.create(
            log.fs,
            log.directory,
            base_offset,
            index_interval_bytes=log.config.index_interval_bytes,
            created_ms=log.clock.now_ms(),
        )
        log.directory_changed = True
        log.segments.add(created)
        self.forget_segment()
        log.publish(log.log_start_offset, log.log_end_offset, log.high_watermark)
        return created

    def _drawn_jitter(self) -> int:
        most = min(self._log.config.segment_jitter_ms, self._log.config.segment_ms)
        return random.randrange(most) if most > 0 else 0


class RollReason(Enum):
    """Why the active segment takes no more."""

    SIZE = "segment.bytes would be exceeded"
    AGE = "segment.ms has passed"
    INDEX_FULL = "an index is full"
    OFFSET_OVERFLOW = "the offset does not fit the segment"


@dataclass(frozen=True, slots=True)
class RollLimits:
    """What the configuration allows one segment. Sizes in bytes, ages in milliseconds.

    `age_ms` is segment.ms less this segment's jitter; in a compacted topic not above max.compaction.lag.ms.
    """

    segment_bytes: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class SegmentState:
    """The active segment as rolling sees it.

    `first_timestamp` is the max timestamp of its first batch, negative when it has none; `created_ms` when
    it was opened; `index_room` the entries that both indexes still take (the time index keeps one back).
    """

    base_offset: int
    size: int
    first_timestamp: int
    created_ms: int
    index_room: int


def roll_reason(
    state: SegmentState, limits: RollLimits, size: int, last_offset: int, max_timestamp: int, now_ms: int
) -> RollReason | None:
    """Whether a batch of `size` bytes needs a new segment (specification §8, in Kafka's order)."""
    if state.size > limits.segment_bytes - size:
        return RollReason.SIZE
    if state.size > 0 and _waited_ms(state, max_timestamp, now_ms) > limits.age_ms:
        return RollReason.AGE
    if state.index_room <= 0:
        return RollReason.INDEX_FULL
    if not 0 <= last_offset - state.base_offset <= layout.INT32_MAX:
        return RollReason.OFFSET_OVERFLOW
    return None


def _waited_ms(state: SegmentState, max_timestamp: int, now_ms: int) -> int:
    if state.first_timestamp >= 0:
        return max_timestamp - state.first_timestamp
    return now_ms - state.created_ms


def batches_before_roll(state: SegmentState, limits: RollLimits, batches: np.ndarray, now_ms: int) -> int:
    """How many of `batches` (layout.BATCH, in order) the segment takes before one of them must roll it.

    Equal to asking `roll_reason` for one batch after the other. 0 means: roll before the first.
    """
    if len(batches) == 0:
        return 0
    first = batches[0]
    reason = roll_reason(
        state, limits, int(first["size"]), int(first["last_offset"]), int(first["max_timestamp"]), now_ms
    )
    if reason is not None:
        return 0
    # every batch adds at most one entry to an index, so within the room no index fills up
    run = batches[: state.index_room]
    stops = state.size + np.cumsum(run["size"], dtype=np.int64) > limits.segment_bytes
    stops |= run["last_offset"] - state.base_offset > layout.INT32_MAX
    stops |= _too_old(state, limits, run, now_ms)
    stops[0] = False
    return int(np.argmax(stops)) if stops.any() else len(run)


def _too_old(state: SegmentState, limits: RollLimits, run: np.ndarray, now_ms: int) -> np.ndarray:
    """Which batches of a run, once the ones before them are written, come too long after the segment's first."""
    first_timestamp = state.first_timestamp if state.size > 0 else int(run["max_timestamp"][0])
    if first_timestamp >= 0:
        old: np.ndarray = run["max_timestamp"] - first_timestamp > limits.age_ms
        return old
    return np.full(len(run), now_ms - state.created_ms > limits.age_ms)
