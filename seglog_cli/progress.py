"""Progress on stderr: steps redrawn in place on a terminal, a line every ten seconds, or nothing.

`auto` redraws if stderr is a terminal, and otherwise shows nothing. A display is told how far the work is and decides
nothing; it draws at most ten times a second, and only after progress. Work is counted in bytes unless `unit` names
something else.

The rate is that of the last half minute. The remaining time follows from it, and is shown only when there is enough to
estimate it. A repeated step and a wait for the disk are named.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Literal, Self

from seglog_cli.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable

    from seglog_cli.terminal import Moving, Screen

ProgressChoice = Literal["auto", "plain", "none"]

_FRAME_SECONDS = 0.1
_PLAIN_SECONDS = 10.0
_WINDOW_SECONDS = 30.0
_LEAST_SECONDS = 2.0  # before that, the rate predicts nothing
_LEAST_SHARE = 0.01
_STEPS_SHOWN = 4


class Pace:
    """The speed of a step: bytes (or other units) a second over the last half minute."""

    def __init__(self, now: float) -> None:
        self._started = now
        self._samples: deque[tuple[float, int]] = deque([(now, 0)])

    def add(self, now: float, done: int) -> None:
        """Records how much is done at a moment."""
        self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[1][0] > _WINDOW_SECONDS:
            self._samples.popleft()

    def rate(self) -> float:
        """Returns the units done a second."""
        (first, before), (last, done) = self._samples[0], self._samples[-1]
        return (done - before) / (last - first) if last > first else 0.0

    def left(self, total: int | None) -> float | None:
        """Returns the seconds until `total` is done at this rate; None if that cannot be estimated yet."""
        last, done = self._samples[-1]
        rate = self.rate()
        if total is None or rate <= 0 or last - self._started < _LEAST_SECONDS or done < total * _LEAST_SHARE:
            return None
        return max(0.0, (total - done) / rate)


class Progress:
    """Shows nothing. `advance` takes the amount done since the last call, `update` the amount done in all."""

    interval = float("inf")

    def __init__(self, title: str, total: int | None, unit: str) -> None:
        self.title, self.total, self.done, self.unit = title, total, 0, unit
        self.note = ""
        self.started = self._drawn = time.monotonic()
        self.pace = Pace(self.started)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def reporter(self) -> Callable[[int, int], None] | None:
        """`update`, or None if nothing will be shown, so that the caller need not count."""
        return None if self.interval == float("inf") else self.update

    def advance(self, size: int) -> None:
        """Adds `size` to the work done."""
        self.update(self.done + size)

    def update(self, done: int, total: int | None = None, title: str | None = None) -> None:
        """Sets the work done; None leaves `total` or `title` as it was."""
        self.done, self.note = done, ""
        self.total = self.total if total is None else total
        self.title = self.title if title is None else title
        self._show_in_time()

    def begin(self, title: str, total: int | None) -> None:
        """Begins another step, counted from zero."""
        self.title, self.total, self.done, self.note = title, total, 0, ""
        self.started = time.monotonic()
        self.pace = Pace(self.started)

    def wait(self, what: str) -> None:
        """Shows that the work waits for something that cannot be counted, such as the disk, until the next update."""
        self.note = what
        self._show_in_time()

    def text(self) -> str:
        """Returns the state of the current step."""
        if self.note:  # no rate is valid while waiting
            return f"{portion(self.done, self.total, self.unit)}, {self.note}"
        return describe(self.done, self.total, self.pace, self.unit)

    def draw(self) -> None:
        """Shows the state."""

    def clear(self) -> None:
        """Removes the display, so that a line can be written."""

    def close(self) -> None:
        """Ends the display."""
        self.clear()

    def _show_in_time(self) -> None:
        now = time.monotonic()
        if now - self._drawn >= self.interval:
            self._drawn = now
            self.pace.add(now, self.done)
            self.draw()


class PlainProgress(Progress):
    """Writes a line every ten seconds."""

    interval = _PLAIN_SECONDS

    def __init__(self, console: Console, title: str, total: int | None, unit: str) -> None:
        super().__init__(title, total, unit)
        self._console = console

    def draw(self) -> None:
        self._console.say(f"{self.title}: {self.text()}")


class JsonProgress(PlainProgress):
    """Writes a JSON line to stderr every ten seconds."""

    def draw(self) -> None:
        left = self.pace.left(self.total)
        self._console.say_json(
            {
                "type": "progress",
                "title": self.title,
                "done": self.done,
                "total": self.total,
                "unit": self.unit or "bytes",
                "per_second": round(self.pace.rate()),
                "seconds_left": None if left is None else round(left),
                "note": self.note or None,
            }
        )


class LiveProgress(Progress):
    """Draws the last steps in place, one a line. A line that the `console` writes meanwhile takes its place first."""

    interval = _FRAME_SECONDS

    def __init__(
        self, screen: Screen, title: str, total: int | None, unit: str, console: Console | None = None
    ) -> None:
        super().__init__(title, total, unit)
        self._screen, self._console = screen, console
        if console is not None:
            console.before_line = self.clear
        self._moving: Moving | None = None
        self._ended: deque[tuple[str, float | None, str]] = deque(maxlen=_STEPS_SHOWN - 1)

    def begin(self, title: str, total: int | None) -> None:
        if self.done:
            seconds = time.monotonic() - self.started
            self._ended.append((self.title, 1.0, f"{amount(self.done, self.unit)} in {seconds_text(seconds)}"))
        super().begin(title, total)

    def draw(self) -> None:
        from seglog_cli.terminal import Moving

        self._moving = self._moving or Moving(self._screen)
        share = min(self.done / self.total, 1.0) if self.total else None
        self._moving.draw([*self._ended, (self.title, share, self.text())])

    def clear(self) -> None:
        if self._moving is not None:
            self._moving.clear()

    def close(self) -> None:
        super().close()
        if self._console is not None:
            self._console.before_line = None


def open_progress(console: Console, choice: ProgressChoice, title: str, total: int | None, unit: str = "") -> Progress:
    """Opens the display for `--progress`; `-q` means none. Without a `unit` it counts bytes."""
    if choice == "none" or console.quiet:
        return Progress(title, total, unit)
    if choice == "plain":
        return (JsonProgress if console.as_json else PlainProgress)(console, title, total, unit)
    screen = console.error_screen
    return Progress(title, total, unit) if screen is None else LiveProgress(screen, title, total, unit, console)


def describe(done: int, total: int | None, pace: Pace, unit: str = "") -> str:
    """Returns text such as `1.2 GB of 4.0 GB, 310 MB/s, 9 s left`, or `3 of 8 segments`."""
    text = portion(done, total, unit)
    if not unit and pace.rate() > 0:
        text += f", {bytes_text(round(pace.rate()))}/s"
    left = pace.left(total)
    return text if left is None else f"{text}, {seconds_text(left)} left"


def portion(done: int, total: int | None, unit: str) -> str:
    """Returns how much of the total is done, at most all of it."""
    if total is None:
        return amount(done, unit)
    done = min(done, total)
    return f"{done:,} of {total:,} {unit}" if unit else f"{bytes_text(done)} of {bytes_text(total)}"


def amount(done: int, unit: str) -> str:
    """Returns an amount of work: bytes, or a number of units."""
    return f"{done:,} {unit}" if unit else bytes_text(done)


def seconds_text(seconds: float) -> str:
    """Returns a readable duration, no finer than an estimate can be."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    return f"{round(whole / 60)} min" if whole < 5400 else f"{whole / 3600:.1f} h"


def bytes_text(size: int) -> str:
    """Returns a readable size: three digits and a decimal unit."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 99.95 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
