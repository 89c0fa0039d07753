"""Keys from the terminal, one by one, while a display is redrawn: without echo, without waiting for the line's end.

The terminal is given back on the way out, when the user suspends the program (Ctrl-Z), and when a signal ends it. A
change of the window's size and a continuation wake the wait, so that the display is redrawn at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

REDRAW = "redraw"  # not a key: the window changed, or the program was continued
_ESCAPE = "\x1b"
_NAMES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page-up",
    "\x1b[6~": "page-down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    _ESCAPE: "escape",
}


class Keyboard:
    """A context manager that reads keys. `leave` and `enter` are called around a suspension, to clear and to redraw."""

    def __init__(self, leave: Callable[[], None], enter: Callable[[], None]) -> None:
        self._leave, self._enter = leave, enter
        self._terminal = sys.stdin.isatty()
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._pending = ""
        self._awake, self._wake = -1, -1

    def __enter__(self) -> Self:
        self._awake, self._wake = os.pipe()
        os.set_blocking(self._awake, False)
        os.set_blocking(self._wake, False)
        for number, handler in ((signal.SIGWINCH, self._woken), (signal.SIGTSTP, self._suspended)):
            self._handlers[number] = signal.signal(number, handler)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._awake)
        os.close(self._wake)

    def read(self, seconds: float) -> str:
        """Returns the next key by name or character, REDRAW, or "" if there is none for so long."""
        if self._pending:
            return self._next()
        watched = [self._awake, *([sys.stdin.fileno()] if self._terminal else [])]
        ready, _, _ = select.select(watched, [], [], max(0.0, seconds))
        if self._awake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._awake, 64)
            return REDRAW
        if not ready:
            return ""
        data = os.read(sys.stdin.fileno(), 256)
        if not data:  # the terminal is gone
            return "q"
        self._pending = data.decode("utf-8", "ignore")
        return self._next() if self._pending else ""

    def _next(self) -> str:
        """Takes one key off what was read; a sequence that nobody knows counts as none."""
        text = self._pending
        for length in range(min(len(text), 5), 0, -1):
            name = _NAMES.get(text[:length])
            if name is not None and (name != "escape" or len(text) == 1):
                self._pending = text[length:]
                return name
        self._pending = "" if text[0] == _ESCAPE else text[1:]
        return text[0] if text[0].isprintable() else ""

    def _take(self) -> None:
        if self._terminal:
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)

    def _give(self) -> None:
        if self._terminal and self._before:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def _woken(self, _number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"w")

    def _suspended(self, _number: int, _frame: FrameType | None) -> None:
        """Gives the terminal back, stops as the user wants, and takes it again when continued."""
        self._leave()
        self._give()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspended)  # here the program goes on
        self._take()
        self._enter()
        self._woken(0, None)
