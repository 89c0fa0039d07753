"""The terminal: data to stdout, messages to stderr, colour only where it is wanted.

All output is UTF-8, whatever the locale, and goes as bytes through one buffer, so that a dump of a large log is not
encoded twice. Text is escaped here and nowhere else: no name or value can move a cursor or end a line. A message
flushes the data first, so that both appear in order on a terminal. Colour never carries meaning alone.

Data that stdout does not take is an error. A message that stderr does not take is lost, and nothing else is affected:
work that changes files never ends because nobody is listening.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TextIO

from seglog.escaping import escaped, json_text
from seglog_cli.tables import Layout, table, with_times

if TYPE_CHECKING:
    from seglog_cli.terminal import Screen

LAYOUT = Layout()

ColorChoice = Literal["auto", "always", "never"]

# A terminal's sequences for the styles; `terminal.STYLES` has the same for rich.
_SEQUENCES = {"error": "1;31", "warning": "33", "good": "32", "strong": "1", "dim": "2", "name": "36", "command": "1"}
_MARK = f"\x1b{os.urandom(8).hex()}"  # begins and ends a style within a text; random, so that no name contains it


class Console:
    """The output of a command. `quiet` hides messages (never errors); `verbose` shows details."""

    def __init__(
        self, *, as_json: bool = False, quiet: bool = False, verbose: int = 0, color: ColorChoice = "auto"
    ) -> None:
        self.as_json, self.quiet, self.verbose = as_json, quiet, verbose
        self._out, self._err = Stream(sys.stdout, "standard output"), Stream(sys.stderr, "standard error")
        self.color_out = wants_color(self._out.is_terminal, color) and not as_json
        self.color_err = wants_color(self._err.is_terminal, color)
        # Removes what moves on the terminal before a line is written there; set while such a display is open.
        self.before_line: Callable[[], None] | None = None
        self._warned: set[str] = set()
        self._warned_before: set[str] = set()  # in the last round of a service

    @property
    def stdout_is_terminal(self) -> bool:
        """True if data goes to a terminal."""
        return self._out.is_terminal

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Writes rendered lines, already escaped, to stdout."""
        self._to_stdout(data)

    def write_dump(self, data: bytes | bytearray | memoryview) -> None:
        """Writes rendered lines of batches and records; on a terminal with times instead of epoch milliseconds."""
        self._to_stdout(data if self.screen is None else with_times(data))

    def write_exactly(self, data: bytes | bytearray | memoryview) -> None:
        """Writes text in a prescribed format: byte for byte to a file or pipe, escaped to a terminal."""
        if self._out.is_terminal:
            text = bytes(data).decode("utf-8", "surrogateescape")
            data = escaped(text, keep="\n\t").encode()
        self._to_stdout(data)

    def line(self, text: str = "", hang: int = 2) -> None:
        """Writes a line of data to stdout.

        On a terminal, a long line is broken between words and continues `hang` cells further in.
        """
        if self.screen is None:
            self._to_stdout(_shown(text) + b"\n")
        else:
            self.screen.line(list(_pieces(text)), hang)

    def whole_line(self, text: str) -> None:
        """Writes a line of data to stdout that is never broken: help, and commands to be copied."""
        self._to_stdout(_shown(text) + b"\n")

    def lines(self, texts: Sequence[str], hang: int = 2) -> None:
        """Writes lines of data to stdout, all at once unless it is a terminal."""
        if self.screen is None:
            self._to_stdout(b"".join([_shown(text) + b"\n" for text in texts]))
            return
        for text in texts:
            self.line(text, hang)

    def table(self, heading: Sequence[str], rows: Sequence[Sequence[str]], layout: Layout = LAYOUT) -> int:
        """Writes a table to stdout: on a terminal one that fits, otherwise plain columns. Returns how many it has."""
        if self.screen is None:
            self.lines(table(heading, rows, layout))
            return len(heading) - len(layout.extra)
        return self.screen.table(heading, rows, layout)

    def indented(self, texts: Sequence[str], hang: int = 2) -> None:
        """Writes lines of data, indented by two."""
        self.lines([f"  {text}" for text in texts], hang)

    def next_steps(self, steps: Sequence[tuple[str, str]]) -> None:
        """Shows suggested (command, purpose) pairs; only on a terminal."""
        if self.screen is not None and steps and not self.quiet:
            self.screen.panel("what to do next", steps)

    @functools.cached_property
    def screen(self) -> Screen | None:
        """The screen that draws on stdout; None if that is not a terminal, or if JSON is written."""
        if not self._out.is_terminal or self.as_json or os.environ.get("TERM") == "dumb":
            return None
        from seglog_cli.terminal import Screen

        return Screen(self._to_stdout, width_of(1), self.color_out)

    @functools.cached_property
    def error_screen(self) -> Screen | None:
        """The screen that draws on stderr, or None."""
        if not self._err.is_terminal or os.environ.get("TERM") == "dumb":
            return None
        from seglog_cli.terminal import Screen

        return Screen(self._draw, width_of(2), self.color_err, lambda: width_of(2))

    def block(self, text: str) -> None:
        """Writes text that has its own line feeds and tabs to stdout; names in it are escaped already."""
        self._to_stdout(escaped(text, keep="\n\t").encode() + b"\n")

    def json(self, record: Mapping[str, object]) -> None:
        """Writes a JSON object as a line of stdout. Callers put `type` first."""
        self._to_stdout(json_text(record).encode() + b"\n")

    def result(self, record: Mapping[str, object], text: str) -> None:
        """Writes a line of data: the record as JSON if that is wanted, else the text."""
        if self.as_json:
            self.json(record)
        else:
            self.line(text)

    def message(self, text: str) -> None:
        """Writes a message to stderr, unless `-q`."""
        if not self.quiet:
            self.say(text)

    def detail(self, text: str) -> None:
        """Writes a message to stderr only with `-v`."""
        if self.verbose and not self.quiet:
            self.say(text)

    def warning(self, text: str, *, again: bool = False) -> None:
        """Writes a warning to stderr, unless `-q`; the same one only once, but for one that is to be said `again`."""
        is_known = text in self._warned or text in self._warned_before
        self._warned.add(text)
        if again or not is_known:
            self.message(f"{styled('warning:', 'warning', self.color_err)} {text}")

    def end_round(self) -> None:
        """Ends a round of a service. What lasts is said once; what was not said in a whole round is said when it comes
        back.
        """
        self._warned_before, self._warned = self._warned, set()

    def error(self, text: str) -> None:
        """Writes an error to stderr, always."""
        self.say(f"{styled('error:', 'error', self.color_err)} {text}")

    def say(self, text: str) -> None:
        """Writes a line to stderr, always, after all data written before."""
        self._to_stderr(_shown(text) + b"\n")

    def say_json(self, record: Mapping[str, object]) -> None:
        """Writes a JSON object as a line of stderr."""
        self._to_stderr(json_text(record).encode() + b"\n")

    def styled(self, text: str, style: str) -> str:
        """Returns `text` in a style for stdout: error, warning, good, strong or dim."""
        return styled(text, style, self.color_out)

    def command(self, text: str) -> str:
        """Returns a command as part of a line: on a terminal it stands out, and the line is not broken within it."""
        return styled(text, "command", self.screen is not None)

    def flush(self) -> None:
        """Hands all data written so far to the operating system."""
        self._out.flush()

    def _to_stdout(self, data: bytes | bytearray | memoryview) -> None:
        if self.before_line is not None and self._out.is_terminal:
            self.before_line()
        self._out.write(data)

    def _to_stderr(self, data: bytes) -> None:
        if self.before_line is not None:
            self.before_line()
        self._draw(data)

    def _draw(self, data: bytes) -> None:
        # A failing stdout is reported where data is written; it must not suppress this message.
        with contextlib.suppress(OSError):
            self._out.flush()
        with contextlib.suppress(OSError):
            self._err.write(data)
            self._err.flush()


