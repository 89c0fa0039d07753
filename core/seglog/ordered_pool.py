"""Working on chunks ahead of the reader, in order, under a few threads (kernels and codecs release the GIL).

The threads also take the items themselves, one at a time: reading and deciding go on in the order of the log while
earlier chunks are worked on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(pool: Executor | None, work: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[R]:
    """`work(item)` for each item, in the items' order; with a pool at most `ahead` items are out at once.

    An item's memory may be reused as soon as its result was taken and the next one is asked for. The first error
    ends the iteration, after what was begun has ended.
    """
    if pool is None:
        yield from map(work, items)
        return
    source, lock = enumerate(items), threading.Lock()

    def step() -> tuple[int, R] | None:
        with lock:
            numbered = next(source, None)
        return None if numbered is None else (numbered[0], work(numbered[1]))

    waiting: deque[Future[tuple[int, R] | None]] = deque(pool.submit(step) for _ in range(ahead))
    early: dict[int, R] = {}  # results that came before their turn
    turn = 0
    try:
        while waiting:
            found = waiting.popleft().result()
            if found is not None:
                early[found[0]] = found[1]
            while turn in early:
                yield early.pop(turn)
                turn += 1
                waiting.append(pool.submit(step))
    finally:
        for future in waiting:
            future.cancel()
        for future in waiting:
            if not future.cancelled():
                future.exception()
