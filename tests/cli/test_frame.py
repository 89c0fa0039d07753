"""The frame around all commands: exit codes, streams, JSON errors, common options, help."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from seglog import errors
from seglog_cli.app import COMMANDS, build
from seglog_cli.catalogue import GROUPS, PAGES
from seglog_cli.exit_codes import ExitCode
from seglog_cli.failures import UsageError, exit_code_of, message_of
from seglog_cli.help import describe
from seglog_cli.help_text import render
from seglog_cli.manual import descriptions
from seglog_cli.options import CommonOptions
from tests.support.command_line import COMMAND, clean_logs, environment, process, run
from tests.support.terminals import on_terminal


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 2),
        (UsageError("x"), 2),
        (errors.InputError("x", 1, "y"), 2),
        (errors.OffsetOutOfRangeError(9, 0, 3), 2),
        (errors.NotALogError(Path("x")), 10),
        (errors.LockedError(Path("x"), 7, "java"), 11),
        (errors.RefusedError("x"), 12),
        (errors.RecordTooLargeError("x"), 12),
        (MemoryError(), 12),
        (errors.UnsupportedError("x"), 13),
        (ModuleNotFoundError("x", name="pyspark.sql"), 13),
        (errors.IncompleteError("x"), 3),
        (errors.CorruptRecordError(Path("x"), "y", 0), 1),
        (OSError(28, "No space left on device", "x"), 74),
        (BrokenPipeError(), 141),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError(), 70),
        (ModuleNotFoundError("x", name="seglog.nothing"), 70),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code
    assert "\n" not in message_of(error)


def test_every_engine_error_has_a_code_of_its_own_choice() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert all(exit_code_of(kind.__new__(kind)) is not ExitCode.INTERNAL for kind in kinds)


def test_a_missing_extra_says_what_to_install() -> None:
    assert "pip install '.[spark]'" in message_of(ModuleNotFoundError("x", name="pyspark"))


def test_messages_go_to_stderr_and_data_to_stdout(tmp_path: Path) -> None:
    done = run("dump", tmp_path / "nothing")
    assert (done.exit_code, done.stdout) == (10, "")
    assert done.stderr == f"error: {tmp_path}/nothing: no such file or directory\n"


def test_with_json_the_last_line_of_stderr_is_the_error(tmp_path: Path) -> None:
    done = process("verify", "--json", tmp_path / "nothing")
    last = json.loads(done.stderr.splitlines()[-1])
    assert (done.returncode, last["type"], last["code"], last["error"]) == (10, "exit_error", 10, "NotALogError")
    usage = process("verify", "--json", "--no-such-option")
    assert json.loads(usage.stderr.splitlines()[-1])["code"] == usage.returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [["no-such-command"], ["verify"], ["verify", "--level", "deep", "."], ["read", "x", "--from-offset", "-1"]],
)
def test_wrong_usage_exits_with_2_and_points_to_the_help(arguments: list[str]) -> None:
    done = process(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: ")
    assert b"Traceback" not in done.stderr


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    command = f'{shlex.join(COMMAND)} dump --records "{logs}" | head -1'
    done = subprocess.run(command, shell=True, capture_output=True, env=environment(), check=False)
    assert done.stderr == b""
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_with_its_code_and_what_was_read_is_appended(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    command = [*COMMAND, "append", "--create", str(tmp_path / "t-0"), "--flush-messages", "1"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's `&` switches it off
    ) as child:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        child.stdin.write(b"one\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"appended t-0 offsets 0 to 0 durable\n"
        child.send_signal(number)
        assert child.wait(60) == code
        assert b"consistent" in child.stderr.read()
    assert '"value":"one"' in run("read", "--json", tmp_path / "t-0").stdout


def test_an_unexpected_error_is_one_line_and_a_traceback_only_with_v(tmp_path: Path) -> None:
    script = (
        "import sys, seglog.scan.listing as l\n"
        "def broken(*_): raise ZeroDivisionError('x')\n"
        "l.resolve_paths = broken\n"
        "from seglog_cli.process import main; main(sys.argv[1:])"
    )
    for verbose in ([], ["-v"]):
        done = subprocess.run(
            [sys.executable, "-c", script, "dump", str(tmp_path), *verbose],
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
        assert done.returncode == 70
        assert ("Traceback" in done.stderr) == bool(verbose)
        assert "internal error: ZeroDivisionError: x" in done.stderr


@pytest.mark.parametrize("path", [d.path for d in descriptions()])
def test_every_command_takes_the_common_options_and_shows_examples(path: str) -> None:
    found = next(one for one in descriptions() if one.path == path)
    if found.commands:
        return
    names = " ".join(term.names for term in found.shared[CommonOptions.TITLE])
    for option in ("--json", "-q", "-v", "--color", "--progress", "--jobs", "--config", "--set", "--now", "--help"):
        assert option in names.replace(",", "").split()
    assert found.examples and all("seglog " in line for line in found.examples)
    assert all(term.text for term in (*found.arguments, *found.options))
    assert found.summary.endswith(".")


def test_help_shows_what_the_description_says() -> None:
    tree = typer.main.get_command(build(["dump"]))
    command = tree.commands["dump"]  # type: ignore[attr-defined]
    shown = run("dump", "--help").stdout
    assert shown == render(describe(command, "seglog dump"), 80) + "\n"
    assert run("dump", "-h").stdout == shown


def test_help_lists_every_command_with_its_summary() -> None:
    done = process("--help")
    assert done.returncode == 0
    assert [name for name in COMMANDS if f"\n  {name} ".encode() not in done.stdout] == []
    for same in ((), ("-h",), ("help",)):
        assert process(*same).stdout == done.stdout
    assert run("--help").stdout.encode() == done.stdout


def test_help_groups_at_most_seven_commands_by_task() -> None:
    shown = process("--help").stdout.decode().splitlines()
    for title, commands in GROUPS.items():
        at = shown.index(f"{title}:")
        assert [line.split()[0] for line in shown[at + 1 : at + 1 + len(commands)]] == list(commands)
        assert shown[at + 1 + len(commands)] == "" and len(commands) <= 7


@pytest.mark.slow
@pytest.mark.parametrize("line", [(), ("dump", "--help"), ("help", "options"), ("help", "exit-codes")])
def test_help_has_colour_on_a_terminal_and_is_the_same_in_every_pipe(line: tuple[str, ...]) -> None:
    plain = {process(*line, variables={"COLUMNS": columns}).stdout for columns in ("40", "80", "200")}
    (text,) = plain
    prose = text.decode().split("Examples:")[0]  # an example is a line, whatever its length
    assert b"\x1b" not in text and max(map(len, prose.splitlines())) <= 80
    shown = on_terminal(80, *line)
    assert shown.colours
    assert shown.lines == [each.rstrip() for each in text.decode().splitlines() if each]
    assert on_terminal(80, *line, NO_COLOR="1").colours == set()


def test_the_options_of_every_command_are_explained_once() -> None:
    page = process("help", "options").stdout.decode()
    assert "  -q, --quiet             Write only data and errors" in page
    assert "--remote-metadata DIR" in page
    own = process("dump", "--help").stdout.decode()
    assert "Options of every command (seglog help options):\n  --json, -q, -v," in own
    assert "Write only data and errors" not in own and len(own.splitlines()) < 80


def test_every_page_of_help_is_shown_and_an_unknown_one_is_wrong_usage() -> None:
    for name in PAGES:
        done = process("help", name)
        assert (done.returncode, done.stderr) == (0, b"") and done.stdout
    assert process("help", "dump").stdout == process("dump", "--help").stdout
    unknown = process("help", "nothing")
    assert unknown.returncode == 2 and b"dead-cluster" in unknown.stderr


def test_the_overview_needs_neither_typer_nor_a_command() -> None:
    script = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
    command = [sys.executable, "-c", f"{script} from seglog_cli.process import main; main(['--help'])"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    assert {"typer", "rich", "seglog_cli.app", "seglog_cli.options"} & set(done.stderr.split()) == set()


def test_the_version_is_shown() -> None:
    assert process("--version").stdout == b"seglog 0.1.0\n"


def test_completion_knows_commands_and_options() -> None:
    def complete(words: str, index: int) -> bytes:
        variables = {"_SEGLOG_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(index)}
        return process(variables=variables).stdout

    assert b"verify" in complete("seglog ver", 1)
    assert b"--level" in complete("seglog verify --le", 2)


@pytest.mark.parametrize(("choice", "colored"), [("always", True), ("never", False), ("auto", False)])
def test_color_is_a_choice(choice: str, colored: bool, tmp_path: Path) -> None:
    done = process("verify", "--color", choice, clean_logs(tmp_path) / "orders-none-0")
    assert (b"\x1b[" in done.stdout) == colored


def test_q_hides_messages_but_no_errors(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    assert "warning" in run("recover", tmp_path / "t-0", "--dry-run", "--set", "segment.bytes=100").stderr
    assert run("recover", tmp_path / "t-0", "--dry-run", "--set", "segment.bytes=100", "-q").stderr == ""
    assert run("recover", tmp_path / "nothing", "-q").stderr != ""


def test_a_service_says_once_what_lasts_and_again_what_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    from seglog_cli.console import Console

    console = Console()
    for sentences in (["locked", "damaged"], ["damaged"], ["locked", "damaged", "locked"]):
        for sentence in sentences:
            console.warning(sentence)
        console.end_round()
    console.warning("failed", again=True)
    console.warning("failed", again=True)
    said = [line.removeprefix("warning: ") for line in capsys.readouterr().err.splitlines()]
    assert said == ["locked", "damaged", "locked", "failed", "failed"]


def test_plain_progress_is_lines_on_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from seglog_cli.console import Console
    from seglog_cli.progress import open_progress

    moments = iter([0.0, 5.0, 12.0, 13.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    progress = open_progress(Console(), "plain", "verify", 1000)
    for done in (100, 600, 700):
        progress.update(done)
    assert capsys.readouterr().err == "verify: 600 B of 1.0 kB, 50 B/s, 8 s left\n"


def test_nothing_that_looks_creates_locks_or_changes_a_file(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)

    def state() -> list[tuple[str, int, int]]:
        found = [Path(folder, name) for folder, _, names in os.walk(logs) for name in names]
        return sorted((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in found)

    before = state()
    for arguments in (
        ["verify", logs],
        ["dump", "--all", "--records", logs],
        ["read", logs / "customers-0"],
        ["recover", "--dry-run", logs],
        ["reindex", "--dry-run", logs],
        ["truncate", "--to-offset", "300", "--dry-run", logs / "customers-0"],
        ["truncate", "--at-damage", "--dry-run", logs / "customers-0"],
        ["config", "show", logs],
        ["dump-log", "--files", logs / "customers-0" / "00000000000000000000.timeindex"],
    ):
        done = run(*arguments)
        assert done.exit_code in (0, 1), done.stderr
    assert state() == before
