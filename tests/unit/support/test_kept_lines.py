"""Which lines a rebuilt cluster may have once more than a plain restart of the killed one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.applications import Line
from tests.support.dead_applications import Outcome, without_kept

# The dead log had a to d, of which c and d were on one broker only. A restart elected another: the connector goes on
# after b, its offset.
PLAIN = Outcome("", ("a", "b", "c", "d", "e"), (), (), ())
LOST = [Line(2, 10, "c"), Line(3, 11, "d")]


def lines(text: str) -> Outcome:
    return replace(PLAIN, lines=tuple(text))


def test_lines_that_only_a_plain_restart_lost_come_twice_where_they_were_kept() -> None:
    assert without_kept(lines("abcdcde"), PLAIN, LOST) == PLAIN


@pytest.mark.parametrize(
    "text",
    [
        "abcdcdcde",  # three times
        "abcdabcde",  # from an older offset of the connector
        "abcdcd",  # the last is missing
        "abcdde",  # one of them was not sent again
        "abdccde",  # in another order
        "abcde",  # nothing was kept, so nothing is left out
    ],
)
def test_any_other_difference_stays_one(text: str) -> None:
    assert without_kept(lines(text), PLAIN, LOST) == lines(text)


def test_nothing_is_excused_where_the_restart_kept_all() -> None:
    assert without_kept(lines("abcdcde"), PLAIN, []) == lines("abcdcde")
