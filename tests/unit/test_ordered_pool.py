"""Work ahead of the reader: results and errors in the order of the items, and large items one after the other."""

from __future__ import annotations

import concurrent.futures
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

from seglog import ordered_pool
from seglog.ordered_pool import LARGE_BYTES, Account, MemoryBudget, in_order

MIB = 1 << 20


class Gauge:
    """Counts what is held by items and by work on them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = 0

    def add(self, size: int) -> None:
        with self._lock:
            self.now += size
            self.most = max(self.most, self.now)


def taken(
    pool: Executor | None, work: Callable[[int, Account], int], items: Iterable[int], ahead: int = 5
) -> list[int]:
    """What comes of the items, in the order in which it is taken."""
    found: list[int] = []
    in_order(pool, 3, work, items, ahead, found.append)
    return found


def test_results_come_in_the_order_of_the_items_whoever_is_ready_first() -> None:
    ready = threading.Event()

    def work(item: int, account: Account) -> int:
        if item == 0:
            assert ready.wait(20)
        elif item == 3:
            ready.set()
        return item * 10

    with ThreadPoolExecutor(4) as pool:
        assert taken(pool, work, range(20)) == [item * 10 for item in range(20)]
    assert taken(None, work, range(5)) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_so_many_threads_work_and_take_and_one_takes_at_a_time(threads: int) -> None:
    working, taking, names = Gauge(), Gauge(), set()
    together = threading.Barrier(threads)

    def work(item: int, account: Account) -> int:
        working.add(1)
        names.add(threading.get_ident())
        together.wait(20)
        working.add(-1)
        return item

    def take(result: int) -> None:
        taking.add(1)
        names.add(threading.get_ident())
        taking.add(-1)

    with ThreadPoolExecutor(threads + 3) as pool:
        in_order(pool, threads, work, range(60), threads + 2, take)
    assert (working.most, taking.most) == (threads, 1)
    assert len(names) == threads
    assert threading.get_ident() not in names


def test_no_more_items_are_out_than_may_be() -> None:
    out, first = Gauge(), threading.Event()

    def items() -> Iterator[int]:
        for number in range(30):
            out.add(1)
            if out.now == 4:
                first.set()  # nothing more is read before this one is taken
            yield number

    def work(item: int, account: Account) -> int:
        if item == 0:
            assert first.wait(20)
        return item

    with ThreadPoolExecutor(3) as pool:
        in_order(pool, 3, work, items(), 4, lambda result: out.add(-1))
    assert out.most == 4


@pytest.mark.parametrize("jobs", [2, 8])
def test_large_items_and_what_they_expand_to_are_held_one_by_one(jobs: int) -> None:
    gauge, size = Gauge(), 60 * MIB
    found: list[int] = []

    def items() -> Iterator[int]:
        for number in range(30):
            gauge.add(size)
            yield number

    def work(item: int, account: Account) -> int:
        account.take(2 * size)
        gauge.add(2 * size)
        return item

    def take(item: int) -> None:
        found.append(item)
        gauge.add(-3 * size)

    with ThreadPoolExecutor(jobs) as pool:
        in_order(pool, jobs, work, items(), jobs + 2, take, held=lambda item: size)
    assert found == list(range(30))
    # one at work, and one that was read when that one had been taken, before it was given back
    assert gauge.most <= 4 * size


def test_ordinary_items_are_read_ahead() -> None:
    reached, seen = threading.Event(), []

    def items() -> Iterator[int]:
        for number in range(10):
            seen.append(number)
            if number == 4:
                reached.set()
            yield number

    def work(item: int, account: Account) -> int:
        if item == 0:
            assert reached.wait(20)  # while the first one is at work, others are read
        return item

    found: list[int] = []
    with ThreadPoolExecutor(3) as pool:
        in_order(pool, 3, work, items(), 5, found.append, held=lambda item: LARGE_BYTES // 100)
    assert found == seen == list(range(10))


def test_the_first_error_in_the_order_of_the_items_is_raised() -> None:
    later, found = threading.Event(), []

    def work(item: int, account: Account) -> int:
        if item == 2:
            assert later.wait(20)
            raise ValueError("the second")
        if item == 4:
            later.set()
            raise ValueError("the fourth")
        return item

    with ThreadPoolExecutor(4) as pool, pytest.raises(ValueError, match="the second"):
        in_order(pool, 4, work, range(10), 6, found.append)
    assert found == [0, 1]


def test_an_error_of_the_source_comes_after_the_results_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise ValueError("the log breaks off")

    found: list[int] = []
    with ThreadPoolExecutor(4) as pool, pytest.raises(ValueError, match="breaks off"):
        in_order(pool, 4, lambda item, account: item, items(), 6, found.append)
    assert found == [0, 1, 2]


def test_an_error_of_the_taker_ends_it_and_who_waits_for_room_goes_on() -> None:
    waiting = threading.Event()

    def work(item: int, account: Account) -> int:
        if item == 1:
            waiting.set()
            account.take(100 * LARGE_BYTES)
        elif item == 0:
            assert waiting.wait(20)
        return item

    found: list[int] = []

    def take(item: int) -> None:
        found.append(item)
        raise OSError("no space left")

    with ThreadPoolExecutor(3) as pool, pytest.raises(OSError, match="no space left"):
        in_order(pool, 3, work, range(10), 5, take, held=lambda item: LARGE_BYTES - 1)
    assert found == [0]


def test_what_is_begun_ends_before_an_interrupt_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended, calls = threading.Event(), [], []

    def wait(futures: list[Future[None]]) -> object:
        calls.append(len(futures))
        if len(calls) == 1:
            assert begun.wait(20)
            raise KeyboardInterrupt
        return concurrent.futures.wait(futures)

    def work(item: int, account: Account) -> int:
        begun.set()
        time.sleep(0.05)
        ended.append(item)
        return item

    monkeypatch.setattr(ordered_pool, "wait", wait)
    with ThreadPoolExecutor(2) as pool, pytest.raises(KeyboardInterrupt):
        in_order(pool, 2, work, itertools.count(), 5, lambda item: None)
    assert len(calls) == 2
    assert sorted(ended) == list(range(len(ended)))


def test_without_a_pool_all_counts_in_one_account() -> None:
    seen, own, found = [], MemoryBudget(1).account(), []

    def work(item: int, account: Account) -> int:
        seen.append(account)
        return item

    in_order(None, 1, work, range(3), 5, found.append, account=own)
    assert found == [0, 1, 2]
    assert all(account is own for account in seen)
