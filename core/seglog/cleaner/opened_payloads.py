"""Keeps payloads that the index has decompressed ("opened"), so that the copy need not decompress them again.

They use the part of the dedupe buffer that the offset map leaves free: as many as fit, from the start of the dirty
section on. When the map grows, the newest ones are dropped.
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
_BYTES_A_BATCH = 40  # in the columns of a `_OpenedRun`

_first_position = attrgetter("first_position")


@dataclass(slots=True, eq=False)
class _Slab:
    """A block of memory, handed out from its start. Pages that were never written take no memory."""

    memory: np.ndarray
    used: int = 0
    counted: int = 0  # bytes that count against the limit
    runs: list[tuple[Path, _OpenedRun]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Space:
    """Room for payloads: an `arena` in a slab, which nobody else uses until it comes back."""

    arena: np.ndarray
    slab: _Slab


@dataclass(frozen=True, slots=True, eq=False)
class _OpenedRun:
    """Neighbouring batches. Batch i has the payload `arena[bounds[i]:bounds[i + 1]]` if `is_open[i]`."""

    first_position: int
    positions: np.ndarray
    sizes: np.ndarray
    checksums: np.ndarray
    is_open: np.ndarray
    arena: np.ndarray
    bounds: np.ndarray

    def same(self, rows: np.ndarray, at: int) -> np.ndarray:
        """Returns True (bool) for each of `rows` (layout.BATCH) that is the batch from `at` on and has its payload."""
        stop = at + len(rows)
        found = np.zeros(len(rows), dtype=bool)
        if stop <= len(self.positions):
            found[:] = self.is_open[at:stop]
            found &= rows["position"] == self.positions[at:stop]
            found &= rows["size"] == self.sizes[at:stop]
            found &= rows["crc"] == self.checksums[at:stop]
        return found


@dataclass(frozen=True, slots=True)
class OpenedBatches:
    """Batches [`first`, `last`) of a chunk; with an `arena`, batch `first + i` has `arena[bounds[i]:bounds[i + 1]]`."""

    first: int
    last: int
    arena: np.ndarray | None = None
    bounds: np.ndarray | None = None


class OpenedPayloads:
    """Payloads of at most `limit` bytes in total, found by batch position. Safe for several threads."""

    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._limit, self._counted = limit, 0
        self._slabs: list[_Slab] = []
        self._spare: list[_Slab] = []  # have room for more and are not in use
        self._runs: dict[Path, list[_OpenedRun]] = {}
        self._ended = False

    # --- keeping

    def space(self, size: int) -> Space | None:
        """Returns room for `size` bytes, to be given back to `keep`, or None if there is none."""
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
        """Keeps the payloads of those `rows` (layout.BATCH of the file `path`) for which `is_open` is True.

        Batch i has `space.arena[bounds[i]:bounds[i + 1]]`. The rest of the space becomes free again.
        """
        used = int(bounds[-1])
        slab = space.slab
        with self._lock:
            if slab not in self._slabs:
                return  # dropped in the meantime
            more = used + len(rows) * _BYTES_A_BATCH - len(space.arena)
            slab.counted += more
            self._counted += more
            slab.used += used
            self._spare.append(slab)
            if len(rows):
                run = _OpenedRun(
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
        """Sets a new limit and drops the newest payloads until the rest is within it."""
        with self._lock:
            self._limit = limit
            self._let_go(limit)

    def end(self) -> None:
        """Stops keeping more payloads."""
        with self._lock:
            self._ended = True

    def give_way(self) -> None:
        """Drops everything for good: a batch that is processed alone takes as much memory as all payloads here."""
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

    # --- finding

    def stretches(self, chunk: Chunk, first: int, last: int) -> Iterator[OpenedBatches]:
        """Yields batches [`first`, `last`) of a chunk in order, as stretches with and without kept payloads."""
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
                        yield OpenedBatches(begin, low + i)
                    begin = low + stop
                    yield OpenedBatches(low + i, begin, run.arena, run.bounds[at + i : at + stop + 1])
        if begin < last:
            yield OpenedBatches(begin, last)

    def _overlapping(self, path: Path, first: int, last: int) -> list[_OpenedRun]:
        """Returns the runs with batches between two positions."""
        with self._lock:
            runs = self._runs.get(path, [])
            low = max(bisect_right(runs, first, key=_first_position) - 1, 0)
            return runs[low : bisect_right(runs, last, key=_first_position)]
