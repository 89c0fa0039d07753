"""Payloads that the index has laid open, kept for the copy, which else would decompress them a second time.

They lie in what the offset map leaves of the dedupe buffer: as many as fit, from the beginning of the dirty section on.
Where the map grows, the last ones go.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import numpy as np

from seglog.scan.segment_scan import Chunk

_SLAB_BYTES = 32 << 20
_BYTES_A_BATCH = 40  # of `_Run`'s columns

_first_position = attrgetter("first_position")


@dataclass(slots=True, eq=False)
class _Slab:
    """Memory that is handed out from its beginning; what was not written takes none."""

    memory: np.ndarray
    used: int = 0
    counted: int = 0  # bytes that it has in the limit
    runs: list[tuple[Path, _Run]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Space:
    """Room for payloads: `arena` of a slab that is nobody else's until it comes back."""

    arena: np.ndarray
    slab: _Slab


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Neighbouring batches: batch i has the payload `arena[bounds[i]:bounds[i + 1]]`, where `is_open[i]`."""

    first_position: int
    positions: np.ndarray
    sizes: np.ndarray
    checksums: np.ndarray
    is_open: np.ndarray
    arena: np.ndarray
    bounds: np.ndarray

    def same(self, rows: np.ndarray, at: int) -> np.ndarray:
        """Which of `rows` (layout.BATCH) are the batches from `at` on, and have their payload here (bool)."""
        stop = at + len(rows)
        found = np.zeros(len(rows), dtype=bool)
        if stop <= len(self.positions):
            found[:] = self.is_open[at:stop]
            found &= rows["position"] == self.positions[at:stop]
            found &= rows["size"] == self.sizes[at:stop]
            found &= rows["crc"] == self.checksums[at:stop]
        return found


@dataclass(frozen=True, slots=True)
class Stretch:
    """Batches [`first`, `last`) of a chunk; where `arena` is there, batch i has `arena[bounds[i]:bounds[i + 1]]`,
    counted from `first`."""

    first: int
    last: int
    arena: np.ndarray | None = None
    bounds: np.ndarray | None = None


class OpenedPayloads:
    """Payloads of at most `limit` bytes, by the batches' places; for several threads at once."""

    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._limit, self._counted = limit, 0
        self._slabs: list[_Slab] = []
        self._spare: list[_Slab] = []  # with room for more, and nobody at work in them
        self._runs: dict[Path, list[_Run]] = {}
        self._ended = False

    # --- keeping -------------------------------------------------------------------------------------------

    def space(self, size: int) -> Space | None:
        """Room for `size` bytes, to be given back by `keep`; None where there is none."""
        with self._lock:
            if self._ended or self._counted + size > self._limit:
                return None
            slab = next((slab for slab in self._spare if len(slab.memory) - slab.used >= size), None)
            if slab is None:
                slab = _Slab(np.empty(max(size, min(_SLAB_BYTES, self._limit)), dtype=np.uint8))
                self._slabs.append(slab)
            else:
                self._spare.remove(slab)
            slab.counted += size
            self._counted += size
            return Space(slab.memory[slab.used : slab.used + size], slab)

    def keep(self, space: Space, path: Path, rows: np.ndarray, is_open: np.ndarray, bounds: np.ndarray) -> None:
        """Keeps the payloads of `rows` (layout.BATCH of the file `path`) that `is_open` says lie in the space.

        Batch i has `space.arena[bounds[i]:bounds[i + 1]]`. What the space has left goes back.
        """
        used = int(bounds[-1])
        slab = space.slab
        with self._lock:
            if slab not in self._slabs:
                return  # it had to go meanwhile
            more = used + len(rows) * _BYTES_A_BATCH - len(space.arena)
            slab.counted += more
            self._counted += more
            slab.used += used
            self._spare.append(slab)
            if len(rows):
                run = _Run(
                    int(rows["position"][0]),
                    rows["position"].copy(),
                    rows["size"].copy(),
                    rows["crc"].copy(),
                    is_open,
                    space.arena[:used],
                    bounds,
                )
                insort(self._runs.setdefault(path, []), run, key=_first_position)
                slab.runs.append((path, run))

    def shrink(self, limit: int) -> None:
        """Lets the payloads go that came last, until what is left is within `limit`, which counts from now on."""
        with self._lock:
            self._limit = limit
            self._let_go(limit)

    def end(self) -> None:
        """From here on nothing more is kept."""
        with self._lock:
            self._ended = True

    def give_way(self) -> None:
        """Lets all go, for good: a batch that is worked on by itself takes as much memory as all others."""
        with self._lock:
            self._ended = True
            self._let_go(0)

    def _let_go(self, limit: int) -> None:
        while self._slabs and self._counted > limit:
            slab = self._slabs.pop()
            self._counted -= slab.counted
            if slab in self._spare:
                self._spare.remove(slab)
            for path, run in slab.runs:
                self._runs[path].remove(run)

    # --- finding -------------------------------------------------------------------------------------------

    def stretches(self, chunk: Chunk, first: int, last: int) -> Iterator[Stretch]:
        """Batches [`first`, `last`) of a chunk in order: those whose payloads are kept, and the others."""
        positions = chunk.batches["position"][first:last]
        begin = first
        for run in self._overlapping(chunk.path, int(positions[0]), int(positions[-1])):
            low = first + int(np.searchsorted(positions, run.first_position))
            high = first + int(np.searchsorted(positions, run.positions[-1], side="right"))
            if low == high:
                continue
            at = int(np.searchsorted(run.positions, positions[low - first]))
            same = run.same(chunk.batches[low:high], at)
            borders = [0, *(np.flatnonzero(same[1:] != same[:-1]) + 1).tolist(), high - low]
            for i, stop in pairwise(borders):
                if same[i]:
                    if begin < low + i:
                        yield Stretch(begin, low + i)
                    begin = low + stop
                    yield Stretch(low + i, begin, run.arena, run.bounds[at + i : at + stop + 1])
        if begin < last:
            yield Stretch(begin, last)

    def _overlapping(self, path: Path, first: int, last: int) -> list[_Run]:
        """The runs with batches between two positions."""
        with self._lock:
            runs = self._runs.get(path, [])
            low = max(bisect_right(runs, first, key=_first_position) - 1, 0)
            return runs[low : bisect_right(runs, last, key=_first_position)]
