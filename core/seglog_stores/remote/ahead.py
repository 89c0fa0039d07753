"""Detects sequential reads of an object, and decides which bytes to fetch ahead.

Several threads may read one open file, each through its own part; each such sequence of reads is a walk. A walk is
identified by the end of its last read; an announced walk, by its first byte. All announced walks of a process share
half of the cache, so that bytes fetched for one do not evict those that another has not read yet. Bytes that an
announced walk has passed are not read again, unless it was announced so; their memory is freed at once.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from seglog_stores.remote.limits import Limits

_WALKS = 16  # of one file at a time


class AnnouncedWalks:
    """The number of announced walks in the process. Thread-safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._count, self._guard = limits, 0, threading.Lock()

    def add(self, count: int) -> None:
        """Changes the number by `count`."""
        with self._guard:
            self._count += count

    @property
    def window(self) -> int:
        """The bytes that each walk may be ahead."""
        share = self._limits.cache_bytes // 2 // max(1, self._count)
        return min(self._limits.ahead_bytes, max(share, self._limits.block_bytes))


@dataclass(frozen=True, slots=True)
class Step:
    """The consequence of a read: fetch bytes `begin` to `end` (none if equal), and free bytes `passed` to `reached`."""

    begin: int
    end: int
    passed: int = 0
    reached: int = 0


@dataclass(slots=True)
class _Walk:
    """A walk that has read up to `next` and fetched up to `ahead`. An announced walk ends at `stop`, and its bytes up
    to `passed` are freed (None: they are kept).
    """

    next: int
    window: int = 0
    ahead: int = 0
    stop: int | None = None
    passed: int | None = 0


class ReadAhead:
    """The walks through one open file. Thread-safe."""

    def __init__(self, limits: Limits, announced: AnnouncedWalks) -> None:
        self._limits, self._announced = limits, announced
        self._walks: list[_Walk] = []  # the most recently used one is last
        self._guard = threading.Lock()

    def announce(self, start: int, stop: int, *, again: bool = False) -> tuple[int, int]:
        """Announces a sequential read of bytes `start` to `stop`, once or (`again`) repeatedly. Returns the bytes
        (first, stop) to fetch now.
        """
        with self._guard:
            if stop - start <= self._limits.block_bytes:
                return start, stop if self._limits.ahead_bytes else start
            walk = _Walk(start, stop=stop, passed=None if again else start)
            self._announced.add(1)
            self._add(walk)
            return self._asked(walk)

    def read(self, start: int, end: int) -> Step:
        """Records a read."""
        with self._guard:
            walk = self._walk_at(start)
            if walk is None:
                self._add(_Walk(end))
                return Step(end, end)
            if end <= walk.next:
                return Step(end, end)
            walk.next = end
            begin, stop = self._asked(walk)
            if walk.stop is None:
                return Step(begin, stop)
            is_over, passed = end >= walk.stop, walk.passed
            if is_over:
                self._drop(walk)
            if passed is None:
                return Step(begin, stop)
            reached = passed
            if is_over:
                reached = end
            elif start - passed >= self._limits.run_bytes:
                reached = start - start % self._limits.run_bytes
            walk.passed = reached
            return Step(begin, stop, passed, reached)

    def close(self) -> None:
        """Ends all walks."""
        with self._guard:
            while self._walks:
                self._drop(self._walks[0])

    def _asked(self, walk: _Walk) -> tuple[int, int]:
        limits = self._limits
        if walk.stop is None:
            walk.window = min(limits.ahead_bytes, max(2 * walk.window, limits.request_bytes // 4))
            stop = walk.next + walk.window
        else:
            walk.window = self._announced.window
            stop = min(walk.next + walk.window, walk.stop)
        begin = max(walk.next, walk.ahead)
        if stop != walk.stop and stop - stop % limits.run_bytes > begin:
            stop -= stop % limits.run_bytes  # whole requests
        if begin >= min(walk.next + walk.window // 2, stop):
            return begin, begin
        walk.ahead = stop
        return begin, stop

    def _walk_at(self, start: int) -> _Walk | None:
        """Returns the walk that a read from `start` continues. Reads may overlap, and skip a little."""
        near = self._limits.block_bytes
        for walk in reversed(self._walks):
            if walk.next - near <= start <= walk.next + near:
                self._walks.remove(walk)
                self._walks.append(walk)
                return walk
        return None

    def _add(self, walk: _Walk) -> None:
        self._walks.append(walk)
        if len(self._walks) > _WALKS:
            self._drop(self._walks[0])

    def _drop(self, walk: _Walk) -> None:
        self._walks.remove(walk)
        if walk.stop is not None:
            self._announced.add(-1)
