"""Plans and applies the truncation of a log to an offset or a time (Kafka: UnifiedLog.truncateTo).

Batches are dropped as a whole: if one holds the offset, the log ends before it. In a broker the log end stays the given
offset until the next start; here it is at once the end that the next start would find. If the rest ends below the log
start, the log is empty and begins at its start.
"""

from __future__ import annotations

from dataclasses import dataclass

from seglog import layout
from seglog.errors import OffsetOutOfRangeError
from seglog.log.log import Log
from seglog.log.lookup import LATEST
from seglog.log.places import SegmentPlaces
from seglog.log.read_order import claimed_ranges
from seglog.log.segment import LogSegment
from seglog.model import TopicPartition
from seglog.scan.segment_scan import BatchPosition


@dataclass(frozen=True, slots=True)
class Cut:
    """A truncation to `offset`, which moves the log end from `end_before` to `end_offset`.

    `first_offset` is the first dropped offset, at or below `offset`: that of the batch that holds `offset`, or of the
    next one. `segments` are the base offsets of the segments dropped entirely, `bytes` counts all dropped bytes.
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
        """True if nothing is dropped."""
        return not self.bytes and not self.segments

    def apply(self, log: Log) -> None:
        """Applies the truncation; the log must be open for writing."""
        if len(self.segments) == len(log.segments):
            log.truncate_fully(self.end_offset)
        elif not self.empty:
            # A broker replays nothing if all producers were silent for a day: transactions whose markers are dropped
            # would then be neither open nor aborted.
            log.producers.forget()
            log.truncate_to(self.end_offset)


def plan_cut(log: Log, offset: int | None, timestamp: int | None) -> Cut:
    """Plans a truncation at `offset`, or at the first record at `timestamp` (epoch ms) or later.

    Raises OffsetOutOfRangeError for an offset below the log start, CorruptRecordError if damage hides where to cut.
    """
    end = log.log_end_offset
    if offset is None:
        moment = LATEST if timestamp is None else max(timestamp, 0)  # other negative numbers are Kafka's codes
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
    """Returns the offset at which a segment ends that is cut at `place`."""
    stop = segment.size if place is None else place.position
    near = SegmentPlaces.of_open(segment).start(layout.INT64_MAX if place is None else place.base_offset - 1).position
    end = segment.base_offset
    for start in (near, 0):
        for chunk in segment.scan(start, stop):
            end = int(chunk.batches["last_offset"][-1]) + 1
        if end > segment.base_offset:
            break
    return end
