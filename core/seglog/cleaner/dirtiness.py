"""Which logs may be cleaned, how dirty one is, and which part of it a broker would clean now (Kafka: LogToClean,
LogCleanerManager).

Works on open logs and on outlines (`log.outline`): it asks for offsets, sizes and times only.
"""

from __future__ import annotations

from dataclasses import dataclass

from seglog.configuration.keys import COMPACT, LONG_MAX, LogConfig
from seglog.configuration.precedence import POLICY, ResolvedConfig
from seglog.log.outline import LogFacts
from seglog.log.segment_list import AnySegment, SegmentList
from seglog.model import TopicPartition
from seglog.units import rough_duration


@dataclass(frozen=True, slots=True)
class LogToClean:
    """How dirty a log is. Offsets are as in a round; sizes are bytes of `.log` files.

    A partly clean segment counts in both `clean_bytes` and `cleanable_bytes`, as in Kafka. `delay_ms` is the excess
    over max.compaction.lag.ms, or 0. `limit_reason` says why the dirty section ends where it does. `closed_bytes` is
    the size of the segments before the active one, whose base is `active_base_offset`. `log_start_offset` is the log's.
    """

    topic_partition: TopicPartition
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    min_cleanable_ratio: float
    delay_ms: int
    checkpoint_reset: bool
    limit_reason: str
    closed_bytes: int
    active_base_offset: int
    log_start_offset: int = 0

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """The dirty fraction of the bytes to clean; 0 for an empty log, which Kafka never asks about."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def place(self) -> tuple[float, TopicPartition]:
        """What logs are sorted by, the filthiest first."""
        return -self.cleanable_ratio, self.topic_partition

    @property
    def eligible(self) -> bool:
        """True if a broker's cleaner would take the log."""
        overdue = self.delay_ms > 0 and self.cleanable_bytes > 0
        return overdue or self.cleanable_ratio > self.min_cleanable_ratio

    @property
    def why(self) -> str:
        """The reason why the log is taken or not, in one clause."""
        ratio = f"{100 * self.cleanable_ratio:.1f}% of its bytes are dirty"
        if not self.closed_bytes:
            return "it holds nothing outside the active segment"
        if self.log_start_offset >= self.active_base_offset:
            return f"nothing is cleanable: {self.limit_reason}"
        if self.first_dirty_offset >= self.active_base_offset:
            return "nothing is cleanable: everything outside the active segment is clean"
        if not self.cleanable_bytes:
            return f"nothing is cleanable: {self.limit_reason}"
        if self.cleanable_ratio > self.min_cleanable_ratio:
            return f"{ratio}, more than min.cleanable.dirty.ratio {self.min_cleanable_ratio:g}"
        if self.eligible:
            return f"a record is {rough_duration(self.delay_ms)} over max.compaction.lag.ms"
        return f"{ratio}, not more than min.cleanable.dirty.ratio {self.min_cleanable_ratio:g}"


@dataclass(frozen=True, slots=True)
class CleanableOffsets:
    """The range [`first_dirty_offset`, `first_uncleanable_offset`) of a round.

    `checkpoint_reset` is True if the checkpoint was outside the log and must be rewritten. `reason` says why the range
    ends where it does; it is "" if the log ends there.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    checkpoint_reset: bool
    reason: str


def cleanable_offsets(
    log: LogFacts, segments: SegmentList[AnySegment], checkpoint: int | None, now_ms: int
) -> CleanableOffsets:
    """Returns the range that a broker would clean now if `log` had these segments. The end is not rounded yet."""
    first = log.log_start_offset if checkpoint is None else checkpoint
    reset = not log.log_start_offset <= first <= log.log_end_offset
    if reset:
        first = log.log_start_offset
    active = segments.active.base_offset
    is_last = active >= log.log_end_offset  # it is empty: nothing is left to clean
    limits = [(active, "" if is_last else f"the active segment begins at offset {active} and is not cleaned")]
    if log.last_stable_offset < active:
        limits.append((log.last_stable_offset, "a transaction is open (last stable offset)"))
    lag_ms = log.config.min_compaction_lag_ms
    for segment in segments.from_floor(first) if lag_ms > 0 else ():
        if segment is not segments.active and segment.largest_timestamp() > now_ms - lag_ms:
            limits.append((segment.base_offset, "younger than min.compaction.lag.ms"))
            break
    end, reason = min(limits)
    if active <= log.log_start_offset and end == active and active > segments.first.base_offset:
        reason = f"everything before the active segment lies below the log start offset {log.log_start_offset}"
    return CleanableOffsets(first, max(first, end), reset, reason)


def round_down(segments: SegmentList[AnySegment], offset: int) -> int:
    """Returns the base of the segment that holds `offset`, or of the first segment if all bases are above it."""
    return segments.from_floor(offset)[0].base_offset


def log_to_clean(
    log: LogFacts, checkpoint: int | None, now_ms: int, segments: SegmentList[AnySegment] | None = None
) -> LogToClean:
    """Computes how dirty `log` is at `now_ms`, or would be with other `segments`.

    Of an open log it reads only indexes and the first batches of dirty segments.
    """
    segments, config = log.segments if segments is None else segments, log.config
    found = cleanable_offsets(log, segments, checkpoint, now_ms)
    first, end = found.first_dirty_offset, round_down(segments, found.first_uncleanable_offset)
    return LogToClean(
        topic_partition=log.topic_partition,
        first_dirty_offset=first,
        first_uncleanable_offset=end,
        clean_bytes=sum(segment.size for segment in segments if segment.base_offset < first),
        cleanable_bytes=sum(segment.size for segment in segments.between(min(first, end), end)),
        min_cleanable_ratio=config.min_cleanable_dirty_ratio,
        delay_ms=_delay_ms(segments, config.max_compaction_lag_ms, first, now_ms),
        checkpoint_reset=found.checkpoint_reset,
        limit_reason=found.reason,
        closed_bytes=sum(segment.size for segment in segments if segment is not segments.active),
        active_base_offset=segments.active.base_offset,
        log_start_offset=log.log_start_offset,
    )


def changes_with_time(config: LogConfig) -> bool:
    """True if what `log_to_clean` says of a log can change with the time alone."""
    return config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms < LONG_MAX


def _delay_ms(segments: SegmentList[AnySegment], lag: int, first_dirty_offset: int, now_ms: int) -> int:
    """Returns by how much the oldest dirty record exceeds max.compaction.lag.ms, by its segment's first batch."""
    if lag >= LONG_MAX:
        return 0
    inactive = (s for s in segments.from_floor(first_dirty_offset) if s is not segments.active)
    stamps = [stamp for stamp in (segment.first_batch_timestamp() for segment in inactive) if stamp > 0]
    return max(0, now_ms - lag - min(stamps)) if stamps else 0


def unknown_policy(topic: str) -> str:
    """Returns the reason for not compacting a topic with an unknown policy."""
    return f"the cleanup policy of {topic} is not known, and compacting a topic that is not compacted loses records"


def policy_problem(resolved: ResolvedConfig, topic: str) -> str:
    """Returns the reason why a topic must not be compacted, or "" if it may be."""
    setting = resolved.settings[POLICY]
    if not resolved.policy_known:
        return (
            f"{unknown_policy(topic)}: state it with --policy compact or in a configuration file, or name the log"
            " directory that holds the cluster's metadata with --metadata-dir"
        )
    if COMPACT not in resolved.log.cleanup_policy:
        return f"{topic} is not compacted: its cleanup.policy is {setting.text or 'empty'} ({setting.origin})"
    return resolved.refusal(COMPACT)
