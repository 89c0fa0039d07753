"""Which lines a rebuilt cluster may have once more than a plain restart of the killed one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.applications import Line, unacknowledged
from tests.support.dead_applications import Outcome, without_kept
from tests.support.replica_histories import ORDERS, history, write_directories

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


def test_what_counts_as_unacknowledged_was_told_to_nobody_and_is_the_end_of_a_log(tmp_path: Path) -> None:
    met = 0
    for seed in range(8):
        made = history(seed)
        lost = unacknowledged(write_directories(made, tmp_path / str(seed)), ORDERS)
        told = {(offset, str(record.number)) for offset, record in made.acknowledged}
        assert not told & {(line.offset, line.value) for line in lost}, f"seed {seed}"
        logs = [[str(record.number) for record in replica.log] for replica in made.replicas.values()]
        assert not lost or [line.value for line in lost] in [log[lost[0].offset :] for log in logs], f"seed {seed}"
        met += bool(lost)
    assert met > 1
