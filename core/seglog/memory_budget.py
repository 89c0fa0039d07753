"""Bytes in flight: what several threads may hold together of decompressed and decoded data.

Work on a log is handed out in the log's order and its results are taken in that order. Each piece of work has an
`Account`, opened when it is handed out. What it takes counts against one limit; work that would go beyond it waits
until others have given enough back, or until its turn has come: until all work before it is done. So the first in line
never waits, nothing can wait for ever, and memory is bounded by the limit and by the one piece of work that is first.

Work by a single thread needs no account: it is always first.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Self

from seglog.layout import INT64_MAX

_LEAST_BYTES = 64 << 20
_BYTES_A_THREAD = 6 << 20  # chunk, arena, rows and output of an ordinary task, twice


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
