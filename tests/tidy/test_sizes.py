"""Files and functions stay small: hard limits for all, and a ratchet on what is above the habit."""

from __future__ import annotations

import pytest

from tests.tidy.sources import SOURCES, TESTS, name_of, source

pytestmark = pytest.mark.xdist_group("tidy")  # one process parses the sources

FILE_LINES = 500
FUNCTION_LINES = 70
# Functions above the habit of 40 lines may only become fewer.
HABIT_LINES = 40
ABOVE_HABIT = 15


def longer_functions(limit: int) -> list[str]:
    """The functions of the sources with more lines than the limit, a line each."""
    return [
        f"{name_of(path)}: {name} {size}" for path in SOURCES for name, size in source(path).functions if size > limit
    ]


def test_no_file_is_longer_than_the_limit() -> None:
    sizes = {name_of(path): len(path.read_text().splitlines()) for path in (*SOURCES, *TESTS)}
    assert {name: size for name, size in sizes.items() if size > FILE_LINES} == {}


def test_no_function_is_longer_than_the_limit() -> None:
    assert longer_functions(FUNCTION_LINES) == []


def test_functions_above_the_habit_become_fewer_only() -> None:
    above = longer_functions(HABIT_LINES)
    assert len(above) <= ABOVE_HABIT, "\n".join(above)
