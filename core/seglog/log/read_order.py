"""Reading on through a log: every offset once, in the order of the files, even if offsets do not ascend.

In a healthy log offsets ascend, and a reader only needs to know where it stopped. In a log with a block of batches that
was written twice, moved, or copied from elsewhere, a reader that asks for the offset after the last one runs in circles
or skips records (Kafka's consumer does both). So reading on goes by position, and:

1. Each batch claims its range of offsets, in the order of the files. A record whose offset an earlier batch has claimed
   is skipped; every other one is returned, in its place.
2. While batches ascend, the highest offset is all that must be known. At the first batch that does not ascend, the
   headers before it are read once more to learn the exact ranges: 16 bytes a range from then on.
3. The first such place of each segment is remembered (`Disorder`) and reported.
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
from seglog.units import count_text

Ranges = Iterator[tuple[np.ndarray, np.ndarray]]
# The decoded records of some batches: `Chunk.records`, or that of a piece.
Decode = Callable[[np.ndarray], Iterator[Records]]


@dataclass(slots=True)
class Disorder:
    """The place where a segment's batches stop ascending: at byte `position`, `offset` follows `reached`.

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
        """The sentence without the place."""
        passed = (
            f"; {count_text(self.passed, 'batch')} with offsets that were read before are skipped"
            if self.passed
            else ""
        )
        return f"offset {self.offset} comes after {self.reached}{passed}"


@dataclass(frozen=True, slots=True)
class NewOffsets:
    """The new offsets in a table of batches: all of the `whole` ones (bool, one a batch), and ranges of the `parts`."""

    whole: np.ndarray
    parts: dict[int, list[tuple[int, int]]]

    @property
    def shown(self) -> np.ndarray:
        """Which batches (bool) hold any new offset."""
        shown = self.whole.copy()
        shown[list(self.parts)] = True
        return shown

    def of(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Returns the new records of `rows` (layout.RECORD); their batch `i` is number `numbers[i]` of the table."""
        if not self.parts or not len(rows):
            return rows
        kept, owner = np.ones(len(rows), dtype=bool), numbers[rows["batch"]]
        for i, ranges in self.parts.items():
            mine = np.flatnonzero(owner == i)
            offsets = rows["offset"][mine]
            kept[mine] = np.logical_or.reduce([(offsets >= low) & (offsets <= high) for low, high in ranges])
        return rows[kept]


class SeenOffsets:
    """The offsets claimed so far. `earlier` yields the (first, last) columns of all batches before a byte position of
    the current file. Offsets below `start` are never new.
    """

    def __init__(self, start: int, earlier: Callable[[int], Ranges] | None) -> None:
        self.end = start - 1  # the highest offset claimed
        self.disorders: dict[Path, Disorder] = {}
        self._start, self._earlier = start, earlier
        self._starts: array[int] | None = None  # of the ranges, once they are needed
        self._ends: array[int] = array("q")

    def take(self, batches: np.ndarray, decode: Decode, path: Path) -> NewOffsets | None:
        """Lets `batches` (layout.BATCH) claim their offsets; returns the new ones, None if all are new."""
        if not len(batches):
            return None
        last = batches["last_offset"]
        ascending = bool((batches["base_offset"][1:] > last[:-1]).all())
        # the first batch of a read may begin below the wanted offset
        begins = int(batches["base_offset"][0]) > self.end or self.end < self._start
        if ascending and begins:
            if self._starts is not None:
                for low, high in zip(_first_offsets(batches, decode).tolist(), last.tolist(), strict=True):
                    self._claim(low, high)
            self.end = max(self.end, int(last[-1]))
            return None
        return self._sort_out(batches, _first_offsets(batches, decode), path)

    def _sort_out(self, batches: np.ndarray, first: np.ndarray, path: Path) -> NewOffsets:
        """Applies rules 1 to 3, batch by batch."""
        if self._starts is None:
            self._starts, self._ends = array("q"), array("q")
            for lows, highs in self._earlier(int(batches["position"][0])) if self._earlier is not None else ():
                for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
                    self._claim(low, high)
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
        return NewOffsets(whole, parts)

    def _claim(self, low: int, high: int) -> None:
        """Adds [low, high], joined with the ranges that it touches."""
        starts, ends = self._starts, self._ends
        assert starts is not None
        if high < low:
            return
        i, j = bisect_left(ends, low - 1), bisect_right(starts, high + 1)
        if i < j:
            low, high = min(low, starts[i]), max(high, ends[j - 1])
        starts[i:j], ends[i:j] = array("q", [low]), array("q", [high])

    def _left_of(self, low: int, high: int) -> list[tuple[int, int]]:
        """Returns the parts of [low, high] that no range holds."""
        starts, ends = self._starts, self._ends
        assert starts is not None
        left = []
        for i in range(bisect_left(ends, low), bisect_right(starts, high)):
            if low < starts[i]:
                left.append((low, starts[i] - 1))
            low = ends[i] + 1
        return [*left, (low, high)] if low <= high else left


def claimed_ranges(batches: np.ndarray, decode: Decode) -> tuple[np.ndarray, np.ndarray]:
    """Returns the columns (first, last) of the batches' offsets, for `SeenOffsets`."""
    return _first_offsets(batches, decode), batches["last_offset"].copy()


def _first_offsets(batches: np.ndarray, decode: Decode) -> np.ndarray:
    """Returns the first offset of each batch; a compressed wrapper of magic 0 or 1 must be decoded for it."""
    first: np.ndarray = batches["base_offset"].copy()
    for i in np.flatnonzero((batches["magic"] < 2) & (batches["attributes"] & layout.CODEC_MASK != 0)).tolist():
        offsets = [int(part.rows["offset"].min()) for part in decode(batches[i : i + 1]) if len(part)]
        if offsets:
            first[i] = min(offsets)
    return first
