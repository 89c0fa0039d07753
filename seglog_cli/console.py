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
import os
import select
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, TextIO

from seglog.escaping import escaped, json_text

ColorChoice = Literal["auto", "always", "never"]

_STYLES = {"error": "1;31", "warning": "33", "good": "32", "strong": "1", "dim": "2"}
_MARK = f"\x1b{os.urandom(8).hex()}"  # begins and ends a style within a text; no name can hold it
_CLEAR_LINE = b"\r\x1b[2K"


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

    @property
    def stderr_is_terminal(self) -> bool:
        """Whether messages go to a terminal."""
        return self._err.is_terminal

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Rendered lines, in which everything is escaped already, to stdout."""
        self._out.write(data)

    def write_exactly(self, data: bytes | bytearray | memoryview) -> None:
        """Text in a form that others prescribe, byte for byte to a file or pipe; a terminal gets it escaped."""
        if self._out.is_terminal:
            text = bytes(data).decode("utf-8", "surrogateescape")
            data = escaped(text, keep="\n\t").encode()
        self._out.write(data)

    def line(self, text: str = "") -> None:
        """A line of data to stdout."""
        self._out.write(_shown(text) + b"\n")

    def lines(self, texts: Sequence[str]) -> None:
        """Lines of data to stdout."""
        for text in texts:
            self.line(text)

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

    def redraw(self, text: str) -> None:
        """Puts `text` in the place of the terminal's last line on stderr; nothing takes that line away."""
        self._to_stderr(_CLEAR_LINE + escaped(text).encode())

    def styled(self, text: str, style: str) -> str:
        """`text` for a line on stdout in a style: error, warning, good, strong or dim."""
        return self._styled(text, style, self.color_out)

    def flush(self) -> None:
        """Hands everything written so far to the operating system."""
        self._out.flush()

    def _styled(self, text: str, style: str, color: bool) -> str:
        return f"{_MARK}{_STYLES[style]}m{text}{_MARK}0m" if color else text

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
    plain, *styled = text.split(_MARK)
    pieces = [escaped(plain)]
    for piece in styled:
        code, _, rest = piece.partition("m")
        pieces.append(f"\x1b[{code}m{escaped(rest)}")
    return "".join(pieces).encode()


def wants_color(is_terminal: bool, choice: ColorChoice) -> bool:
    """`--color`, then NO_COLOR, FORCE_COLOR and TERM=dumb, then whether the stream is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal and os.environ.get("TERM") != "dumb"
