"""The terminal: data to stdout, messages to stderr, colour only where it is wanted.

Data is written as bytes through one buffer, so that a dump of a large log costs no encoding twice. Messages
flush the data first, so that both appear in order on a terminal. Colour never carries a meaning alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, TextIO

ColorChoice = Literal["auto", "always", "never"]

_STYLES = {"error": "1;31", "warning": "33", "good": "32", "strong": "1", "dim": "2"}


class Console:
    """Where a command writes. `quiet` hides messages (never errors), `verbose` shows details."""

    def __init__(
        self, *, as_json: bool = False, quiet: bool = False, verbose: int = 0, color: ColorChoice = "auto"
    ) -> None:
        self.as_json, self.quiet, self.verbose = as_json, quiet, verbose
        self.color_out = wants_color(sys.stdout, color) and not as_json
        self.color_err = wants_color(sys.stderr, color)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Data, as it is, to stdout."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)

    def line(self, text: str = "") -> None:
        """A line of data to stdout; what it cannot take, such as names that are no UTF-8, is escaped."""
        try:
            sys.stdout.write(text + "\n")
        except UnicodeEncodeError:
            encoding = sys.stdout.encoding or "utf-8"
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")

    def lines(self, texts: Sequence[str]) -> None:
        """Lines of data to stdout."""
        for text in texts:
            self.line(text)

    def json(self, record: Mapping[str, object]) -> None:
        """One JSON object on a line of its own to stdout; `type` comes first because callers put it there."""
        self.line(json_line(record))

    def message(self, text: str) -> None:
        """A message to stderr, unless `-q`."""
        if not self.quiet:
            self._to_stderr(text)

    def detail(self, text: str) -> None:
        """A message that only `-v` shows."""
        if self.verbose and not self.quiet:
            self._to_stderr(text)

    def warning(self, text: str) -> None:
        """A warning to stderr, unless `-q`."""
        self.message(f"{self._styled('warning:', 'warning', self.color_err)} {text}")

    def error(self, text: str) -> None:
        """An error to stderr, always."""
        self._to_stderr(f"{self._styled('error:', 'error', self.color_err)} {text}")

    def styled(self, text: str, style: str) -> str:
        """`text` for stdout in a style: error, warning, good, strong or dim."""
        return self._styled(text, style, self.color_out)

    def flush(self) -> None:
        """Hands everything written so far to the operating system."""
        sys.stdout.flush()

    def _styled(self, text: str, style: str, color: bool) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if color else text

    def _to_stderr(self, text: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def json_line(record: Mapping[str, object]) -> str:
    """A JSON object without blanks; text stays readable, lone surrogates are escaped."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return text if _encodable(text) else json.dumps(record, separators=(",", ":"))


def wants_color(stream: TextIO, choice: ColorChoice) -> bool:
    """`--color`, then NO_COLOR, FORCE_COLOR and TERM=dumb, then whether the stream is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
