"""Work ahead of the reader: results and errors in the order of the items, and large items one after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from seglog.memory_budget import Account, unlimited
from seglog.ordered_pool import LARGE_BYTES, in_order

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


def test_results_come_in_the_order_of_the_items_whoever_is_ready_first() -> None:
    ready = threading.Event()

    def work(item: int, account: Account) -> int:
        if item == 0:
            assert ready.wait(20)
        elif item == 3:
            ready.set()
        return item * 10

    with ThreadPoolExecutor(4) as pool:
        assert list(in_order(pool, work, range(20), 6)) == [item * 10 for item in range(20)]
    assert list(in_order(None, work, range(5), 6)) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("jobs", [2, 8])
def test_large_items_and_what_they_expand_to_are_held_one_by_one(jobs: int) -> None:
    gauge, size = Gauge(), 60 * MIB

    def items() -> Iterator[int]:
        for number in range(30):
            gauge.add(size)
            yield number

    def work(item: int, account: Account) -> int:
        account.take(2 * size)
        gauge.add(2 * size)
        return item

    found = []
    with ThreadPoolExecutor(jobs) as pool:
        for item in in_order(pool, work, items(), jobs + 2, held=lambda item: size):
            found.append(item)
            gauge.add(-3 * size)
    assert found == list(range(30))
    # one at work, and one that was read when that one had been taken, before it was given back
    assert gauge.most <= 4 * size


def test_ordinary_items_are_read_ahead() -> None:
    reached, taken = threading.Event(), []

    def items() -> Iterator[int]:
        for number in range(10):
            taken.append(number)
            if number == 4:
                reached.set()
            yield number

    def work(item: int, account: Account) -> int:
        if item == 0:
            assert reached.wait(20)  # while the first one is at work, others are read
        return item

    with ThreadPoolExecutor(3) as pool:
        assert list(in_order(pool, work, items(), 5, held=lambda item: LARGE_BYTES // 100)) == list(range(10))
    assert taken == list(range(10))


def test_the_first_error_in_the_order_of_the_items_is_raised() -> None:
    later = threading.Event()

    def work(item: int, account: Account) -> int:
        if item == 2:
            assert later.wait(20)
            raise ValueError("the second")
        if item == 4:
            later.set()
            raise ValueError("the fourth")
        return item

    found = []
    with ThreadPoolExecutor(4) as pool, pytest.raises(ValueError, match="the second"):
        for item in in_order(pool, work, range(10), 6):
            found.append(item)
    assert found == [0, 1]


def test_an_error_of_the_source_comes_after_the_results_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise ValueError("the log breaks off")

    found = []
    with ThreadPoolExecutor(4) as pool, pytest.raises(ValueError, match="breaks off"):
        for item in in_order(pool, lambda item, account: item, items(), 6):
            found.append(item)
    assert found == [0, 1, 2]


def test_who_waits_for_room_goes_on_when_the_work_is_given_up() -> None:
    waiting = threading.Event()

    def work(item: int, account: Account) -> int:
        if item == 1:
            waiting.set()
            account.take(100 * LARGE_BYTES)
        elif item == 0:
            assert waiting.wait(20)
        return item

    with ThreadPoolExecutor(3) as pool:
        results = in_order(pool, work, range(10), 5, held=lambda item: LARGE_BYTES - 1)
        assert next(results) == 0
        results.close()  # type: ignore[attr-defined]


def test_without_a_pool_all_counts_in_one_account() -> None:
    seen, own = [], unlimited()

    def work(item: int, account: Account) -> int:
        seen.append(account)
        return item

    assert list(in_order(None, work, range(3), 5, account=own)) == [0, 1, 2]
    assert all(account is own for account in seen)
