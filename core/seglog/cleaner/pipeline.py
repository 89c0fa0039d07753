"""Working on chunks ahead of the reader, in order, under a few threads (kernels and codecs release the GIL)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(pool: Executor | None, work: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[R]:
    """`work(item)` for each item, in the items' order; with a pool at most `ahead` items are in work at once.

    The first error ends the iteration; what was begun is waited for.
    """
    if pool is None:
        yield from map(work, items)
        return
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        for future in waiting:
            if not future.cancelled():
                future.exception()
