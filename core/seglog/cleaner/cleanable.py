"""Where the dirty section of a log begins, and how far it may be cleaned (Kafka: LogCleanerManager.cleanableOffsets).

1. The first dirty offset is the checkpoint's, or the log start offset when there is none, or when the checkpoint lies
   outside the log.
2. Nothing is cleaned from the last stable offset on, in the active segment, or from the first segment on that is
   younger than min.compaction.lag.ms.
3. The end is rounded down to the base of a segment (LogToClean).
"""

from __future__ import annotations

from dataclasses import dataclass

from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments


@dataclass(frozen=True, slots=True)
class CleanableOffsets:
    """The range [`first_dirty_offset`, `first_uncleanable_offset`) of a round.

    `checkpoint_reset` says that the checkpoint was outside the log and is to be rewritten; `reason` why the range
    ends where it does.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    checkpoint_reset: bool = False
    reason: str = ""


def cleanable_offsets(
    segments: LogSegments,
    *,
    checkpoint: int | None,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    min_compaction_lag_ms: int,
    now_ms: int,
) -> CleanableOffsets:
    """The range that a broker would clean now; the end is not rounded yet."""
    first = log_start_offset if checkpoint is None else checkpoint
    reset = not log_start_offset <= first <= log_end_offset
    if reset:
        first = log_start_offset
    active = segments.active.base_offset
    limits = [(active, f"the active segment begins at offset {active} and is not cleaned")]
    if last_stable_offset < active:
        limits.append((last_stable_offset, "a transaction is open (last stable offset)"))
    young = _first_young(segments, first, min_compaction_lag_ms, now_ms)
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
    """The base of the first inactive segment at or behind the floor of `offset`, else the active segment's base."""
    for segment in segments.from_floor(offset):
        if segment is not segments.active:
            return segment.base_offset
    return segments.active.base_offset
