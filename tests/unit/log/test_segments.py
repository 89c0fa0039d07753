"""The ordered list of segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments
from tests.support.log_files import FS


@pytest.fixture
def segments(tmp_path: Path) -> LogSegments:
    return LogSegments(LogSegment(FS, tmp_path, base) for base in (30, 10, 20))


def bases(found: tuple[LogSegment, ...]) -> list[int]:
    return [segment.base_offset for segment in found]


def test_floor_is_the_segment_at_or_below_an_offset(segments: LogSegments) -> None:
    def base(found: LogSegment | None) -> int | None:
        return None if found is None else found.base_offset

    assert [base(segments.floor(offset)) for offset in (9, 10, 19, 99)] == [None, 10, 10, 30]
    assert (base(segments.get(20)), base(segments.get(21)), base(segments.active)) == (20, None, 30)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(15, 20, [10]), (15, 21, [10, 20]), (0, 25, [10, 20]), (15, 15, []), (40, 50, [30]), (0, 10, [])],
)
def test_ranges_begin_at_the_floor(segments: LogSegments, first: int, last: int, expected: list[int]) -> None:
    assert bases(segments.between(first, last)) == expected


def test_a_snapshot_does_not_change(segments: LogSegments, tmp_path: Path) -> None:
    before = segments.snapshot()
    segments.replace([LogSegment(FS, tmp_path, 10)], list(before[:2]))
    segments.remove(30)
    assert bases(before) == [10, 20, 30]
    assert segments.base_offsets == [10]
