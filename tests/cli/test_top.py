"""`seglog top`: frames, keys, and a terminal that is given back."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command_line import COMMAND, clean_logs, environment, json_lines, run

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_FRAME_BEGIN = "\x1b[H"
_PATIENCE = 60.0


class Terminal:
    """A process on a terminal of its own, and the frames that it draws."""

    def __init__(self, *arguments: str | Path, columns: int = 80, rows: int = 24) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        command = [*COMMAND, *map(str, arguments)]
        given = environment(TERM="xterm-256color")
        given.pop("COLUMNS", None)
        given.pop("LINES", None)
        # In a group of its own: one without a parent in its session, as that of a run under setsid, is never suspended.
        self.child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=given, process_group=0)
        self.written = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def frame(self) -> list[str]:
        """The lines of the last whole frame: one that another follows. A read may end within a frame."""
        whole = [frame for frame in self.written.split(_FRAME_BEGIN)[1:-1] if "\n" in frame]
        return [line.rstrip() for line in _SEQUENCE.sub("", whole[-1]).split("\r\n")] if whole else []

    def until(self, seen: Callable[[list[str]], bool]) -> list[str]:
        """Reads frames until one shows what is waited for."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            if self.frame() and seen(self.frame()):
                return self.frame()
            if select.select([self.ours], [], [], 0.1)[0]:
                self.written += os.read(self.ours, 1 << 16).decode("utf-8", "replace")
        raise AssertionError("\n".join(self.frame()))

    def forget(self) -> None:
        """Takes what was drawn until now off the terminal."""
        while select.select([self.ours], [], [], 0.1)[0]:
            os.read(self.ours, 1 << 16)
        self.written = ""

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return clean_logs(tmp_path)


@pytest.fixture
def terminal(logs: Path) -> Iterator[Terminal]:
    found = Terminal("top", "--every", "200ms", logs)
    yield found
    found.close()


def has(text: str) -> Callable[[list[str]], bool]:
    return lambda lines: text in "\n".join(lines)


def test_one_frame_has_the_figures_of_the_report(logs: Path) -> None:
    rows = {
        row["partition"]: row
        for row in json_lines(run("top", "--json", "--every", "100ms", logs))
        if "bytes" in row and "partition" in row
    }
    reported = {
        row["partition"]: row for row in json_lines(run("report", "--json", logs)) if row["type"] == "partition"
    }
    assert rows.keys() - reported.keys() == {"__cluster_metadata-0"}
    for name, row in reported.items():
        for field in ("bytes", "end_offset", "newest_ms", "transactions"):
            assert rows[name][field] == row[field], (name, field)
        assert (rows[name]["compaction"] is None) == (row["compaction"] is None)
        assert rows[name]["growth_per_second"] == 0


def test_a_pipe_gets_one_plain_table_in_the_asked_order(logs: Path) -> None:
    shown = run("top", "--every", "100ms", "--sort", "name", logs / "orders-none-0", logs / "customers-0").stdout
    lines = shown.splitlines()
    assert [line.split()[0] for line in lines] == ["PARTITION", "customers-0", "orders-none-0"]
    assert "\x1b" not in shown
    assert run("top", "--sort", "colour", logs).exit_code == 2
    assert run("top", logs / "orders-none-0" / "00000000000000000000.log").exit_code == 2


@pytest.mark.slow
def test_keys_sort_filter_drill_pause_and_end(terminal: Terminal, logs: Path) -> None:
    first = terminal.until(has("clean"))
    assert all(len(line) <= 80 for line in first)
    assert len(first) <= 24
    assert "SIZE▾" in "\n".join(first)
    terminal.press("r")
    terminal.until(has("SIZE▴"))
    terminal.press("s")
    terminal.until(has("GROWTH/S"[:7] + "▾"))
    terminal.press("/ORDERS-none\r")
    filtered = terminal.until(has("1 partition,"))
    assert sum("orders-none-0" in line for line in filtered) == 1
    terminal.press("\r")
    drilled = terminal.until(has("SEGMENT"))
    assert sum(line.startswith("000000000") for line in drilled) == 4
    terminal.press("\x1b")
    terminal.until(has("PARTITION"))
    terminal.press("\x1b")
    terminal.until(lambda lines: "filter" not in lines[0])
    terminal.press("p")
    terminal.until(has("paused"))
    terminal.press("p")
    shutil.rmtree(logs / "orders-none-0")
    terminal.until(lambda lines: "orders-none-0" not in "\n".join(lines))
    terminal.press("q")
    assert terminal.child.wait(_PATIENCE) == 0
    assert termios.tcgetattr(terminal.theirs) == terminal.before


@pytest.mark.slow
def test_a_resize_is_drawn_at_once_and_a_suspension_gives_the_terminal_back(terminal: Terminal) -> None:
    terminal.until(has("PARTITION"))
    terminal.resize(120, 12)
    os.kill(terminal.child.pid, signal.SIGWINCH)
    wide = terminal.until(has("OPEN TXN"))
    assert len(wide) <= 12
    os.kill(terminal.child.pid, signal.SIGTSTP)
    end = time.monotonic() + _PATIENCE
    while stopped(terminal.child.pid) != "T" and time.monotonic() < end:
        time.sleep(0.05)
    assert termios.tcgetattr(terminal.theirs) == terminal.before
    terminal.forget()
    os.kill(terminal.child.pid, signal.SIGCONT)
    terminal.until(has("PARTITION"))
    assert termios.tcgetattr(terminal.theirs) != terminal.before
    os.kill(terminal.child.pid, signal.SIGTERM)
    assert terminal.child.wait(_PATIENCE) != 0
    assert termios.tcgetattr(terminal.theirs) == terminal.before


def stopped(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_hostile_names_are_escaped(logs: Path) -> None:
    name = b"t\xff\x1b[31m[bold]-0".decode("utf-8", "surrogateescape")
    shutil.copytree(logs / "orders-none-0", logs / name)
    shown = run("top", "--every", "100ms", logs).stdout
    assert "\x1b" not in shown
    assert run("top", "--json", "--every", "100ms", logs).exit_code == 0
