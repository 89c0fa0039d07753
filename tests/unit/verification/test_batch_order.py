"""Which batches can stand in one log: the longest ascending chain, moved ones back in place, copies out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from seglog.verification.batch_order import arrange, ascending_chain


def arranged(
    *offsets: tuple[int, int], reorder: bool = True, least: int = 0, times: tuple[int, ...] | None = None
) -> list[tuple[int, int]]:
    first, last = (np.array(column, dtype=np.int64) for column in zip(*offsets, strict=True))
    embedded = np.ones(len(first), dtype=bool)
    stamps = None if times is None else np.array(times, dtype=np.int64)
    return [offsets[i] for i in arrange(first, last, embedded, reorder, (least, 1 << 62), stamps).tolist()]


def test_a_batch_with_a_huge_offset_costs_itself_and_nothing_that_follows() -> None:
    huge = (1_000_010, 1_000_019)
    assert arranged((0, 9), huge, (20, 29), (30, 39)) == [(0, 9), (20, 29), (30, 39), huge]


def test_swapped_runs_go_back_to_their_place() -> None:
    assert arranged((0, 9), (30, 39), (40, 49), (20, 29), (10, 19), (50, 59)) == [
        (0, 9),
        (10, 19),
        (20, 29),
        (30, 39),
        (40, 49),
        (50, 59),
    ]


def test_without_reordering_what_was_moved_goes() -> None:
    kept = arranged((0, 9), (20, 29), (10, 19), (30, 39), reorder=False)
    assert len(kept) == 3
    assert kept == sorted(kept)


def test_copies_are_dropped() -> None:
    assert arranged((0, 9), (10, 19), (0, 9), (10, 19), (20, 29)) == [(0, 9), (10, 19), (20, 29)]


@pytest.mark.parametrize("bit", [3, 5, 6, 9])
def test_a_broken_base_offset_does_not_move_a_batch_into_a_gap_that_compaction_left(bit: int) -> None:
    around = [(0, 9), (10, 19), (20, 29), (1000, 1009), (1010, 1019)]
    damaged = (10 ^ (1 << bit), (10 ^ (1 << bit)) + 9)
    assert arranged(around[0], damaged, *around[2:]) == [each for each in around if each != (10, 19)]


def test_a_segments_first_batch_with_a_broken_offset_is_not_moved_to_its_end() -> None:
    """What the hole before the second one lacks is known from the segment's name."""
    rest = [(19, 19), (20, 22), (23, 25)]
    assert arranged((15 + 8192, 18 + 8192), *rest, least=15) == rest


@pytest.mark.parametrize(("times", "count"), [((1, 3, 2, 4), 4), ((1, 2, 3, 4), 3), ((1, 1, 1, 1), 3)])
def test_timestamps_decide_if_a_batch_beside_a_gap_was_swapped_or_has_a_broken_offset(
    times: tuple[int, ...], count: int
) -> None:
    """One bit makes 45 of 61, which would fit where it lies: with these times, or where they say nothing, it broke."""
    kept = arranged((20, 25), (61, 65), (50, 52), (70, 70), times=times)
    assert len(kept) == count
    assert (61, 65) in kept or count == 3


def test_of_two_that_exclude_each_other_the_one_bit_off_goes() -> None:
    # 20 to 29 became 22 to 31 and now runs into its successor
    assert arranged((0, 9), (10, 19), (22, 31), (30, 39)) == [(0, 9), (10, 19), (30, 39)]


def test_the_chain_is_the_longest_there_is() -> None:
    chance = np.random.default_rng(7)
    for _ in range(50):
        first = chance.integers(0, 40, size=9)
        last = first + chance.integers(0, 4, size=9)
        best = 0
        for subset in range(1 << 9):
            chosen = [i for i in range(9) if subset >> i & 1]
            if all(last[a] < first[b] for a, b in pairwise(chosen)):
                best = max(best, len(chosen))
        chain = np.flatnonzero(ascending_chain(first, last))
        assert len(chain) == best
        assert all(last[a] < first[b] for a, b in pairwise(chain.tolist()))


@pytest.mark.parametrize("jumps", [True, False])
def test_in_a_cleaned_log_the_time_says_that_an_offset_is_broken(*, jumps: bool) -> None:
    """One bit makes it fit into the gap where it lies; whether it was moved there from the end its time tells."""
    first = np.array([0, 10, 30 + (1 << 22), 50, 60], dtype=np.int64)
    times = np.array([0, 10, 30 if not jumps else 70, 50, 60], dtype=np.int64)
    embedded = np.ones(5, dtype=bool)
    order = arrange(first, first + 2, embedded, reorder=True, times=times)
    assert order.tolist() == ([0, 1, 3, 4, 2] if jumps else [0, 1, 3, 4])


@pytest.mark.parametrize(
    ("offsets", "lost"),
    [
        ([(0, 9), (10, 14), (10, 16), (17, 21)], {(10, 14)}),  # KAFKA-7866
        ([(0, 9), (10, 16), (10, 14), (17, 21)], {(10, 14)}),
        ([(0, 9), (10, 12), (13, 14), (10, 16), (17, 21)], {(10, 12), (13, 14)}),
        ([(0, 9), (10, 14), (10, 16), (15, 21), (22, 23)], {(10, 16)}),
    ],
)
@pytest.mark.parametrize("reorder", [True, False])
def test_of_batches_that_share_offsets_those_go_that_cost_the_fewest(
    offsets: list[tuple[int, int]], lost: set[tuple[int, int]], reorder: bool
) -> None:
    assert set(offsets) - set(arranged(*offsets, reorder=reorder)) == lost


def test_the_heaviest_chain_is_that_of_all_subsets() -> None:
    dice = np.random.default_rng(5)
    for _ in range(300):
        first = dice.integers(0, 12, 8)
        last = first + dice.integers(0, 5, 8)
        chain = np.flatnonzero(ascending_chain(first, last, last - first + 1))
        assert (first[chain][1:] > last[chain][:-1]).all()
        best = 0
        for bits in range(256):
            some = [i for i in range(8) if bits >> i & 1]
            if all(first[b] > last[a] for a, b in pairwise(some)):
                best = max(best, sum(int(last[i] - first[i] + 1) for i in some))
        assert int((last[chain] - first[chain] + 1).sum()) == best
