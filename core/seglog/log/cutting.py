"""Truncating a log to an offset or a time: the plan, and applying it (Kafka: UnifiedLog.truncateTo)."""

from __future__ import annotations

from dataclasses import dataclass

from seglog.errors import OffsetOutOfRangeError
from seglog.log.log import Log
from seglog.log.lookup import LATEST
from seglog.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Cut:
    """A truncation. The log ends at `offset` then, or where it ended before when that is less.

    A batch that holds `offset` goes as a whole. `segments` are the base offsets of the segments that go
    entirely, `bytes` what goes in all.
    """

    topic_partition: TopicPartition
    offset: int
    end_before: int
    segments: tuple[int, ...]
    bytes: int

    @property
    def empty(self) -> bool:
        """Whether nothing goes."""
        return self.offset >= self.end_before

    def apply(self, log: Log) -> None:
        """Carries it out; the log must be open for writing."""
        if not self.empty:
            log.truncate_to(self.offset)


def plan_cut(log: Log, offset: int | None, timestamp: int | None) -> Cut:
    """Where the log would be cut: at `offset`, or at the first record of `timestamp` (epoch ms) or later.

    OffsetOutOfRangeError for an offset below the log start.
    """
    end = log.log_end_offset
    if offset is None:
        moment = LATEST if timestamp is None else max(timestamp, 0)  # other numbers below 0 are Kafka's codes
        found = log.offset_for_timestamp(moment)
        offset = end if found is None else found.offset
    if offset < log.log_start_offset:
        raise OffsetOutOfRangeError(offset, log.log_start_offset, end, str(log.topic_partition))
    if offset >= end:
        return Cut(log.topic_partition, offset, end, (), 0)
    gone = [segment for segment in log.segments if segment.base_offset > offset]
    size = sum(segment.size for segment in gone)
    kept = [segment for segment in log.segments if segment.base_offset <= offset]
    if kept:
        place = kept[-1].translate_offset(offset)
        size += 0 if place is None else kept[-1].size - place.position
    return Cut(log.topic_partition, offset, end, tuple(segment.base_offset for segment in gone), size)
