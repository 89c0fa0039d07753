"""Bytes in flight: who waits, who never does, and that all is given back."""

from __future__ import annotations

import threading

import pytest

from seglog.ordered_pool import MemoryBudget, bytes_in_flight, unlimited


class Work(threading.Thread):
    """Takes bytes on a thread of its own; `has` is set when it has them."""

    def __init__(self, account, size: int) -> None:
        super().__init__(daemon=True)
        self.account, self.size = account, size
        self.has = threading.Event()
        self.start()

    def run(self) -> None:
        self.account.take(self.size)
        self.has.set()


def test_what_fits_is_given_at_once_and_what_does_not_waits_for_others() -> None:
    budget = MemoryBudget(100)
    first, second, third = (budget.account() for _ in range(3))
    second.take(60)
    waiting = Work(third, 50)
    assert not waiting.has.wait(0.1)
    first.take(500)  # it is first: nothing keeps it
    second.give(20)
    assert not waiting.has.wait(0.1)
    first.give(500)
    assert waiting.has.wait(60)


def test_whose_turn_has_come_waits_for_nobody() -> None:
    budget = MemoryBudget(100)
    first, second, third = (budget.account() for _ in range(3))
    third.take(90)
    waiting = Work(second, 50)
    assert not waiting.has.wait(0.1)
    first.close()
    assert waiting.has.wait(60)


def test_bytes_that_are_there_already_count_without_waiting() -> None:
    budget = MemoryBudget(100)
    first, second = budget.account(), budget.account()
    second.hold(150)
    assert budget.is_full and first.may_go_on and not second.may_go_on
    first.take(10)
    second.close()
    second.close()
    assert not budget.is_full


@pytest.mark.parametrize("threads", [2, 8])
def test_in_any_order_of_threads_all_work_ends_and_the_limit_holds_but_for_the_first(threads: int) -> None:
    budget, limit, most, lock = MemoryBudget(1000), 1000, [0, 0], threading.Lock()
    accounts = [budget.account() for _ in range(200)]

    def work(account, size: int) -> None:
        account.take(size)
        with lock:
            most[0] += size
            most[1] = max(most[1], most[0])
        with lock:
            most[0] -= size
        account.close()

    pending = iter(enumerate(accounts))

    def run() -> None:
        while True:
            with lock:
                item = next(pending, None)
            if item is None:
                return
            work(item[1], 100 + item[0] * 37 % 900)

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    assert not any(thread.is_alive() for thread in running)
    assert most[1] <= limit + 1000
    assert not budget.is_full


def test_a_single_thread_needs_no_room() -> None:
    with unlimited() as account:
        account.take(1 << 40)


def test_the_limit_grows_with_threads_beyond_a_least_one() -> None:
    assert bytes_in_flight(1) == bytes_in_flight(8) == 64 << 20
    assert bytes_in_flight(64) == 64 * (6 << 20)
