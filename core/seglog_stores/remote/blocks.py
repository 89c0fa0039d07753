"""A bounded cache for blocks of remote objects, and the requests that fetch them.

Objects are read in blocks of one size. A read takes blocks from the cache, waits for those on their way, and requests
the rest: neighbouring blocks in one request (a run), several requests at once. A run is cached and evicted as a whole.
One `Blocks` serves the whole process, so its bounds hold for all readers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seglog_stores.remote.ahead import AnnouncedWalks
from seglog_stores.remote.bytes_cache import BytesCache
from seglog_stores.remote.limits import Limits

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@dataclass(frozen=True, slots=True)
class Source:
    """One version of an object. `identity` is unique to it; `fetch(start, size)` returns bytes that it has."""

    identity: tuple[str, str]
    size: int
    fetch: Callable[[int, int], ReadableBuffer]


_Key = tuple[tuple[str, str], int]  # a source's identity, the number of a block


@dataclass(frozen=True, slots=True)
class _BlockRun:
    """Blocks `first` to `last` of a source, on their way; `future` returns them."""

    source: Source
    first: int
    last: int
    future: Future[memoryview]


class Blocks:
    """The blocks of all remote objects that this process reads."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.announced = AnnouncedWalks(limits)
        self._cache = BytesCache[_Key, memoryview](limits.cache_bytes)  # runs, by their first blocks
        self._held: dict[_Key, list[_Key]] = {}  # the blocks of each run in the cache
        self._begin: dict[_Key, _Key] = {}  # block → first block of its run
        self._coming: dict[_Key, _BlockRun] = {}
        self._guard = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        # readers ask for themselves, too: with the threads they would be more than may ask at once
        self._asking = threading.BoundedSemaphore(limits.requests_at_once)

    @property
    def held(self) -> int:
        """The bytes in the cache."""
        return self._cache.held

    def read_into(self, source: Source, position: int, view: memoryview) -> None:
        """Fills `view` from `position`. The source must have that many bytes."""
        size = self.limits.block_bytes
        first, last = position // size, (position + view.nbytes - 1) // size
        here, runs, mine = self._taken(source, first, last)
        for run in mine[:-1]:
            self._pool().submit(self._bring, run)
        if mine:
            self._bring(mine[-1])
        for start, data in (*here, *((run.first * size, run.future.result()) for run in runs)):
            begin, end = max(position, start), min(position + view.nbytes, start + data.nbytes)
            view[begin - position : end - position] = data[begin - start : end - start]

    def lend(self, source: Source, position: int, most: int) -> memoryview:
        """Lends at most that many bytes from `position`, which the source has, out of one run, without a copy."""
        size = self.limits.block_bytes
        first, last = position // size, (position + most - 1) // size
        with self._guard:
            begin = self._begin.get((source.identity, first))
            held = None if begin is None else self._cache.get(begin)
        if begin is not None and held is not None:
            start = position - begin[1] * size
            return held[start : start + most].toreadonly()
        _, runs, mine = self._taken(source, first, last)
        for run in mine:
            if run.first > first:
                self._pool().submit(self._bring, run)
            else:
                self._bring(run)
        wanted = next((each for each in runs if each.first <= first <= each.last), None)
        if wanted is None:  # it has arrived meanwhile
            return self.lend(source, position, most)
        start = position - wanted.first * size
        return wanted.future.result()[start : start + most].toreadonly()

    def read_ahead(self, source: Source, start: int, end: int) -> None:
        """Fetches the blocks of bytes `start` to `end` in the background."""
        size = self.limits.block_bytes
        if start < min(end, source.size):
            for run in self._taken(source, start // size, (min(end, source.size) - 1) // size)[2]:
                self._pool().submit(self._bring, run)

    def give_up(self, source: Source, start: int, end: int) -> None:
        """Frees the runs that lie completely in bytes `start` to `end`."""
        if start >= end:
            return
        size = self.limits.block_bytes
        with self._guard:
            for number in range(-(-start // size), end // size):
                blocks = self._held.get((source.identity, number), [])
                if blocks and (blocks[-1][1] + 1) * size <= end:
                    self._cache.drop(blocks[0])
                    del self._held[blocks[0]]
                    for block in blocks:
                        del self._begin[block]

    def _taken(
        self, source: Source, first: int, last: int
    ) -> tuple[list[tuple[int, memoryview]], list[_BlockRun], list[_BlockRun]]:
        """Returns the cached data of blocks `first` to `last` by position, the runs that fetch the others, and those of
        them that the caller must start.
        """
        size = self.limits.block_bytes
        most = max(1, self.limits.run_bytes // size)
        here: dict[int, memoryview] = {}
        runs: dict[int, _BlockRun] = {}
        mine: list[_BlockRun] = []
        missing: list[int] = []
        with self._guard:
            for number in range(first, last + 1):
                key = (source.identity, number)
                begin, run = self._begin.get(key), self._coming.get(key)
                data = None if begin is None else self._cache.get(begin)
                if begin is not None and data is not None:
                    here[begin[1] * size] = data
                elif run is not None:
                    runs[id(run)] = run
                else:
                    missing.append(number)
            while missing:
                count = 1
                while count < len(missing) and missing[count] == missing[0] + count and missing[count] % most:
                    count += 1
                run = _BlockRun(source, missing[0], missing[count - 1], Future())
                mine.append(run)
                runs[id(run)] = run
                self._coming.update({(source.identity, number): run for number in missing[:count]})
                del missing[:count]
        return list(here.items()), list(runs.values()), mine

    def _bring(self, run: _BlockRun) -> None:
        """Fetches a run into the cache; `future` gets the data, or the error."""
        size, source = self.limits.block_bytes, run.source
        start, blocks = run.first * size, [(source.identity, number) for number in range(run.first, run.last + 1)]
        try:
            try:
                with self._asking:
                    fetched = source.fetch(start, min((run.last + 1) * size, source.size) - start)
                data = memoryview(fetched).cast("B")
                with self._guard:
                    self._held[blocks[0]] = blocks
                    self._begin.update(dict.fromkeys(blocks, blocks[0]))
                    for gone in self._cache.put(blocks[0], data):
                        for block in self._held.pop(gone):
                            del self._begin[block]
            finally:
                with self._guard:
                    for block in blocks:
                        del self._coming[block]
        except BaseException as error:  # noqa: BLE001 (the threads that wait for the run raise it)
            run.future.set_exception(error)
        else:
            run.future.set_result(data)

    def _pool(self) -> ThreadPoolExecutor:
        with self._guard:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.limits.requests_at_once, thread_name_prefix="seglog-remote")
            return self._threads
