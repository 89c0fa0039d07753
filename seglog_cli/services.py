"""Commands that run until a signal ends them."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from seglog_cli.exit_codes import ExitCode

SIGNALS = {signal.SIGTERM: ExitCode.TERMINATED, signal.SIGINT: ExitCode.INTERRUPTED}


@contextlib.contextmanager
def stops(stop: threading.Event) -> Iterator[list[signal.Signals]]:
    """While open, SIGTERM and SIGINT set `stop`; the list receives the signal that came."""
    received: list[signal.Signals] = []

    def receive(number: int, _frame: object) -> None:
        received.append(signal.Signals(number))
        stop.set()

    before = {number: signal.signal(number, receive) for number in SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
