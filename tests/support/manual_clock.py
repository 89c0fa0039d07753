"""Time that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """A clock that a test moves: sleeping advances it."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))

    def advance(self, milliseconds: int) -> None:
        """Moves the clock forward."""
        self._now_ms += milliseconds
