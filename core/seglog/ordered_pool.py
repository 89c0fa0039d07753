"""Working on chunks under a few threads, and taking the results in order (kernels and codecs release the GIL).

The threads do all of it: they take the items, one at a time, so that reading and deciding go on in the order of the
log; they work on them side by side; and whoever has the result whose turn it is gives it to its taker, with those
after it that are ready. So as many threads run as there are cores for, and none only waits.

Ordinary items are small enough that many may wait for their turn. Large ones count: each item has an account
(`memory_budget`), and while too much is held none is read ahead, and none is expanded before its turn. So a log of
large batches is worked on one batch after the other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from seglog.memory_budget import Account, MemoryBudget, unlimited

T = TypeVar("T")
R = TypeVar("R")

# What items that are larger than ordinary ones may hold together before their turn.
LARGE_BYTES = 32 << 20


def in_order(
    pool: Executor | None,
    threads: int,
    work: Callable[[T, Account], R],
    items: Iterable[T],
    ahead: int,
    take: Callable[[R], None],
    *,
    held: Callable[[T], int] | None = None,
    account: Account | None = None,
) -> None:
    """Gives `take` the result of `work(item, account)` for each item: one at a time, in the items' order.

    With a pool `threads` of its threads do it, and at most `ahead` items are out at once. `held` says how many bytes an
    item that was read holds, where it is large. An item's memory may be reused as soon as its result was taken; then
    its account is closed. The first error, in the items' order, of an item, of its work or of `take` ends all of it,
    after what was begun has ended. Without a pool all count in `account`.
    """
    if pool is None:
        own = account or unlimited()
        for item in items:
            take(work(item, own))
            del item  # a large one is not held while the next one is read
        return
    line = _Line(work, iter(items), ahead, take, held)
    running = [pool.submit(line.run) for _ in range(threads)]
    try:
        wait(running)
    finally:
        line.stop()
        wait(running)
    if line.error is not None:
        raise line.error


@dataclass(frozen=True, slots=True)
class _Done(Generic[R]):
    """What became of item `number`: a result or an error."""

    number: int
    account: Account
    result: R | None = None
    error: BaseException | None = None


@dataclass
class _Line(Generic[T, R]):
    """Items that are read one after the other, worked on in any order, and taken in turn."""

    work: Callable[[T, Account], R]
    source: Iterator[T]
    ahead: int
    take: Callable[[R], None]
    held: Callable[[T], int] | None
    error: BaseException | None = None
    _read: int = 0  # items so far
    _turn: int = 0  # of the item to take next
    _taking: bool = False
    _ended: bool = False  # nothing more is read
    _early: dict[int, _Done[R]] = field(default_factory=dict)  # results that came before their turn
    _reading: threading.Lock = field(default_factory=threading.Lock)
    _moved: threading.Condition = field(default_factory=threading.Condition)
    _budget: MemoryBudget = field(default_factory=lambda: MemoryBudget(LARGE_BYTES))

    def run(self) -> None:
        """Works until nothing is left, or it is stopped."""
        while (done := self._next()) is not None:
            with self._moved:
                self._early[done.number] = done
            del done
            self._take_those_ready()

    def stop(self) -> None:
        """Lets everybody end with what is begun."""
        self._end()
        self._budget.lift()

    def _end(self) -> None:
        with self._moved:
            self._ended = True
            self._moved.notify_all()

    def _next(self) -> _Done[R] | None:
        """The next item, worked on; None when there is none."""
        with self._reading:
            with self._moved:
                while not self._ended and self._read - self._turn >= self.ahead:
                    self._moved.wait()
            self._budget.wait_for_room()
            if self._ended:
                return None
            number, own = self._read, self._budget.account()
            self._read += 1
            try:
                item = next(self.source)
                own.hold(0 if self.held is None else self.held(item))
            except StopIteration:
                own.close()
                self._end()
                return None
            except BaseException as error:  # noqa: BLE001 (raised in its turn)
                return _Done(number, own, error=error)
        try:
            return _Done(number, own, self.work(item, own))
        except BaseException as error:  # noqa: BLE001 (raised in its turn)
            return _Done(number, own, error=error)

    def _take_those_ready(self) -> None:
        while True:
            with self._moved:
                if self._taking or self.error is not None or self._turn not in self._early:
                    return
                self._taking = True
                done = self._early.pop(self._turn)
            error = self._taken(done)
            account = done.account
            del done  # nothing holds a result but its taker
            account.close()
            with self._moved:
                self._taking = False
                self._turn += 1
                self.error = error
                self._moved.notify_all()
            if error is not None:
                self.stop()

    def _taken(self, done: _Done[R]) -> BaseException | None:
        if done.error is None:
            try:
                self.take(done.result)  # type: ignore[arg-type]  # there is no error
            except BaseException as error:  # noqa: BLE001 (raised by `in_order`)
                return error
        return done.error


def available_threads() -> int:
    """As many threads as there are cores for this process."""
    available = getattr(os, "sched_getaffinity", None)  # not everywhere; it knows of a container's limits
    return len(available(0)) if available else os.cpu_count() or 1
