"""When to begin a new segment and when to flush (Kafka: LogSegment.shouldRoll, RollParams, UnifiedLog.flush).

Rolling happens on append only; there is no timer. A roll is decided per batch, for a whole run of batches at
once: `batches_before_roll` says how many of them the active segment still takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from seglog import layout


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
    """Which batches of a run, once the ones before them are written, come too long after the segment's
    first.
    """
    first_timestamp = state.first_timestamp if state.size > 0 else int(run["max_timestamp"][0])
    if first_timestamp >= 0:
        old: np.ndarray = run["max_timestamp"] - first_timestamp > limits.age_ms
        return old
    return np.full(len(run), now_ms - state.created_ms > limits.age_ms)


@dataclass(slots=True)
class FlushPolicy:
    """Counts what was appended since the last flush; `messages` and `interval_ms` are flush.messages and
    flush.ms.
    """

    messages: int
    interval_ms: int
    last_flush_ms: int

    def due(self, unflushed_messages: int, now_ms: int) -> bool:
        """Whether the log must be flushed now: enough messages, or long enough ago with something
        unflushed.
        """
        if unflushed_messages <= 0:
            return False
        return unflushed_messages >= self.messages or now_ms - self.last_flush_ms >= self.interval_ms

    def flushed(self, now_ms: int) -> None:
        """Notes a completed flush."""
        self.last_flush_ms = now_ms
