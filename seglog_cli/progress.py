"""Progress on stderr: a moving line on a terminal, a line every ten seconds, or nothing.

`auto` shows the moving line when stderr is a terminal, and nothing otherwise. A display
receives how far the work is and decides nothing; it draws at most ten times a second. Where work is not
counted in bytes, `unit` names what is counted.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Literal, Self

from seglog_cli.console import Console

ProgressChoice = Literal["auto", "plain", "none"]

_FRAME_SECONDS = 0.1
_PLAIN_SECONDS = 10.0
_BAR_CELLS = 24


class Progress:
    """Shows nothing. `advance` takes what was done since the last call, `update` takes where the work stands."""

    def __init__(self, title: str, total: int | None, unit: str = "") -> None:
        self.title, self.total, self.done, self.unit = title, total, 0, unit
        self._started = self._drawn = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def advance(self, size: int) -> None:
        """`size` more is done."""
        self.update(self.done + size)

    def update(self, done: int, total: int | None = None, title: str | None = None) -> None:
        """`done` of `total` is done; None leaves what was known."""
        self.done = done
        self.total = self.total if total is None else total
        self.title = self.title if title is None else title
        now = time.monotonic()
        if now - self._drawn >= self.interval:
            self._drawn = now
            self.draw(now - self._started)

    def begin(self, title: str, total: int | None) -> None:
        """Another step of the work begins, counted from nothing."""
        self.title, self.total, self.done = title, total, 0
        self._started = time.monotonic()

    interval = float("inf")

    def draw(self, seconds: float) -> None:
        """Shows the state after `seconds` of work."""

    def clear(self) -> None:
        """Takes the display away, so that a line can be written."""

    def close(self) -> None:
        """Ends the display."""
        self.clear()


class _Shown(Progress):
    """A display on a console's stderr."""

    def __init__(self, console: Console, title: str, total: int | None, unit: str) -> None:
        super().__init__(title, total, unit)
        self.console = console


class PlainProgress(_Shown):
    """One line every ten seconds."""

    interval = _PLAIN_SECONDS

    def draw(self, seconds: float) -> None:
        self.console.say(f"{self.title}: {describe(self.done, self.total, seconds, self.unit)}")


class LiveProgress(_Shown):
    """One line that is drawn again in place."""

    interval = _FRAME_SECONDS

    def draw(self, seconds: float) -> None:
        bar = ""
        if self.total:
            filled = min(self.done, self.total) * _BAR_CELLS // self.total
            bar = f" [{'#' * filled}{'.' * (_BAR_CELLS - filled)}]"
        self.console.redraw(f"{self.title}{bar} {describe(self.done, self.total, seconds, self.unit)}")

    def clear(self) -> None:
        self.console.redraw("")


def open_progress(console: Console, choice: ProgressChoice, title: str, total: int | None, unit: str = "") -> Progress:
    """The display that `--progress` asks for; `-q` means none. Without a `unit` bytes are counted."""
    if choice == "none" or console.quiet:
        return Progress(title, total, unit)
    if choice == "plain":
        return PlainProgress(console, title, total, unit)
    return LiveProgress(console, title, total, unit) if console.stderr_is_terminal else Progress(title, total, unit)


def describe(done: int, total: int | None, seconds: float, unit: str = "") -> str:
    """Such as `1.2 GB of 4.0 GB, 310 MB/s, 9 s left`, or `3 of 8 segments`."""
    if unit:
        return f"{done} {unit}" if total is None else f"{done} of {total} {unit}"
    rate = done / seconds if seconds > 0 else 0.0
    text = bytes_text(done) if total is None else f"{bytes_text(done)} of {bytes_text(total)}"
    text += f", {bytes_text(round(rate))}/s"
    if total is not None and rate > 0 and done < total:
        text += f", {round((total - done) / rate)} s left"
    return text


def bytes_text(size: int) -> str:
    """A size to read: three digits and a decimal unit."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 99.95 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
