"""Truncating a log to an offset or a time: the plan, and applying it (Kafka: UnifiedLog.truncateTo).

Batches go as a whole: where one holds the offset, the log ends before it. A broker says that the log ends at the offset
asked for until it starts again; here it ends at once where the next start would find it. Where what is left ends below
the log start, that is an empty log at its start.
"""

from __future__ import annotations

from dataclasses import dataclass

from seglog.errors import OffsetOutOfRangeError
from seglog.log.log import Log
from seglog.log.lookup import LATEST
from seglog.log.read_order import claimed_ranges
from seglog.log.segment import LogSegment
from seglog.model import TopicPartition
from seglog.scan.segment_scan import BatchPosition


@dataclass(frozen=True, slots=True)
class Cut:
    """A truncation to `offset`: the log ends at `end_offset` then, and at `end_before` until then.

    `first_offset` is the first that goes, at or below `offset`: that of the batch which holds `offset`, or of the
    next one. `segments` are the base offsets of the segments that go entirely, `bytes` what goes in all.
    """

    topic_partition: TopicPartition
    offset: int
    end_before: int
    end_offset: int
    first_offset: int
    segments: tuple[int, ...]
    bytes: int

    @property
    def empty(self) -> bool:
        """Whether nothing goes."""
        return not self.bytes and not self.segments

    def apply(self, log: Log) -> None:
        """Carries it out; the log must be open for writing."""
        if len(self.segments) == len(log.segments):
            log.truncate_fully(self.end_offset)
        elif not self.empty:
            # A broker replays nothing where all producers were silent for a day: transactions whose markers go would
            # then be neither open nor aborted.
            log.producers.forget()
            log.truncate_to(self.end_offset)


def plan_cut(log: Log, offset: int | None, timestamp: int | None) -> Cut:
    """Where the log would be cut: at `offset`, or at the first record of `timestamp` (epoch ms) or later.

    OffsetOutOfRangeError for an offset below the log start; CorruptRecordError when damage hides the place.
    """
    end = log.log_end_offset
    if offset is None:
        moment = LATEST if timestamp is None else max(timestamp, 0)  # other numbers below 0 are Kafka's codes
        found = log.offset_for_timestamp(moment)
        offset = end if found is None else found.offset
    if offset < log.log_start_offset:
        raise OffsetOutOfRangeError(offset, log.log_start_offset, end, str(log.topic_partition))
    last = log.segments.floor(offset)
    if offset >= end or last is None:
        return Cut(log.topic_partition, offset, end, end, end, (), 0)
    gone = [segment for segment in log.segments if segment.base_offset > offset]
    place = last.require_cut(offset)
    size = sum(segment.size for segment in gone) + (last.size - place.position if place is not None else 0)
    left = _end_before(last, place)
    end_offset = max(log.log_start_offset, left)
    first = gone[0].base_offset if place is None and gone else end_offset
    if place is not None:
        for chunk in last.scan(place.position, place.position + place.size):
            first = int(claimed_ranges(chunk.batches, chunk.records)[0][0])
    if left < end_offset:
        gone, size = list(log.segments), sum(segment.size for segment in log.segments)
    return Cut(log.topic_partition, offset, end, end_offset, first, tuple(s.base_offset for s in gone), size)


def _end_before(segment: LogSegment, place: BatchPosition | None) -> int:
    """Where a segment ends that is cut at `place`."""
    stop = segment.size if place is None else place.position
    near = segment.indexed_position(segment.offset_index.last_offset if place is None else place.base_offset - 1)
    end = segment.base_offset
    for start in (near, 0):
        for chunk in segment.scan(start, stop):
            end = int(chunk.batches["last_offset"][-1]) + 1
        if end > segment.base_offset:
            break
    return end
