"""Reading on through a log: every offset once, in the order of the files, also where offsets do not ascend.

A healthy log ascends, and a reader needs to know no more than where it stopped. After a block of batches was
written twice, moved, or came from elsewhere, a reader that asks for the offset after the last one runs in circles or
jumps over what is there (Kafka's consumer does both). So reading on goes by position, and:

1. Each batch claims its range of offsets, in the order of the files. A record whose offset a batch before it has
   claimed is passed over; every other one is given out, where it lies.
2. As long as batches ascend, the highest offset is all that must be known. The first batch that does not ascend lets
   the headers before it be read once more, to know the ranges exactly: 16 bytes a range from then on.
3. The first such place of each segment is remembered (`Disorder`), to be reported to whoever reads.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.format.columns import Records

Ranges = Iterator[tuple[np.ndarray, np.ndarray]]
# The decoded records of some batches: `Chunk.records`, or that of a piece.
Decode = Callable[[np.ndarray], Iterator[Records]]


@dataclass(slots=True)
class Disorder:
    """Where the batches of a segment cease to ascend: `offset` follows on `reached`, at byte `position`.

    `passed` counts the batches whose offsets had all been read before.
    """

    path: Path
    position: int
    offset: int
    reached: int
    passed: int = 0

    def __str__(self) -> str:
        return f"{self.path}: position {self.position}: {self.fault}; `seglog verify` says more"

    @property
    def fault(self) -> str:
        """The same without the place."""
        passed = f"; {self.passed} batches with offsets that were read before are passed over" if self.passed else ""
        return f"offset {self.offset} comes after {self.reached}{passed}"


@dataclass(frozen=True, slots=True)
class News:
    """What of a table of batches is news: those of `whole` (bool, one a batch), and in `parts` these ranges of some."""

    whole: np.ndarray
    parts: dict[int, list[tuple[int, int]]]

    @property
    def shown(self) -> np.ndarray:
        """Which batches (bool) hold anything new."""
        shown = self.whole.copy()
        shown[list(self.parts)] = True
        return shown

    def of(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The records of `rows` (layout.RECORD) that are new; their batch `i` is number `numbers[i]` of the table."""
        if not self.parts or not len(rows):
            return rows
        kept, owner = np.ones(len(rows), dtype=bool), numbers[rows["batch"]]
        for i, ranges in self.parts.items():
            mine = np.flatnonzero(owner == i)
            offsets = rows["offset"][mine]
            kept[mine] = np.logical_or.reduce([(offsets >= low) & (offsets <= high) for low, high in ranges])
        return rows[kept]


class SeenOffsets:
    """The offsets that batches have claimed. `earlier` gives the (first, last) columns of all that were taken before,
    up to a byte position of the file that is being read.

    Nothing below `start` is news.
    """

    def __init__(self, start: int, earlier: Callable[[int], Ranges] | None) -> None:
        self.end = start - 1  # the highest offset claimed
        self.disorders: dict[Path, Disorder] = {}
        self._start, self._earlier = start, earlier
        self._starts: array[int] | None = None  # of the ranges, when they must be known
        self._ends: array[int] = array("q")

    def take(self, batches: np.ndarray, decode: Decode, path: Path) -> News | None:
        """Lets `batches` (layout.BATCH) claim their offsets; None when all of them are news."""
        if not len(batches):
            return None
        last = batches["last_offset"]
        ascending = bool((batches["base_offset"][1:] > last[:-1]).all())
        # the first batch of a read may begin below the offset that was asked for
        begins = int(batches["base_offset"][0]) > self.end or self.end < self._start
        if ascending and begins:
            self._claim_all(batches, decode)
            self.end = max(self.end, int(last[-1]))
            return None
        return self._sort_out(batches, _first_offsets(batches, decode), path)

    def _claim_all(self, batches: np.ndarray, decode: Decode) -> None:
        if self._starts is not None:
            first = _first_offsets(batches, decode)
            for low, high in zip(first.tolist(), batches["last_offset"].tolist(), strict=True):
                self._claim(low, high)

    def _sort_out(self, batches: np.ndarray, first: np.ndarray, path: Path) -> News:
        """Rules 1 to 3, batch by batch."""
        if self._starts is None:
            self._recollect(int(batches["position"][0]))
        whole, parts = np.zeros(len(batches), dtype=bool), {}
        for i, (low, high) in enumerate(zip(first.tolist(), batches["last_offset"].tolist(), strict=True)):
            if low <= self.end and self.end >= self._start:
                place = Disorder(path, int(batches["position"][i]), low, self.end)
                self.disorders.setdefault(path, place)
            left = self._left_of(max(low, self._start), high)
            if left == [(low, high)]:
                whole[i] = True
            elif left:
                parts[i] = left
            elif path in self.disorders:
                self.disorders[path].passed += 1
            self._claim(low, high)
            self.end = max(self.end, high)
        return News(whole, parts)

    def _recollect(self, position: int) -> None:
        self._starts, self._ends = array("q"), array("q")
        for first, last in self._earlier(position) if self._earlier is not None else ():
            for low, high in zip(first.tolist(), last.tolist(), strict=True):
                self._claim(low, high)

    def _claim(self, low: int, high: int) -> None:
        """Joins [low, high] with the ranges that it meets."""
        starts, ends = self._starts, self._ends
        assert starts is not None
        if high < low:
            return
        i, j = bisect_left(ends, low - 1), bisect_right(starts, high + 1)
        if i < j:
            low, high = min(low, starts[i]), max(high, ends[j - 1])
        starts[i:j], ends[i:j] = array("q", [low]), array("q", [high])

    def _left_of(self, low: int, high: int) -> list[tuple[int, int]]:
        """The parts of [low, high] that no range holds."""
        starts, ends = self._starts, self._ends
        assert starts is not None
        left = []
        for i in range(bisect_left(ends, low), bisect_right(starts, high)):
            if low < starts[i]:
                left.append((low, starts[i] - 1))
            low = ends[i] + 1
        return [*left, (low, high)] if low <= high else left


def claimed_ranges(batches: np.ndarray, decode: Decode) -> tuple[np.ndarray, np.ndarray]:
    """(first, last) offset of each batch, for `SeenOffsets`."""
    return _first_offsets(batches, decode), batches["last_offset"].copy()


def _first_offsets(batches: np.ndarray, decode: Decode) -> np.ndarray:
    """The first offset of each batch; only its contents tell that of a compressed wrapper of magic 0 and 1."""
    first: np.ndarray = batches["base_offset"].copy()
    for i in np.flatnonzero((batches["magic"] < 2) & (batches["attributes"] & layout.CODEC_MASK != 0)).tolist():
        offsets = [int(part.rows["offset"].min()) for part in decode(batches[i : i + 1]) if len(part)]
        if offsets:
            first[i] = min(offsets)
    return first
