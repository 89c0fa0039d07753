"""Blocks of remote objects: a bounded cache of them, and the requests that bring them.

Objects are read in blocks of one size. A read takes from the cache what is there, waits for what is on its way, and
asks for the rest: neighbouring blocks in one request, a run, several requests at once. A run is held as it came, and
goes as a whole. One `Blocks` serves a process, so that its bounds hold whatever reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seglog.remote.ahead import AnnouncedWalks
from seglog.remote.limits import Limits
from seglog.storage.bytes_cache import BytesCache

if TYPE_CHECKING:
    from types import TracebackType

    from _typeshed import ReadableBuffer


@dataclass(frozen=True, slots=True)
class Source:
    """One version of an object: `identity` is that of no other, `fetch(start, size)` brings bytes it has."""

    identity: tuple[str, str]
    size: int
    fetch: Callable[[int, int], ReadableBuffer]


_Key = tuple[tuple[str, str], int]  # a source's identity, the number of a block


@dataclass(frozen=True, slots=True)
class _Run:
    """Blocks `first` to `last` of a source, on their way; `future` gives them."""

    source: Source
    first: int
    last: int
    future: Future[memoryview]


class _Settling:
    """What goes wrong inside is what whoever waits for `future` gets."""

    def __init__(self, future: Future[memoryview]) -> None:
        self._future = future

    def __enter__(self) -> None:
        """Nothing begins."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is not None:
            self._future.set_exception(error)
        return error is not None


class Blocks:
    """The blocks of all remote objects that this process reads."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.announced = AnnouncedWalks(limits)
        self._cache = BytesCache[_Key, memoryview](limits.cache_bytes)  # runs, by their first blocks
        self._held: dict[_Key, list[_Key]] = {}  # the blocks of each run in the cache
        self._begin: dict[_Key, _Key] = {}  # the first block of the run that a block is held in
        self._coming: dict[_Key, _Run] = {}
        self._guard = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    @property
    def held(self) -> int:
        """Bytes in the cache."""
        return self._cache.held

    def read_into(self, source: Source, position: int, view: memoryview) -> None:
        """Fills `view` from `position`; the source has that many bytes."""
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
        """At most that many bytes from `position`, which the source has, out of one run: where it came to lie."""
        size = self.limits.block_bytes
        first, last = position // size, (position + most - 1) // size
        held = self._run_with((source.identity, first))
        if held is not None:
            start = position - held[0] * size
            return held[1][start : start + most].toreadonly()
        _, runs, mine = self._taken(source, first, last)
        for run in mine:
            if run.first > first:
                self._pool().submit(self._bring, run)
            else:
                self._bring(run)
        wanted = next((each for each in runs if each.first <= first <= each.last), None)
        if wanted is None:  # it came meanwhile
            return self.lend(source, position, most)
        start = position - wanted.first * size
        return wanted.future.result()[start : start + most].toreadonly()

    def read_ahead(self, source: Source, start: int, end: int) -> None:
        """Lets the blocks of bytes `start` to `end` come while something else is done."""
        size = self.limits.block_bytes
        if start < min(end, source.size):
            for run in self._taken(source, start // size, (min(end, source.size) - 1) // size)[2]:
                self._pool().submit(self._bring, run)

    def give_up(self, source: Source, start: int, end: int) -> None:
        """Gives back the memory of the runs that lie in bytes `start` to `end` whole."""
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

    def _run_with(self, block: _Key) -> tuple[int, memoryview] | None:
        """The run that holds a block: the number of its first block, its bytes. None where it is not here."""
        with self._guard:
            begin = self._begin.get(block)
            data = None if begin is None else self._cache.get(begin)
        return None if begin is None or data is None else (begin[1], data)

    def _taken(
        self, source: Source, first: int, last: int
    ) -> tuple[list[tuple[int, memoryview]], list[_Run], list[_Run]]:
        """Of blocks `first` to `last` those that are here, by positions, the runs that bring others, and those of them
        to begin.
        """
        size = self.limits.block_bytes
        most = max(1, self.limits.run_bytes // size)
        here: dict[int, memoryview] = {}
        runs: dict[int, _Run] = {}
        mine: list[_Run] = []
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
                run = _Run(source, missing[0], missing[count - 1], Future())
                mine.append(run)
                runs[id(run)] = run
                self._coming.update({(source.identity, number): run for number in missing[:count]})
                del missing[:count]
        return list(here.items()), list(runs.values()), mine

    def _bring(self, run: _Run) -> None:
        size, source = self.limits.block_bytes, run.source
        start = run.first * size
        with _Settling(run.future), self._arriving(run):
            data = memoryview(source.fetch(start, min((run.last + 1) * size, source.size) - start)).cast("B")
            with self._guard:
                self._hold(run, data)
            run.future.set_result(data)

    def _hold(self, run: _Run, data: memoryview) -> None:
        blocks = [(run.source.identity, number) for number in range(run.first, run.last + 1)]
        self._held[blocks[0]] = blocks
        self._begin.update(dict.fromkeys(blocks, blocks[0]))
        for gone in self._cache.put(blocks[0], data):
            for block in self._held.pop(gone):
                del self._begin[block]

    @contextmanager
    def _arriving(self, run: _Run) -> Iterator[None]:
        try:
            yield
        finally:
            with self._guard:
                for number in range(run.first, run.last + 1):
                    del self._coming[run.source.identity, number]

    def _pool(self) -> ThreadPoolExecutor:
        with self._guard:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.limits.requests_at_once, thread_name_prefix="seglog-remote")
            return self._threads
