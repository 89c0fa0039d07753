"""A limit on bytes per second, shared by all threads that read and write for the cleaner.

Kafka: org.apache.kafka.storage.internals.utils.Throttler. The rate is looked at once a window; when the window was too
fast, the caller sleeps as long as the window's bytes should have taken. The lock is held while sleeping, so that the
other threads wait with it: the limit is on their sum. Kafka lets any number of bytes pass within a window, which a fast
cleaner uses up before the first look; here the look comes as soon as the bytes are more than a window's worth.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from seglog.clock import Clock

WINDOW_MS = 300
_SLICE_SECONDS = 0.25


class Throttle:
    """Keeps the sum of what is reported below `bytes_per_second`, on the average of windows of `WINDOW_MS`.

    `stopped` is asked four times a second while sleeping, so that a low limit does not delay a shutdown.
    """

    def __init__(
        self,
        bytes_per_second: float,
        clock: Clock,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        if not bytes_per_second > 0:
            raise ValueError(f"a throttle needs a positive rate, not {bytes_per_second}")
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._stopped = stopped
        self._guard = threading.Lock()
        self._window_start = clock.monotonic()
        self._observed_bytes = 0

    def throttle(self, observed_bytes: int) -> None:
        """Reports bytes read or written since the last call, and sleeps when they came too fast."""
        with self._guard:
            self._observed_bytes += observed_bytes
            elapsed_ms = (self._clock.monotonic() - self._window_start) * 1000
            due_ms = self._observed_bytes / (self.bytes_per_second / 1000)
            if max(elapsed_ms, due_ms) <= WINDOW_MS or self._observed_bytes <= 0:
                return
            excess_ms = math.floor(due_ms - elapsed_ms + 0.5)
            if excess_ms > 0:
                self._sleep(excess_ms / 1000)
            self._window_start = self._clock.monotonic()
            self._observed_bytes = 0

    def _sleep(self, seconds: float) -> None:
        while seconds > 0 and not self._stopped():
            self._clock.sleep(min(seconds, _SLICE_SECONDS))
            seconds -= _SLICE_SECONDS
