"""The limit on bytes per second."""

from __future__ import annotations

import pytest

from seglog.storage.metered_files import Throttle
from tests.support.manual_clock import ManualClock


def test_a_slow_caller_is_never_delayed() -> None:
    clock = ManualClock()
    throttle = Throttle(1000, clock)
    for _ in range(20):
        clock.advance(100)
        throttle.throttle(99)
    assert clock.now_ms() == 2000


def test_a_window_that_was_too_fast_is_slept_off() -> None:
    clock = ManualClock()
    throttle = Throttle(1000, clock)
    throttle.throttle(250)
    assert clock.now_ms() == 0
    clock.advance(301)
    throttle.throttle(750)
    assert clock.now_ms() == 1000


def test_a_burst_passes_up_to_a_windows_worth_and_no_further() -> None:
    clock = ManualClock()
    throttle = Throttle(1000, clock)
    throttle.throttle(300)
    assert clock.now_ms() == 0
    throttle.throttle(700)
    assert clock.now_ms() == 1000


def test_the_average_stays_at_the_limit() -> None:
    clock = ManualClock()
    throttle = Throttle(10_000, clock)
    for _ in range(1000):
        clock.advance(1)
        throttle.throttle(100)
    last_window_bytes = 301 * 100
    assert clock.now_ms() >= (100_000 - last_window_bytes) / 10


def test_a_stop_ends_the_sleep() -> None:
    clock = ManualClock()
    throttle = Throttle(1, clock, stopped=lambda: clock.now_ms() >= 1000)
    clock.advance(301)
    throttle.throttle(1_000_000)
    assert clock.now_ms() < 1500


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_must_be_positive(rate: float) -> None:
    with pytest.raises(ValueError, match="positive rate"):
        Throttle(rate, ManualClock())
