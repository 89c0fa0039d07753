"""Which of a segment's good batches can stand in one log, and in which order.

A log's offsets ascend. After a block was written twice, moved, or overwritten by one from elsewhere, batches with
right checksums contradict each other. Steps:

1. The spine: the largest number of batches that ascend as they lie in the file. One batch with a broken base
   offset (no checksum covers it) then costs itself, not everything that follows.
2. The other batches, a run at a time: one that fills a hole of the spine, and joins a batch at one of its ends, was
   moved there and goes back. Those that overlap with the spine are copies, or foreign, and go.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np


def ascending_chain(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Which batches belong to the longest ascending chain (bool, one a batch; offsets int64, in file order)."""
    count = len(first)
    if count == 0 or bool((first[1:] > last[:-1]).all()):
        return np.ones(count, dtype=bool)
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


def arrange(first: np.ndarray, last: np.ndarray, reorder: bool) -> np.ndarray:
    """The batches to keep, as indexes in the order of their offsets.

    `first` and `last` are the batches' offsets in file order; without `reorder` nothing that was moved comes back.
    """
    spine = ascending_chain(first, last)
    kept = np.flatnonzero(spine).tolist()
    if reorder:
        for run in _runs(np.flatnonzero(~spine), first, last):
            _insert(kept, run, first, last)
    return np.array(kept, dtype=np.int64)


def _runs(others: np.ndarray, first: np.ndarray, last: np.ndarray) -> list[list[int]]:
    """Batches off the spine that follow each other in the file and touch in their offsets."""
    runs: list[list[int]] = []
    for i in others.tolist():
        if runs and runs[-1][-1] == i - 1 and first[i] == last[i - 1] + 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _insert(kept: list[int], run: list[int], first: np.ndarray, last: np.ndarray) -> None:
    low, high = int(first[run[0]]), int(last[run[-1]])
    at = bisect_left(kept, low, key=lambda i: int(first[i]))
    before = int(last[kept[at - 1]]) if at else None
    behind = int(first[kept[at]]) if at < len(kept) else None
    if (before is not None and before >= low) or (behind is not None and behind <= high):
        return
    if before == low - 1 or behind == high + 1:
        kept[at:at] = run
