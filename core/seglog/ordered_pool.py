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
_BYTES_A_THREAD = 6 << 20  # twice the chunk, arena, rows and output of an ordinary task
# The most bytes that large items may hold together before their turn.
LARGE_BYTES = 32 << 20


# --- bytes in flight


def bytes_in_flight(jobs: int) -> int:
    """Returns the limit for `jobs` threads, large enough that ordinary batches never wait."""
    return max(_LEAST_BYTES, jobs * _BYTES_A_THREAD)


class MemoryBudget:
    """A limit in bytes, shared by the accounts of a command."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._taken = 0
        self._open: deque[Account] = deque()

    def account(self) -> Account:
        """Opens an account that comes after all open ones."""
        with self._changed:
            self._open.append(Account(self))
            return self._open[-1]

    @property
    def is_full(self) -> bool:
        """True if nothing more can be taken out of turn."""
        with self._changed:
            return self._taken >= self._limit

    def wait_for_room(self) -> None:
        """Waits until something may be taken out of turn, or no account is open."""
        with self._changed:
            while self._open and self._taken >= self._limit:
                self._changed.wait()

    def lift(self) -> None:
        """Removes the limit, so that no thread waits; for work that is being aborted."""
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
    """The memory held by one piece of work. Used by one thread at a time."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held = 0
        self._closed = False

    def take(self, size: int) -> None:
        """Waits until `size` more bytes may be held, and counts them."""
        self._budget._take(self, size, waiting=True)
        self._held += size

    def hold(self, size: int) -> None:
        """Counts `size` bytes that are already held, without waiting."""
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
    """The account of work without other work beside it. It is always first, so it counts and locks nothing."""

    def __init__(self) -> None:
        """Needs no budget."""

    def take(self, size: int) -> None:
        """Returns at once."""

    def hold(self, size: int) -> None:
        """Counts nothing."""

    @property
    def may_go_on(self) -> bool:
        """True."""
        return True

    def give(self, size: int) -> None:
        """Has nothing to give back."""

    def close(self) -> None:
        """Has nothing to give back."""


_ALONE = _Alone()


def unlimited() -> Account:
    """Returns the account for work without other work beside it."""
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
    """Passes the result of `work(item, account)` for each item to `take`, one at a time, in the items' order.

    With a pool, `threads` of its threads do the work, and at most `ahead` items are in progress. `held` returns the
    bytes that a large item holds after it is read. As soon as an item's result is taken, its account is closed, and its
    memory may be reused. The first error of an item, its work or `take`, in the items' order, is raised once the work
    in progress has ended. Without a pool, all items share `account`.
    """
    if pool is None:
        own = account or unlimited()
        for item in items:
            take(work(item, own))
            del item  # not held while the next item is read
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
    """The outcome of item `number`: a result or an error."""

    number: int
    account: Account
    result: R | None = None
    error: BaseException | None = None


@dataclass
class _Line(Generic[T, R]):
    """Items that are read one after another, worked on in any order, and taken in turn."""

    work: Callable[[T, Account], R]
    source: Iterator[T]
    ahead: int
    take: Callable[[R], None]
    held: Callable[[T], int] | None
    error: BaseException | None = None
    _read: int = 0  # number of items read so far
    _turn: int = 0  # number of the item to take next
    _taking: bool = False
    _ended: bool = False  # nothing more is read
    _early: dict[int, _Done[R]] = field(default_factory=dict)  # results that came before their turn
    _reading: threading.Lock = field(default_factory=threading.Lock)
    _moved: threading.Condition = field(default_factory=threading.Condition)
    _budget: MemoryBudget = field(default_factory=lambda: MemoryBudget(LARGE_BYTES))

    def run(self) -> None:
        """Works until no item is left, or until stopped."""
        while (done := self._next()) is not None:
            with self._moved:
                self._early[done.number] = done
            del done
            self._take_those_ready()

    def stop(self) -> None:
        """Lets every thread end after its current item."""
        self._end()
        self._budget.lift()

    def _end(self) -> None:
        with self._moved:
            self._ended = True
            self._moved.notify_all()

    def _next(self) -> _Done[R] | None:
        """Reads and works on the next item; returns None if there is none."""
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
            del done  # only the taker still holds the result
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
    """Returns the number of cores available to this process."""
    available = getattr(os, "sched_getaffinity", None)  # not on every system; it respects a container's limits
    return len(available(0)) if available else os.cpu_count() or 1
