"""Chooses which of a segment's good batches can be in one log, and in which order.

A log's offsets ascend. After a block was written twice, moved, or overwritten by a foreign one, batches with right
checksums contradict each other. Steps:

1. The spine: the longest chain of batches that ascend in file order. A batch with a broken base offset (the checksum
   does not cover it) then costs only itself, not everything after it.
2. The other batches, one run at a time. A run that fits into a hole of the spine was moved, and goes back there. A run
   that overlaps with the spine is a copy or foreign, and is dropped. A batch that would fit at its position if one bit
   of its base offset were different is also dropped, because that bit broke; except if its timestamp, which the
   checksum covers, shows that the batch was moved. If the batch would fit only loosely, in a gap, its timestamp must
   show that it was not moved.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np

from seglog.layout import INT64_MAX


def ascending_chain(first: np.ndarray, last: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Returns a bool per batch: True if it belongs to the longest ascending chain, or to the heaviest one by `weights`.

    Offsets are int64, in file order.
    """
    count = len(first)
    if count == 0 or bool((first[1:] > last[:-1]).all()):
        return np.ones(count, dtype=bool)
    if weights is not None:
        return _heaviest_chain(first, last, weights)
    ends: list[int] = []  # the least last offset of a chain of each length
    heads: list[int] = []  # the batch that such a chain ends with
    before = np.full(count, -1, dtype=np.int64)
    for i, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        length = bisect_left(ends, low)
        if length:
            before[i] = heads[length - 1]
        if length == len(ends):
            ends.append(high)
            heads.append(i)
        elif high < ends[length]:
            ends[length], heads[length] = high, i
    chosen = np.zeros(count, dtype=bool)
    at = heads[-1]
    while at >= 0:
        chosen[at] = True
        at = int(before[at])
    return chosen


def _heaviest_chain(first: np.ndarray, last: np.ndarray, weights: np.ndarray) -> np.ndarray:
    ends: list[int] = []  # last offsets of chains, ascending, each heavier than those before
    heads: list[tuple[int, int]] = []  # (weight, the batch that such a chain ends with)
    before = np.full(len(first), -1, dtype=np.int64)
    for i, (low, high, weight) in enumerate(zip(first.tolist(), last.tolist(), weights.tolist(), strict=True)):
        at = bisect_left(ends, low) - 1
        if at >= 0:
            weight, before[i] = weight + heads[at][0], heads[at][1]
        at = bisect_right(ends, high)
        if at and heads[at - 1][0] >= weight:
            continue
        beyond = at
        while beyond < len(ends) and heads[beyond][0] <= weight:
            beyond += 1
        at -= bool(at and ends[at - 1] == high)
        ends[at:beyond], heads[at:beyond] = [high], [(weight, i)]
    chosen = np.zeros(len(first), dtype=bool)
    i = heads[-1][1]
    while i >= 0:
        chosen[i] = True
        i = int(before[i])
    return chosen


def arrange(
    first: np.ndarray,
    last: np.ndarray,
    embedded: np.ndarray,
    reorder: bool,
    bounds: tuple[int, int] = (0, INT64_MAX),
    times: np.ndarray | None = None,
) -> np.ndarray:
    """Returns the batches to keep, as indexes in the order of their offsets, which lie in `bounds` (inclusive).

    `first` and `last` are the batches' offsets in file order, `times` their max timestamps (ms) if known. `embedded`
    (bool) says which of them touch another batch on both sides. Without `reorder`, moved batches are dropped.
    """
    times = np.zeros(len(first), dtype=np.int64) if times is None else times
    spine = _with_sound_offsets(np.flatnonzero(ascending_chain(first, last)), first, last, bounds[0])
    order = _Arrangement(first, last, embedded, spine, bounds, times).arranged() if reorder else spine
    heavier = np.flatnonzero(ascending_chain(first, last, last - first + 1))
    return heavier if _loses_less(heavier, order, first, last) else order


def _loses_less(chain: np.ndarray, order: np.ndarray, first: np.ndarray, last: np.ndarray) -> bool:
    """True if `chain`, which is in file order, keeps more offsets than `order` does, and nothing speaks against it.

    An order that moves batches shows that some lie elsewhere. A batch that does not continue its predecessor may have a
    broken offset: it replaces no others, however many offsets it has.
    """
    kept, others = (int((last[each] - first[each] + 1).sum()) for each in (chain, order))
    if kept <= others or (np.diff(order) < 0).any():
        return False
    new = np.setdiff1d(chain, order, assume_unique=True)
    at = np.searchsorted(chain, new)
    return bool((at > 0).all()) and bool((first[new] == last[chain[at - 1]] + 1).all())


