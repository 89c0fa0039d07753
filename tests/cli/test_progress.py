"""Progress of long work: as lines, as JSON lines, beside the lines of data; and what an interrupt says of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from seglog.verification.verify import Verification
from seglog_cli import progress as shown_progress
from seglog_cli.console import Console
from seglog_cli.exit_codes import ExitCode
from seglog_cli.progress import JsonProgress, LiveProgress, PlainProgress
from seglog_cli.terminal import Screen
from tests.support.command_line import clean_logs, damage_logs, ended, keep_partitions
from tests.support.terminals import Shown, on_terminal

KEPT = ("orders-none-0", "customers-0")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    made = clean_logs(tmp_path)
    keep_partitions(made, KEPT)
    return made


def long_commands(logs: Path, tmp_path: Path) -> list[list[str | Path]]:
    copy = tmp_path / "copy"
    shutil.copytree(logs, copy)
    return [
        ["stats", logs],
        ["diff", "--level", "view", logs, copy],
        ["export", logs / "customers-0", "-o", tmp_path / "out.jsonl"],
        ["export", next((logs / "customers-0").glob("*.log")), "-o", tmp_path / "out.csv"],
        ["reindex", logs],
        ["verify", logs],
        ["recover", "--recovery-point", "0", logs],
    ]


def test_long_work_shows_progress_as_lines(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlainProgress, "interval", 0.0)
    for command in long_commands(logs, tmp_path):
        done = ended(*command, "--progress", "plain")
        assert done.code == 0, done.stderr
        assert f"{command[0]}" in done.stderr.decode() and " of " in done.stderr.decode(), command
        assert b"had no effect" not in done.stderr


def test_with_json_progress_is_json_lines_on_stderr(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JsonProgress, "interval", 0.0)
    for command in long_commands(logs, tmp_path):
        done = ended(*command, "--json", "--progress", "plain")
        rows = [json.loads(line) for line in done.stderr.splitlines()]
        assert rows and all(row["type"] == "progress" for row in rows), command
        assert all(isinstance(row["done"], int) for row in rows) and rows[-1]["total"] > 0
        assert rows[-1]["unit"] == ("segments" if command[0] == "recover" else "bytes")
        assert all(json.loads(line)["type"] != "progress" for line in done.stdout.splitlines())


def test_without_a_display_nothing_is_counted(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("bytes were counted that nobody sees")

    monkeypatch.setattr("seglog.storage.metered_files.GatedFileSystem.__init__", refused)
    for command in ("stats", "verify"):
        assert ended(command, logs).code == 0


def test_recover_says_which_of_how_many_partitions(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlainProgress, "interval", 0.0)
    said = ended("recover", "--dry-run", "--recovery-point", "0", "--progress", "plain", logs).stderr.decode()
    assert "recover customers-0 (1 of 2 partitions): " in said
    assert "recover orders-none-0 (2 of 2 partitions): " in said


def test_a_line_takes_the_place_of_what_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveProgress, "interval", 0.0)
    written: list[bytes] = []
    console = Console()
    monkeypatch.setattr(console, "_out", _Terminal(written))
    monkeypatch.setattr(console, "_err", _Terminal(written))
    progress = LiveProgress(Screen(console._draw, 80, color=False), "recover", 100, "segments", console)
    for number in range(3):
        progress.advance(10)
        console.line(f"recovered t-{number}")
        console.message(f"note {number}")
    progress.close()
    lines = Shown(0, b"".join(written).decode()).lines
    assert lines == [each for number in range(3) for each in (f"recovered t-{number}", f"note {number}")]
    console.line("after")
    assert written[-1] == b"after\n"


class _Terminal:
    """A stream of the console that is a terminal."""

    is_terminal = True

    def __init__(self, written: list[bytes]) -> None:
        self._written = written

    def write(self, data: bytes) -> None:
        self._written.append(bytes(data))

    def flush(self) -> None:
        """Nothing is held back."""


@pytest.mark.parametrize("command", [("recover", "--dry-run", "--recovery-point", "0", "."), ("verify", "--all", ".")])
def test_each_line_of_data_stands_alone_on_a_terminal(logs: Path, command: tuple[str, ...]) -> None:
    damage_logs(logs)
    shown = on_terminal(100, *command, directory=logs).lines
    begun = [line for line in shown if "would recover" in line or line.startswith("error ")]
    assert begun and not any(line.index("would") for line in begun if "would recover" in line)
    assert not any("segments" in line and " of " in line for line in shown)


def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(self: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(Verification, "__iter__", stopped)


def test_an_interrupt_of_a_command_that_reads_says_that_nothing_was_changed(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(monkeypatch)
    done = ended("verify", logs)
    assert (done.code, done.stderr) == (ExitCode.INTERRUPTED, b"error: interrupted; no log was changed\n")
    last = json.loads(ended("verify", "--json", logs).stderr.splitlines()[-1])
    assert last["message"] == "interrupted; no log was changed"


def test_an_interrupt_says_how_far_the_work_had_come(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(monkeypatch)
    opened = shown_progress.open_progress

    def begun(*given: object) -> object:
        progress = opened(*given)  # type: ignore[arg-type]
        progress.update(250_000, 1_000_000)
        return progress

    monkeypatch.setattr(shown_progress, "open_progress", begun)
    assert b"interrupted after 250 kB of 1.0 MB; no log was changed" in ended("verify", logs).stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("retain", "--retention-ms", "1", "--dry-run"), b"no log was changed"),
        (("retain", "--retention-ms", "1"), b"what is on disk is consistent"),
        (("export", "-o", "x.jsonl"), b"no log was changed"),
        (("recover",), b"what is on disk is consistent"),
        (("redact", "--key", "k", "--replicas", "1", "--dry-run"), b"no log was changed"),
        (("redact", "--key", "k", "--replicas", "1", "--yes"), b"what is on disk is consistent"),
    ],
)
def test_only_a_command_that_writes_speaks_of_the_disk(
    logs: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], said: bytes
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("seglog.scan.listing.resolve_paths", stopped)
    monkeypatch.setattr("seglog.operations.workspace.Workspace.settings", stopped)
    done = ended(*command, logs / "customers-0")
    assert done.code == ExitCode.INTERRUPTED and said in done.stderr


@pytest.mark.parametrize("command", [("read",), ("verify",), ("clean",)])
def test_before_a_command_has_begun_no_log_was_changed(
    logs: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    ended("retain", logs / "customers-0")  # a command before it in this process
    monkeypatch.setattr("seglog_cli.session.Session.check_configuration", stopped)
    done = ended(*command, logs / "customers-0")
    assert (done.code, done.stderr) == (ExitCode.INTERRUPTED, b"error: interrupted; no log was changed\n")