def show_text(text: str) -> None:
    """Writes text of our own to stdout, before the options are parsed."""
    console = Console()
    console.block(text)
    console.flush()


class Stream:
    """A standard stream as bytes. Errors are OSErrors with its `name`; a terminal gets every line at once."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._buffer, self.name, self.is_terminal = stream.buffer, name, stream.isatty()
        self._waits = not _is_blocking(stream)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Writes all of `data`; waits while the other end is not ready."""
        try:
            if self._waits:
                self._write_waiting(memoryview(data).cast("B"))
            else:
                self._buffer.write(data)
        except OSError as error:
            raise stream_error(error, self.name) from error
        if self.is_terminal:
            self.flush()

    def flush(self) -> None:
        """Writes what is buffered."""
        try:
            self._buffer.flush()
        except OSError as error:
            raise stream_error(error, self.name) from error

    def _write_waiting(self, rest: memoryview) -> None:
        """Writes past the buffer: its flush on a non-blocking descriptor loses what the other end did not take."""
        descriptor = self._buffer.fileno()
        while rest:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:
                select.select([], [descriptor], [])


def _is_blocking(stream: TextIO) -> bool:
    try:
        return os.get_blocking(stream.fileno())
    except (OSError, ValueError):  # closed, or no real file: writing to it reports that
        return True


def stream_error(error: OSError, name: str) -> OSError:
    """Returns the error of a standard stream, with the stream's name in place of a file name."""
    return OSError(error.errno, "it is closed" if error.errno == errno.EBADF else error.strerror, name)


def styled(text: str, style: str, color: bool) -> str:
    """Marks `text` with a style for `Console.line` and `Console.say`, if `color` is wanted."""
    return f"{_MARK}{style}:{text}{_MARK}:" if color else text


def _shown(text: str) -> bytes:
    """Returns a line's bytes: styles as terminal sequences, everything else escaped."""
    pieces = []
    for style, piece in _pieces(text):
        pieces.append(f"\x1b[{_SEQUENCES[style]}m{piece}\x1b[0m" if style and piece else piece)
    return "".join(pieces).encode()


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yields (style or "", escaped text) for the parts of a line."""
    plain, *styled = text.split(_MARK)
    yield "", escaped(plain)
    for piece in styled:
        style, _, rest = piece.partition(":")
        yield style, escaped(rest)


def width_of(descriptor: int) -> int:
    """Returns the columns of a terminal: COLUMNS, else those that the terminal reports, else 80."""
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(descriptor).columns or 80
    except OSError:
        return 80


def wants_color(is_terminal: bool, choice: ColorChoice) -> bool:
    """Decides by `--color`, then NO_COLOR, FORCE_COLOR and TERM=dumb, then whether the stream is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal and os.environ.get("TERM") != "dumb"


def key_fields(key: bytes) -> dict[str, str]:
    """Returns a record's key for a JSON line: `key` if it is UTF-8, else `key_b64`."""
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        import base64

        return {"key_b64": base64.b64encode(key).decode()}
