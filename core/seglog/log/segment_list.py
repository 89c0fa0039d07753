"""A list of segments, ordered by base offset, and queries across it (Kafka: LogSegments).

The segments are open ones (`log.segments`) or what names and indexes show of them (`log.outline`). Every change makes a
new tuple, so a reader with a `snapshot()` keeps a consistent view without a lock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar


class SegmentFacts(Protocol):
    """What the rules of retention and of the cleaner ask of a segment. Sizes in bytes, times in epoch milliseconds."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...

    @property
    def offset_of_max_timestamp(self) -> int: ...

    def largest_timestamp(self) -> int: ...

    def first_batch_timestamp(self) -> int: ...


AnySegment = TypeVar("AnySegment", bound=SegmentFacts)


class SegmentList(Generic[AnySegment]):
    """A copy-on-write list; one writer, any number of readers."""

    def __init__(self, segments: Iterable[AnySegment] = ()) -> None:
        self._segments = tuple(sorted(segments, key=base_offset_of))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)}, {self.size} bytes>"

    def __iter__(self) -> Iterator[AnySegment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def snapshot(self) -> tuple[AnySegment, ...]:
        """Returns the segments now, in order, as a tuple that never changes."""
        return self._segments

    @property
    def active(self) -> AnySegment:
        """The last segment, the only one that is appended to. Raises IndexError if there is none."""
        return self._segments[-1]

    @property
    def first(self) -> AnySegment:
        """The segment with the lowest base offset. Raises IndexError if there is none."""
        return self._segments[0]

    @property
    def base_offsets(self) -> list[int]:
        """The base offsets, ascending."""
        return [segment.base_offset for segment in self._segments]

    @property
    def size(self) -> int:
        """Bytes in all `.log` files."""
        return sum(segment.size for segment in self._segments)

    def get(self, base_offset: int) -> AnySegment | None:
        """Returns the segment with exactly this base offset, or None."""
        found = self.floor(base_offset)
        return found if found is not None and found.base_offset == base_offset else None

    def floor(self, offset: int) -> AnySegment | None:
        """Returns the segment with the greatest base offset of at most `offset`, or None."""
        segments = self._segments
        i = bisect_right(segments, offset, key=base_offset_of) - 1
        return segments[i] if i >= 0 else None

    def from_floor(self, offset: int) -> tuple[AnySegment, ...]:
        """Returns the segment that holds `offset` and all after it; all of them if every base is above it."""
        segments = self._segments
        return segments[max(bisect_right(segments, offset, key=base_offset_of) - 1, 0) :]

    def between(self, first: int, last: int) -> tuple[AnySegment, ...]:
        """Returns the segments that may hold offsets of [`first`, `last`): from the floor of `first`, bases below
        `last`.

        Empty if both are equal; if no base is at most `first`, all with a base below `last` (Kafka: values). Raises
        ValueError if `last` is less than `first`.
        """
        if last < first:
            raise ValueError(f"offsets {first} to {last} are not a range")
        if first == last:
            return ()
        return tuple(segment for segment in self.from_floor(first) if segment.base_offset < last)

    def add(self, segment: AnySegment) -> None:
        """Adds a segment, replacing one with the same base offset."""
        before, after = self._around(segment.base_offset)
        self._segments = (*before, segment, *after)

    def remove(self, base_offset: int) -> None:
        """Removes the segment with this base offset from the list; its files stay."""
        before, after = self._around(base_offset)
        self._segments = before + after

    def _around(self, base_offset: int) -> tuple[tuple[AnySegment, ...], tuple[AnySegment, ...]]:
        """Returns the segments below and above this base offset."""
        segments = self._segments
        i = bisect_left(segments, base_offset, key=base_offset_of)
        return segments[:i], segments[bisect_right(segments, base_offset, key=base_offset_of) :]

    def replace(self, new: Sequence[AnySegment], old: Sequence[AnySegment]) -> None:
        """Swaps `old` for `new` in one step."""
        gone = {id(segment) for segment in old}
        kept = [segment for segment in self._segments if id(segment) not in gone]
        self._segments = tuple(sorted([*kept, *new], key=base_offset_of))

    def clear(self) -> None:
        """Empties the list; the files stay."""
        self._segments = ()


def base_offset_of(segment: SegmentFacts) -> int:
    """The key by which segments are ordered."""
    return segment.base_offset
