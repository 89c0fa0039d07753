"""Segments are grouped by their sizes before cleaning, greedily and in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from seglog.cleaner.round import group_segments


def segment(base_offset: int, size: int, offsets: int = 0, times: int = 0) -> Any:
    return SimpleNamespace(
        base_offset=base_offset,
        size=size,
        offset_index=SimpleNamespace(size=offsets),
        closed_time_index_size=times,
    )


def bases(groups: Any) -> list[list[int]]:
    return [[s.base_offset for s in group] for group in groups]


def test_neighbours_join_while_their_logs_fit() -> None:
    found = group_segments([segment(0, 40), segment(10, 60), segment(20, 1), segment(30, 99)], 100, 1000, 40)
    assert bases(found) == [[0, 10], [20, 30]]


def test_each_kind_of_index_must_fit() -> None:
    assert bases(group_segments([segment(0, 1, 8, 0), segment(1, 1, 8, 0)], 100, 15, 2)) == [[0], [1]]
    assert bases(group_segments([segment(0, 1, 0, 12), segment(1, 1, 0, 12)], 100, 23, 2)) == [[0], [1]]
    assert bases(group_segments([segment(0, 1, 8, 12), segment(1, 1, 8, 12)], 100, 24, 2)) == [[0, 1]]


def test_offsets_stay_within_31_bits_but_empty_segments_always_join() -> None:
    far = 2**31
    assert bases(group_segments([segment(0, 1), segment(5, 1)], 100, 100, far)) == [[0, 5]]
    assert bases(group_segments([segment(0, 1), segment(5, 1)], 100, 100, far + 1)) == [[0], [5]]
    assert bases(group_segments([segment(0, 1), segment(5, 0)], 100, 100, far + 1)) == [[0, 5]]


def test_a_segment_larger_than_the_limit_is_a_group_of_its_own() -> None:
    assert bases(group_segments([segment(0, 500), segment(1, 1)], 100, 100, 2)) == [[0], [1]]
    assert group_segments([], 100, 100, 0) == ()
