"""The terminal: data to stdout, messages to stderr, colour only where it is wanted.

Everything is UTF-8, whatever the locale, and goes out as bytes through one buffer, so that a dump of a large log costs
no encoding twice. Text passes `escaped` here, and nowhere else: no name and no value can move a cursor or
end a line. Messages flush the data first, so that both appear in order on a terminal. Colour never carries a meaning
alone.

Data that stdout does not take is an error. Messages that stderr does not take are lost, and nothing else is: work that
changes files never ends because nobody listens.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TextIO

from seglog.escaping import escaped, json_text
from seglog_cli.tables import Layout, table

if TYPE_CHECKING:
    from seglog_cli.terminal import Screen

LAYOUT = Layout()

ColorChoice = Literal["auto", "always", "never"]

_MARK = f"\x1b{os.urandom(8).hex()}"  # begins and ends a style within a text; no name can hold it


class Console:
    """Where a command writes. `quiet` hides messages (never errors), `verbose` shows details."""

    def __init__(
        self, *, as_json: bool = False, quiet: bool = False, verbose: int = 0, color: ColorChoice = "auto"
    ) -> None:
        self.as_json, self.quiet, self.verbose = as_json, quiet, verbose
        self._out, self._err = Stream(sys.stdout, "standard output"), Stream(sys.stderr, "standard error")
        self.color_out = wants_color(self._out.is_terminal, color) and not as_json
        self.color_err = wants_color(self._err.is_terminal, color)

    @property
    def stdout_is_terminal(self) -> bool:
        """Whether data goes to a terminal."""
        return self._out.is_terminal

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Rendered lines, in which everything is escaped already, to stdout."""
        self._out.write(data)

    def write_exactly(self, data: bytes | bytearray | memoryview) -> None:
        """Text in a form that others prescribe, byte for byte to a file or pipe; a terminal gets it escaped."""
        if self._out.is_terminal:
            text = bytes(data).decode("utf-8", "surrogateescape")
            data = escaped(text, keep="\n\t").encode()
        self._out.write(data)

    def line(self, text: str = "", hang: int = 2) -> None:
        """A line of data to stdout; on a terminal it is broken between words, and goes on `hang` cells further in."""
        if self.screen is None:
            self._out.write(_shown(text) + b"\n")
        else:
            self.screen.line(list(_pieces(text)), hang)

    def lines(self, texts: Sequence[str]) -> None:
        """Lines of data to stdout."""
        for text in texts:
            self.line(text)

    def table(self, heading: Sequence[str], rows: Sequence[Sequence[str]], layout: Layout = LAYOUT) -> None:
        """A table on stdout: on a terminal one that fits it, else plain columns."""
        if self.screen is None:
            self.lines(table(heading, rows, layout))
        else:
            self.screen.table(heading, rows, layout)

    def indented(self, texts: Sequence[str], hang: int = 2) -> None:
        """Lines of data that stand further in."""
        for text in texts:
            self.line(f"  {text}", hang)

    def next_steps(self, steps: Sequence[tuple[str, str]]) -> None:
        """What to do next, for whoever sits at the terminal: (command, what for). Nothing in a file or pipe."""
        if self.screen is not None and steps and not self.quiet:
            self.screen.panel("what to do next", steps)

    @functools.cached_property
    def screen(self) -> Screen | None:
        """What draws on stdout, where that is a terminal and wants no JSON."""
        if not self._out.is_terminal or self.as_json or os.environ.get("TERM") == "dumb":
            return None
        from seglog_cli.terminal import Screen, width_of

        return Screen(self._out.write, width_of(1), self.color_out)

    @functools.cached_property
    def error_screen(self) -> Screen | None:
        """The same on stderr."""
        if not self._err.is_terminal or os.environ.get("TERM") == "dumb":
            return None
        from seglog_cli.terminal import Screen, width_of

        return Screen(self._to_stderr, width_of(2), self.color_err, lambda: width_of(2))

    def block(self, text: str) -> None:
        """Text that is laid out with line feeds and tabs, to stdout; names within it are escaped already."""
        self._out.write(escaped(text, keep="\n\t").encode() + b"\n")

    def json(self, record: Mapping[str, object]) -> None:
        """One JSON object on a line of its own to stdout; `type` comes first because callers put it there."""
        self._out.write(json_text(record).encode() + b"\n")

    def message(self, text: str) -> None:
        """A message to stderr, unless `-q`."""
        if not self.quiet:
            self.say(text)

    def detail(self, text: str) -> None:
        """A message that only `-v` shows."""
        if self.verbose and not self.quiet:
            self.say(text)

    def warning(self, text: str) -> None:
        """A warning to stderr, unless `-q`."""
        self.message(f"{self._styled('warning:', 'warning', self.color_err)} {text}")

    def error(self, text: str) -> None:
        """An error to stderr, always."""
        self.say(f"{self._styled('error:', 'error', self.color_err)} {text}")

    def say(self, text: str) -> None:
        """A line to stderr, always, after all data that was written before."""
        self._to_stderr(_shown(text) + b"\n")

    def say_json(self, record: Mapping[str, object]) -> None:
        """One JSON object on a line of its own to stderr."""
        self._to_stderr(json_text(record).encode() + b"\n")

    def styled(self, text: str, style: str) -> str:
        """`text` for a line on stdout in a style: error, warning, good, strong or dim."""
        return self._styled(text, style, self.color_out)

    def flush(self) -> None:
        """Hands everything written so far to the operating system."""
        self._out.flush()

    def _styled(self, text: str, style: str, color: bool) -> str:
        return f"{_MARK}{style}:{text}{_MARK}:" if color else text

    def _to_stderr(self, data: bytes) -> None:
        # What stdout does not take is reported by whoever writes data, and must not hide this message.
        with contextlib.suppress(OSError):
            self._out.flush()
        with contextlib.suppress(OSError):
            self._err.write(data)
            self._err.flush()


