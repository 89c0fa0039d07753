"""Ordered work under a few threads: items in the order of the log, results in the same order, memory within a limit.

The threads do all the work (kernels and codecs release the GIL). They take the items one at a time, so reading and
deciding follow the order of the log, and work on them side by side. The thread that has the next result in order hands
it to the taker, with those after it that are ready. So there are as many running threads as cores, and none only waits.

Each item has an `Account`, opened when the item is handed out. What it takes counts against one limit, a
`MemoryBudget`. Work that would exceed the limit waits until others have given enough back, or until its turn has come:
until all work before it is done. So the first in line never waits, nothing can wait forever, and memory is bounded by
the limit plus the one item that is first. Work by a single thread needs no account: it is always first.

In `in_order`, ordinary items are small enough that many may wait for their turn, and count nothing. Large ones count:
while too much is held, none is read ahead and none is expanded before its turn. So a log of large batches is worked on
one batch after the other.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, wait
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

from seglog.layout import INT64_MAX

T = TypeVar("T")
R = TypeVar("R")

_LEAST_BYTES = 64 << 20
_BYTES_A_THREAD = 6 << 20  # chunk, arena, rows and output of an ordinary task, twice
# What items that are larger than ordinary ones may hold together before their turn.
LARGE_BYTES = 32 << 20


# --- bytes in flight


def bytes_in_flight(jobs: int) -> int:
    """The limit for so many threads: large enough that ordinary batches never wait."""
    return max(_LEAST_BYTES, jobs * _BYTES_A_THREAD)


class MemoryBudget:
    """A limit in bytes that the accounts of one command share."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._taken = 0
        self._open: deque[Account] = deque()

    def account(self) -> Account:
        """An account that comes after all that are open."""
        with self._changed:
            self._open.append(Account(self))
            return self._open[-1]

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be taken out of turn."""
        with self._changed:
            return self._taken >= self._limit

    def wait_for_room(self) -> None:
        """Returns when something may be taken out of turn, or nothing is held at all."""
        with self._changed:
            while self._open and self._taken >= self._limit:
                self._changed.wait()

    def lift(self) -> None:
        """Lets everybody go on: the work is being given up."""
        with self._changed:
            self._limit = INT64_MAX
            self._changed.notify_all()

    def _take(self, account: Account, size: int, waiting: bool) -> None:
        with self._changed:
            while waiting and self._taken + size > self._limit and not self._is_first(account):
                self._changed.wait()
            self._taken += size

    def _is_first(self, account: Account) -> bool:
        return not self._open or self._open[0] is account

    def _may_go_on(self, account: Account) -> bool:
        with self._changed:
            return self._taken < self._limit or self._is_first(account)

    def _give(self, account: Account, size: int, closing: bool) -> None:
        with self._changed:
            self._taken -= size
            if closing:
                self._open.remove(account)
            self._changed.notify_all()


class Account:
    """What one piece of work holds. Used by one thread at a time."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held = 0
        self._closed = False

    def take(self, size: int) -> None:
        """Returns when `size` bytes more may be held."""
        self._budget._take(self, size, waiting=True)
        self._held += size

    def hold(self, size: int) -> None:
        """Counts `size` bytes that are there already."""
        self._budget._take(self, size, waiting=False)
        self._held += size

    @property
    def may_go_on(self) -> bool:
        """Whether there is room for more, or its turn has come."""
        return self._budget._may_go_on(self)

    def give(self, size: int) -> None:
        """Gives bytes back."""
        self._held -= size
        self._budget._give(self, size, closing=False)

    def close(self) -> None:
        """Gives everything back; the account after it is next. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._budget._give(self, self._held, closing=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Alone(Account):
    """The account of work that nothing goes on beside. It is always first, so there is nothing to count or to lock."""

    def __init__(self) -> None:
        """Needs no budget."""

    def take(self, size: int) -> None:
        """Returns at once."""

    def hold(self, size: int) -> None:
        """Counts nothing."""

    @property
    def may_go_on(self) -> bool:
        """Always."""
        return True

    def give(self, size: int) -> None:
        """Has nothing to give back."""

    def close(self) -> None:
        """Has nothing to give back."""


_ALONE = _Alone()


def unlimited() -> Account:
    """The account of work that nothing goes on beside."""
    return _ALONE


# --- work in order


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