def _with_sound_offsets(spine: np.ndarray, first: np.ndarray, last: np.ndarray, least: int) -> np.ndarray:
    """Returns the spine after replacing batches with a broken base offset by the neighbours that they excluded.

    Of chains of equal length the spine is an arbitrary one. A batch on the spine is the broken one if flipping one bit
    of its base offset makes it exactly fill the space between its predecessor and the excluded neighbour.
    """
    chosen = spine.tolist()
    on_spine = set(chosen)
    for at, i in enumerate(chosen):
        before = int(last[chosen[at - 1]]) + 1 if at else least
        following = int(first[chosen[at + 1]]) if at + 1 < len(chosen) else INT64_MAX
        span = int(last[i] - first[i])
        for rival in (i + 1, i - 1):
            if not 0 <= rival < len(first) or rival in on_spine:
                continue
            rival_first, rival_last = int(first[rival]), int(last[rival])
            real = before if rival > i else rival_last + 1
            fills = real + span + 1 == (rival_first if rival > i else following)
            # a legacy wrapper stores only its last message's offset
            one_bit = 1 in ((real ^ int(first[i])).bit_count(), ((real + span) ^ int(last[i])).bit_count())
            if before <= rival_first <= rival_last < following and fills and one_bit:
                chosen[at] = rival
                break
    return np.array(chosen, dtype=np.int64)


class _Arrangement:
    """Step 2: the order, which grows from the spine."""

    def __init__(
        self,
        first: np.ndarray,
        last: np.ndarray,
        embedded: np.ndarray,
        spine: np.ndarray,
        bounds: tuple[int, int],
        times: np.ndarray,
    ) -> None:
        self._first, self._last, self._embedded, self._spine = first, last, embedded, spine
        self._least, self._most = bounds
        self._times = times
        self._order: list[int] = spine.tolist()

    def arranged(self) -> np.ndarray:
        others = np.setdiff1d(np.arange(len(self._first)), self._spine, assume_unique=True)
        waiting = _runs(others, self._first, self._last)
        # Certain runs come first: they fill holes in which doubtful batches would seem to fit where they lie.
        waiting = [run for run in waiting if not (self._is_sure(run) and self._insert(run))]
        for run in waiting:
            if len(run) > 1 or not self._one_bit_off(run[0]):
                for i in run:  # a part of the run may be a copy
                    self._insert([i])
        return np.array(self._order, dtype=np.int64)

    def _is_sure(self, run: list[int]) -> bool:
        """True if the run has several batches, or exactly fills a hole."""
        low, high = self._hole(int(self._first[run[0]]))
        return len(run) > 1 or (low == int(self._first[run[0]]) and high == int(self._last[run[-1]]))

    def _hole(self, offset: int) -> tuple[int, int]:
        """Returns the range of offsets around `offset` that no batch has yet."""
        at = bisect_left(self._order, offset, key=lambda i: int(self._first[i]))
        low = int(self._last[self._order[at - 1]]) + 1 if at else self._least
        high = int(self._first[self._order[at]]) - 1 if at < len(self._order) else self._most
        return low, high

    def _insert(self, run: list[int]) -> bool:
        """Puts a run into the hole that it fits into. Returns False if there is none."""
        first, last = int(self._first[run[0]]), int(self._last[run[-1]])
        low, high = self._hole(first)
        if not low <= first <= last <= high:
            return False
        at = bisect_left(self._order, first, key=lambda i: int(self._first[i]))
        self._order[at:at] = run
        return True

    def _one_bit_off(self, i: int) -> bool:
        """True if batch `i` would join a neighbour in the file if one bit of its base offset were flipped."""
        at = int(np.searchsorted(self._spine, i))
        neighbours = {i - 1, i + 1} & set(range(len(self._first)))
        if not self._embedded[i] or not neighbours <= set(self._spine[max(at - 1, 0) : at + 1].tolist()):
            return False  # it lies beside damage, or among other moved batches
        fits_here, fits_there = self._fits_by_time(i, at)
        if fits_there and not fits_here:
            return False  # it was moved
        low, high = self._hole(int(self._last[self._spine[at - 1]]) + 1 if at else self._least)
        base, span = int(self._first[i]), int(self._last[i] - self._first[i])
        flipped = [each for bit in range(63) if low <= (each := base ^ (1 << bit)) and each + span <= high]
        if flipped and fits_here and not fits_there:
            return True  # it was not moved
        if len(neighbours) == 2:
            return any(each == low or each + span == high for each in flipped)
        return any(each == low and each + span == high for each in flipped)

    def _fits_by_time(self, i: int, at: int) -> tuple[bool, bool]:
        """Returns whether the time of batch `i` fits at its position (`at` of the spine), and at its offset."""
        place = bisect_left(self._order, int(self._first[i]), key=lambda other: int(self._first[other]))
        return self._is_between(i, self._spine.tolist(), at), self._is_between(i, self._order, place)

    def _is_between(self, i: int, others: list[int], at: int) -> bool:
        time = int(self._times[i])
        after = at == 0 or int(self._times[others[at - 1]]) <= time
        return after and (at == len(others) or time <= int(self._times[others[at]]))


def _runs(others: np.ndarray, first: np.ndarray, last: np.ndarray) -> list[list[int]]:
    """Groups batches that follow each other in the file and whose offsets are adjacent."""
    runs: list[list[int]] = []
    for i in others.tolist():
        if runs and runs[-1][-1] == i - 1 and first[i] == last[i - 1] + 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs
