"""A terminal for tests: a pseudo-terminal of a given width, and what a person would see on it."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.command_line import environment

_SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ROWS = 50
_HANGS_SECONDS = 120  # longer than any program is silent that is at work, on a busy machine too


@dataclass(frozen=True)
class Shown:
    """The exit code, and everything that was written to the terminal."""

    code: int
    written: str

    @property
    def lines(self) -> list[str]:
        """What is left to be seen: what is drawn again or taken away counts as it stands at the end; no colours."""
        screen: list[str] = [""]
        row = 0
        for piece in re.split(r"(\r|\n|\x1b\[[0-9;?]*[A-Za-z])", self.written):
            if piece == "\n":
                row += 1
                screen += [""] * (row + 1 - len(screen))
            elif piece == "\r":
                pass
            elif piece.startswith("\x1b[") and piece.endswith("A"):
                row -= int(piece[2:-1] or 1)
            elif piece == "\x1b[2K":
                screen[row] = ""
            elif not piece.startswith("\x1b"):
                screen[row] += piece
        return [line.rstrip() for line in screen if line.strip()]

    @property
    def colours(self) -> set[str]:
        """The sequences that set a style."""
        return {found for found in _SEQUENCES.findall(self.written) if found.endswith("m")}


def on_terminal(columns: int, *arguments: str | Path, directory: Path | None = None, **variables: str) -> Shown:
    """The command line on a terminal of so many columns, which is its standard output and error."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
    settings = termios.tcgetattr(theirs)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    given = environment(TERM="xterm-256color", **variables)
    for name in {"NO_COLOR", "COLUMNS"} - set(variables):
        given.pop(name, None)
    command: Sequence[str] = [sys.executable, "-m", "seglog_cli", *map(str, arguments)]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=directory, env=given)
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError as error:
            assert error.errno == errno.EIO
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    return Shown(child.wait(60), written.decode())


def typed(
    command: Sequence[str],
    keys: Sequence[tuple[str, Callable[[str], bool]]],
    directory: Path,
    variables: dict[str, str],
) -> str:
    """What an interactive program shows after the keys, without sequences of the terminal.

    Each is typed once what the program has shown since the one before is what that one's condition waits for. A
    program that shows nothing more while it is waited for has failed, and the error says what it has shown.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, 160, 0, 0))
    child = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=directory, env=variables, start_new_session=True
    )
    os.close(theirs)
    written = b""
    try:
        for text, awaited in keys:
            os.write(ours, text.encode())
            before = len(written)
            while not awaited(_plain(written[before:])):
                ready, _, _ = select.select([ours], [], [], _HANGS_SECONDS)
                assert ready, f"no more after {text!r} than {_plain(written[before:])!r}"
                written += os.read(ours, 1 << 16)
    finally:
        child.kill()
        child.wait(60)
        os.close(ours)
    return _plain(written)


def _plain(written: bytes) -> str:
    return _SEQUENCES.sub("", written.decode(errors="replace")).replace("\r", "")
