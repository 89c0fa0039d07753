"""Working on chunks ahead of the reader, in order, under a few threads (kernels and codecs release the GIL).

The threads also take the items themselves, one at a time: reading and deciding go on in the order of the log while
earlier chunks are worked on. Ordinary items are small enough that many may wait for their turn. Large ones count: each
item has an account (`memory_budget`), and while too much is held none is read ahead, and none is expanded before its
turn. So a log of large batches is worked on one batch after the other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from seglog.memory_budget import Account, MemoryBudget, unlimited

T = TypeVar("T")
R = TypeVar("R")

# What items that are larger than ordinary ones may hold together before their turn.
LARGE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class _Done(Generic[R]):
    """What became of item `number`: a result or an error."""

    number: int
    account: Account
    result: R | None = None
    error: BaseException | None = None


def in_order(
    pool: Executor | None,
    work: Callable[[T, Account], R],
    items: Iterable[T],
    ahead: int,
    *,
    held: Callable[[T], int] | None = None,
    account: Account | None = None,
) -> Iterator[R]:
    """`work(item, account)` for each item, in the items' order; with a pool at most `ahead` items are out at once.

    `held` says how many bytes an item that was read holds, where it is large. An item's memory may be reused as soon as
    its result was taken and the next one is asked for; then its account is closed. The first error in the items' order
    ends the iteration, after what was begun has ended. Without a pool all count in `account`.
    """
    if pool is None:
        own = account or unlimited()
        yield from (work(item, own) for item in items)
        return
    source, numbers, lock, budget = iter(items), count(), threading.Lock(), MemoryBudget(LARGE_BYTES)

    def step() -> _Done[R] | None:
        with lock:
            budget.wait_for_room()
            number, own = next(numbers), budget.account()
            try:
                item = next(source)
                own.hold(0 if held is None else held(item))
            except StopIteration:
                own.close()
                return None
            except BaseException as error:  # noqa: BLE001 (raised in its turn)
                return _Done(number, own, error=error)
        try:
            return _Done(number, own, work(item, own))
        except BaseException as error:  # noqa: BLE001 (raised in its turn)
            return _Done(number, own, error=error)

    yield from _in_turn(pool, step, ahead, budget)


def _in_turn(pool: Executor, step: Callable[[], _Done[R] | None], ahead: int, budget: MemoryBudget) -> Iterator[R]:
    waiting: set[Future[_Done[R] | None]] = {pool.submit(step) for _ in range(ahead)}
    early: dict[int, _Done[R]] = {}  # results that came before their turn
    turn = 0
    try:
        while waiting:
            ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            early |= {done.number: done for done in (future.result() for future in ready) if done is not None}
            ready.clear()  # nothing holds a result but its taker
            while (found := early.pop(turn, None)) is not None:
                if found.error is not None:
                    raise found.error
                account = found.account
                yield found.result  # type: ignore[misc]  # there is no error
                del found
                account.close()
                turn += 1
                waiting.add(pool.submit(step))
    finally:
        budget.lift()
        for future in waiting:
            future.cancel()
        wait(waiting)


def available_threads() -> int:
    """As many threads as there are cores for this process."""
    available = getattr(os, "sched_getaffinity", None)  # not everywhere; it knows of a container's limits
    return len(available(0)) if available else os.cpu_count() or 1
