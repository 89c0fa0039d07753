"""Blocks of remote objects: a bounded cache of them, and the requests that bring them.

Objects are read in blocks of one size. A read takes from the cache what is there, waits for what is on its way, and
asks for the rest: neighbouring blocks in one request, several requests at once. One `Blocks` serves a process, so that
its bounds hold whatever reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    future: Future[Sequence[bytes]]


class _Settling:
    """What goes wrong inside is what whoever waits for `future` gets."""

    def __init__(self, future: Future[Sequence[bytes]]) -> None:
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
        self._cache = BytesCache[_Key](limits.cache_bytes)
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
        for run in runs:
            for number, data in enumerate(run.future.result(), run.first):
                here.setdefault(number, data)
        for number in range(first, last + 1):
            block, start = here[number], number * size
            begin, end = max(position, start), min(position + view.nbytes, start + len(block))
            view[begin - position : end - position] = memoryview(block)[begin - start : end - start]

    def read_ahead(self, source: Source, start: int, end: int) -> None:
        """Lets the blocks of bytes `start` to `end` come while something else is done."""
        size = self.limits.block_bytes
        if start < min(end, source.size):
            for run in self._taken(source, start // size, (min(end, source.size) - 1) // size)[2]:
                self._pool().submit(self._bring, run)

    def _taken(self, source: Source, first: int, last: int) -> tuple[dict[int, bytes], list[_Run], list[_Run]]:
        """Of blocks `first` to `last` those that are here, the runs that bring others, and those of them to begin."""
        most = max(1, self.limits.request_bytes // self.limits.block_bytes)
        here: dict[int, bytes] = {}
        runs: dict[int, _Run] = {}
        mine: list[_Run] = []
        missing: list[int] = []
        with self._guard:
            for number in range(first, last + 1):
                key = (source.identity, number)
                data, run = self._cache.get(key), self._coming.get(key)
                if data is not None:
                    here[number] = data
                elif run is not None:
                    runs[id(run)] = run
                else:
                    missing.append(number)
            while missing:
                count = 1
                while count < min(most, len(missing)) and missing[count] == missing[0] + count:
                    count += 1
                run = _Run(source, missing[0], missing[count - 1], Future())
                mine.append(run)
                runs[id(run)] = run
                self._coming.update({(source.identity, number): run for number in missing[:count]})
                del missing[:count]
        return here, list(runs.values()), mine

    def _bring(self, run: _Run) -> None:
        size, source = self.limits.block_bytes, run.source
        start = run.first * size
        with _Settling(run.future), self._arriving(run):
            with memoryview(source.fetch(start, min((run.last + 1) * size, source.size) - start)) as data:
                found = [bytes(data[at : at + size]) for at in range(0, data.nbytes, size)]
            with self._guard:
                for number, block in enumerate(found, run.first):
                    self._cache.put((source.identity, number), block)
            run.future.set_result(found)

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