class Stream:
    """A standard stream as bytes. Errors are OSError with its `name`; at a terminal every line goes out at once."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._buffer, self.name, self.is_terminal = stream.buffer, name, stream.isatty()
        self._waits = not _is_blocking(stream)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """All of `data`; waits where the other end is not ready."""
        try:
            if self._waits:
                self._write_waiting(memoryview(data).cast("B"))
            else:
                self._buffer.write(data)
        except OSError as error:
            raise self._named(error) from error
        if self.is_terminal:
            self.flush()

    def flush(self) -> None:
        """Hands on what is buffered."""
        try:
            self._buffer.flush()
        except OSError as error:
            raise self._named(error) from error

    def _write_waiting(self, rest: memoryview) -> None:
        """Past the buffer, whose flush on a descriptor that does not block loses what the other end did not take."""
        descriptor = self._buffer.fileno()
        while rest:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:
                select.select([], [descriptor], [])

    def _named(self, error: OSError) -> OSError:
        return stream_error(error, self.name)


def _is_blocking(stream: TextIO) -> bool:
    try:
        return os.get_blocking(stream.fileno())
    except (OSError, ValueError):  # closed, or no file at all: writing to it says so
        return True


def stream_error(error: OSError, name: str) -> OSError:
    """The error of a standard stream, with its name in the place of a file's."""
    return OSError(error.errno, "it is closed" if error.errno == errno.EBADF else error.strerror, name)


def _shown(text: str) -> bytes:
    """A line's bytes: styles as the terminal's sequences, everything else escaped."""
    pieces = []
    for style, piece in _pieces(text):
        if style:
            from seglog_cli.terminal import painted

            piece = painted(style, piece)
        pieces.append(piece)
    return "".join(pieces).encode()


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """(style or "", escaped text) of the parts of a line."""
    plain, *styled = text.split(_MARK)
    yield "", escaped(plain)
    for piece in styled:
        style, _, rest = piece.partition(":")
        yield style, escaped(rest)


def wants_color(is_terminal: bool, choice: ColorChoice) -> bool:
    """`--color`, then NO_COLOR, FORCE_COLOR and TERM=dumb, then whether the stream is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal and os.environ.get("TERM") != "dumb"
