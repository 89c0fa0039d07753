"""The segments of a log, ordered by base offset, and what is asked across them (Kafka: LogSegments).

Every change makes a new tuple, so a reader that took `snapshot()`, or a `LogView`, keeps a consistent view without a
lock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from seglog.errors import OffsetOutOfRangeError
from seglog.log.indexes import AbortedTransaction
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.model import NO_LEADER_EPOCH, Isolation


class LogSegments:
    """A copy-on-write list; one writer, any number of readers."""

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self._segments = tuple(sorted(segments, key=_base_offset))

    def __repr__(self) -> str:
        return f"<LogSegments: {len(self)}, {self.size} bytes>"

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def snapshot(self) -> tuple[LogSegment, ...]:
        """The segments now, in order; never changes."""
        return self._segments

    @property
    def active(self) -> LogSegment:
        """The last segment, the only one that is appended to. IndexError when there is none."""
        return self._segments[-1]

    @property
    def first(self) -> LogSegment:
        """The segment with the lowest base offset. IndexError when there is none."""
        return self._segments[0]

    @property
    def base_offsets(self) -> list[int]:
        """The base offsets, ascending."""
        return [segment.base_offset for segment in self._segments]

    @property
    def size(self) -> int:
        """Bytes in all `.log` files."""
        return sum(segment.size for segment in self._segments)

    def get(self, base_offset: int) -> LogSegment | None:
        """The segment with exactly this base offset."""
        found = self.floor(base_offset)
        return found if found is not None and found.base_offset == base_offset else None

    def floor(self, offset: int) -> LogSegment | None:
        """The segment with the greatest base offset that is at most `offset`."""
        segments = self._segments
        i = bisect_right(segments, offset, key=_base_offset) - 1
        return segments[i] if i >= 0 else None

    def higher(self, base_offset: int) -> LogSegment | None:
        """The next segment: the least base offset above `base_offset`."""
        segments = self._segments
        i = bisect_right(segments, base_offset, key=_base_offset)
        return segments[i] if i < len(segments) else None

    def lower(self, base_offset: int) -> LogSegment | None:
        """The segment before: the greatest base offset below `base_offset`."""
        segments = self._segments
        i = bisect_left(segments, base_offset, key=_base_offset) - 1
        return segments[i] if i >= 0 else None

    def from_floor(self, offset: int) -> tuple[LogSegment, ...]:
        """The segment that holds `offset` and all after it; all when every base is above it."""
        segments = self._segments
        return segments[max(bisect_right(segments, offset, key=_base_offset) - 1, 0) :]

    def between(self, first: int, last: int) -> tuple[LogSegment, ...]:
        """The segments that may hold offsets of [`first`, `last`): from the floor of `first`, bases below `last`.

        Empty when both are equal; when no base is at most `first`, all with a base below `last` (Kafka:
        values). ValueError when `last` is less than `first`.
        """
        if last < first:
            raise ValueError(f"offsets {first} to {last} are no range")
        if first == last:
            return ()
        return tuple(segment for segment in self.from_floor(first) if segment.base_offset < last)

    def add(self, segment: LogSegment) -> None:
        """Adds a segment; one with the same base offset is replaced."""
        before, after = self._around(segment.base_offset)
        self._segments = (*before, segment, *after)

    def remove(self, base_offset: int) -> None:
        """Takes the segment with this base offset off the list; its files stay."""
        before, after = self._around(base_offset)
        self._segments = before + after

    def _around(self, base_offset: int) -> tuple[tuple[LogSegment, ...], tuple[LogSegment, ...]]:
        """The segments below and above this base offset."""
        segments = self._segments
        i = bisect_left(segments, base_offset, key=_base_offset)
        return segments[:i], segments[bisect_right(segments, base_offset, key=_base_offset) :]

    def replace(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        """Swaps `old` for `new` in one step."""
        gone = {id(segment) for segment in old}
        kept = [segment for segment in self._segments if id(segment) not in gone]
        self._segments = tuple(sorted([*kept, *new], key=_base_offset))

    def clear(self) -> None:
        """Empties the list; the files stay."""
        self._segments = ()

    def close(self, writable: bool = False) -> None:
        """Closes every segment."""
        for segment in self._segments:
            segment.close(writable)


@dataclass(frozen=True)
class LogView:
    """One consistent state of a log: what its offsets were, and which segments held them, `active_size` bytes in
    the last. After those the file held `trailing_bytes` that are not a whole batch.

    `find_last_stable_offset` is called once, when a reader of committed records asks: it may read producers.
    """

    segments: tuple[LogSegment, ...]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    find_last_stable_offset: Callable[[], int]
    active_size: int
    trailing_bytes: int

    def __repr__(self) -> str:
        return f"<LogView: offsets {self.log_start_offset} to {self.log_end_offset}, {len(self.segments)} segments>"

    @cached_property
    def last_stable_offset(self) -> int:
        """First offset of the earliest open transaction, at most the high watermark."""
        return self.find_last_stable_offset()

    def floor(self, offset: int) -> int:
        """Index of the last segment whose base offset is at most `offset`, or -1."""
        return bisect_right(self.segments, offset, key=_base_offset) - 1

    def first_segment(self, offset: int) -> int:
        """Index of the segment in which a read from `offset` begins. OffsetOutOfRangeError outside [log start, log
        end].
        """
        index = self.floor(offset)
        if not self.log_start_offset <= offset <= self.log_end_offset or index < 0:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)
        return index

    def size_of(self, index: int) -> int:
        """Bytes of the segment that belong to this view."""
        return self.active_size if index == len(self.segments) - 1 else self.segments[index].size

    def search_start(self, index: int, offset: int) -> int:
        """Byte position in segment `index` from which on to look for `offset`, by the segment's index."""
        start = self.segments[index].indexed_position(offset)
        return start if start <= self.size_of(index) else 0

    def limit(self, isolation: Isolation | None) -> int:
        """First offset not shown: high watermark, last stable offset, or for None (a replica) the log end."""
        if isolation is None:
            return self.log_end_offset
        committed = isolation == Isolation.READ_COMMITTED
        return self.last_stable_offset if committed else self.high_watermark


