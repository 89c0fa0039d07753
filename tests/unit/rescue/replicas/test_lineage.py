"""Where two logs part, by their leader epochs (KIP-101, 279, 320)."""

from __future__ import annotations

import pytest

from seglog_rescue.replicas.lineage import Lineage, common_end, contradiction

LONG = Lineage(0, 100, ((0, 0), (2, 40), (5, 90)))


@pytest.mark.parametrize(
    ("other", "end"),
    [
        (LONG, 100),
        (Lineage(0, 80, ((0, 0), (2, 40))), 80),
        (Lineage(0, 95, ((0, 0), (2, 40), (3, 85))), 85),
        (Lineage(0, 95, ((0, 0), (2, 40))), 90),
        (Lineage(0, 60, ((0, 0), (1, 30))), 30),
        (Lineage(70, 95, ((2, 70), (5, 90))), 95),
        (Lineage(0, 60, ((1, 0),)), 0),
        (Lineage(150, 160, ((6, 150),)), 100),
        (Lineage(0, 0, ()), 0),
        (Lineage(0, 70, ()), 70),
    ],
)
def test_logs_part_at_the_smaller_end_of_the_newest_epoch_that_both_have(other: Lineage, end: int) -> None:
    assert common_end(LONG, other) == end
    assert common_end(other, LONG) == end


def test_a_cut_takes_away_the_epochs_above_it() -> None:
    assert LONG.cut(90) == Lineage(0, 90, ((0, 0), (2, 40)))
    assert LONG.cut(90).newest_epoch == 2
    assert LONG.cut(200) is LONG


def test_an_epoch_that_has_begun_at_the_end_without_a_record_counts() -> None:
    assert Lineage(0, 90, ((2, 40), (5, 90))).newest_epoch == 5
    assert Lineage(0, 80, ((2, 40), (5, 90))).newest_epoch == 2
    assert common_end(Lineage(0, 90, ((2, 40), (5, 90))), LONG) == 90


def test_epochs_that_contradict_each_other_leave_the_higher_one() -> None:
    assert Lineage.of(0, 100, [(0, 0), (4, 50), (3, 60), (5, 40)]).epochs == ((0, 0), (5, 40))


def test_a_shared_offset_of_two_epochs_is_a_contradiction_that_no_follower_cuts() -> None:
    assert contradiction(LONG, Lineage(0, 100, ((0, 0), (1, 30), (2, 40), (5, 90)))) == 30
    assert contradiction(LONG, LONG) is None
    assert contradiction(LONG, Lineage(0, 95, ((0, 0), (2, 40), (3, 85)))) is None
