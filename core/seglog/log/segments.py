"""The segments of a log, ordered by base offset (Kafka: LogSegments).

Every change makes a new tuple, so a reader that took `snapshot()` keeps a consistent view without a lock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from seglog.log.indexes import AbortedTransaction
from seglog.log.segment import LogSegment
from seglog.model import NO_LEADER_EPOCH


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

    def __bool__(self) -> bool:
        return bool(self._segments)

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
        """The segments that may hold offsets of [`first`, `last`): from the floor of `first`, bases below
        `last`.

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