def last_leader_epoch(segments: LogSegments) -> int:
    """Leader epoch of the log's last record batch (magic 2), or -1."""
    for segment in reversed(segments.snapshot()):
        if segment.size:
            return segment.last_leader_epoch()
    return NO_LEADER_EPOCH


def collect_aborted(
    segments: Sequence[LogSegment], first: int, first_offset: int, upper_offset: int
) -> list[AbortedTransaction]:
    """Aborted transactions that touch [`first_offset`, `upper_offset`), from the indexes of `segments[first:]`: the
    entry of a transaction lies where its marker does.

    Kafka: UnifiedLog.collectAbortedTransactions. CorruptIndexError for an index that cannot be read.
    """
    found: list[AbortedTransaction] = []
    for segment in segments[first:]:
        more, complete = segment.transaction_index.collect(first_offset, upper_offset)
        found += more
        if complete:
            break
    return found


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    last_offset: int,
    now_ms: int,
    *,
    reload_from_clean_shutdown: bool,
) -> None:
    """Makes `producers` the state at `last_offset`; producers silent for too long at `now_ms` are left out.

    1. After a clean stop without any snapshot the state is taken as empty, with empty snapshots at the bases of the
       last two segments and at the end: the log was written before snapshots existed.
    2. Otherwise the newest usable snapshot is loaded, and what follows it is replayed from the segments. Snapshots are
       taken on the way at the bases of the last two segments, and at the end.

    Kafka: UnifiedLog.rebuildProducerState.
    """
    at = [segment.base_offset for segment in segments.snapshot()[-2:]]
    if producers.latest_snapshot_offset is None and reload_from_clean_shutdown:
        for offset in [*at, last_offset]:
            producers.end_offset = offset
            producers.take_snapshot()
        return
    was_empty = producers.is_empty and producers.end_offset >= last_offset
    producers.truncate_and_reload(log_start_offset, last_offset, now_ms)
    if last_offset > producers.end_offset and not was_empty:
        last_segment = segments.floor(last_offset)
        for segment in segments.between(producers.end_offset, last_offset):
            producers.end_offset = max(segment.base_offset, producers.end_offset, log_start_offset)
            if segment.base_offset in at:
                producers.take_snapshot()
            _replay_segment(producers, segment, last_offset if segment is last_segment else None)
    producers.end_offset = last_offset
    producers.take_snapshot()


def _replay_segment(producers: ProducerStateManager, segment: LogSegment, last_offset: int | None) -> None:
    first = segment.translate_offset(producers.end_offset)
    if first is None:
        return
    stop = None if last_offset is None else segment.translate_offset(last_offset, first.position)
    for chunk in segment.scan(first.position, None if stop is None else stop.position):
        producers.replay(chunk.data, chunk.batches, chunk.position, segment.path)
