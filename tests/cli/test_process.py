"""The process around a command: standard streams that are full, closed or gone, and signals at any moment."""

from __future__ import annotations

import errno
import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest

from seglog.scan.listing import resolve_paths
from seglog.storage.local import LocalFileSystem
from tests.support import command_line, effort
from tests.support.command_line import COMMAND, ROOT, clean_logs, environment, json_lines, needs_this_process, run

INTERRUPTING = ROOT / "tests" / "support" / "interrupting"
CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}
PARTITIONS = ("both-0", "orders-none-0", "customers-0")
MOMENTS = effort.tries(2)  # of each command; more by night


def shell(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash; interpreted kernels are faster for little data."""
    return command_line.shell(f"export SEGLOG_JIT=0; {script}", directory)


def few_logs(directory: Path) -> Path:
    """Makes a log directory with three partitions."""
    logs = clean_logs(directory)
    for path in logs.iterdir():
        if path.is_dir() and path.name not in PARTITIONS:
            shutil.rmtree(path)
    return logs


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return few_logs(tmp_path)


@pytest.mark.parametrize(
    ("redirection", "reason"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")]
)
@pytest.mark.parametrize("command", ["ls .", "stats .", "dump -r orders-none-0", "--help"])
def test_data_that_stdout_does_not_take_is_one_sentence_and_74(
    command: str, redirection: str, reason: str, logs: Path
) -> None:
    done = shell(f"seglog {command} {redirection}", logs)
    assert (done.returncode, done.stdout.splitlines()[0]) == (74, f"error: standard output: {reason}")
    assert len(done.stdout.splitlines()) == 1


def test_an_append_whose_acknowledgement_cannot_be_written_says_so_and_keeps_the_records(logs: Path) -> None:
    for redirection in (">/dev/full", ">&-"):
        assert shell(f"echo v | seglog append both-0 {redirection}", logs).returncode == 74
    assert [row["value"] for row in json_lines(run("read", "--json", logs / "both-0"))][-2:] == ["v", "v"]
    assert run("verify", logs / "both-0").exit_code == 0


@pytest.mark.slow
def test_closed_streams_are_no_file_that_a_command_opens(logs: Path) -> None:
    before = {path: path.read_bytes() for path in logs.rglob("*.log")}
    for streams in (">&-", "<&- >&- 2>&-"):
        shell(f"seglog recover -v . {streams}", logs)
    assert {path: path.read_bytes() for path in logs.rglob("*.log")} == before


def test_input_from_a_closed_stream_is_one_sentence_and_74(logs: Path) -> None:
    done = shell("seglog append both-0 <&-", logs)
    assert (done.returncode, done.stdout) == (74, "error: standard input: it is closed\n")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_messages_that_nobody_takes_change_no_outcome(redirection: str, logs: Path) -> None:
    assert shell(f"seglog ls --json nothing {redirection}", logs).returncode == 10
    assert shell(f"seglog config show . --set segment.bytes=100 {redirection} >/dev/null", logs).returncode == 0


@pytest.mark.slow
def test_a_reader_that_goes_early_ends_every_listing_quietly(logs: Path) -> None:
    for command in ("read customers-0", "export customers-0 -o - --format jsonl"):
        done = shell(f"seglog {command} | head -1 >/dev/null; exit ${{PIPESTATUS[0]}}", logs)
        assert (done.returncode, done.stdout) == (141, "")


@pytest.mark.parametrize("arguments", [["--help"], ["clean", "--help"], ["--version", "-v"]])
def test_help_for_a_reader_that_is_gone_ends_quietly(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, *arguments]
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_pipe_that_is_full_and_does_not_block_is_waited_for(logs: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    command = [*COMMAND, "dump", "-r", "customers-0"]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, cwd=logs, env=environment()) as child:
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            data = pipe.read()
        assert child.wait(60) == 0
    assert data.decode() == run("dump", "-r", logs / "customers-0").stdout.replace(f"{logs}/", "")


def on_a_terminal(
    arguments: Sequence[str | Path], directory: Path, hang_up_after: int | None = None
) -> tuple[int, bytes]:
    """Returns the exit code of a seglog process, and what it wrote to a terminal that is its stdout and stderr."""
    ours, theirs = pty.openpty()
    settings = termios.tcgetattr(theirs)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    command = [*COMMAND, *map(str, arguments)]
    variables = environment(TERM="xterm", SEGLOG_JIT="0")
    variables.pop("NO_COLOR")
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=directory, env=variables
    )
    os.close(theirs)
    seen = b""
    while hang_up_after is None or len(seen) < hang_up_after:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError as error:
            assert error.errno == errno.EIO
            break
        seen += piece
    os.close(ours)
    return child.wait(60), seen


def test_a_terminal_that_goes_away_ends_with_74(logs: Path) -> None:
    code, _ = on_a_terminal(["dump", "-r", "."], logs, hang_up_after=1000)
    assert code == 74


def test_parquet_is_not_shown_on_a_terminal(logs: Path) -> None:
    code, seen = on_a_terminal(["export", "both-0", "-o", "-", "--format", "parquet"], logs)
    assert code == 2 and b"name a FILE" in seen


# --- what the system refuses


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "command", "codes"),
    [
        ("ulimit -f 0", "append both-0 --flush-messages 1 <<< value", (74,)),
        ("ulimit -f 4", "clean --policy compact --roll customers-0", (74,)),
        ("ulimit -f 1", "export customers-0 -o out.csv", (74,)),
        ("mkdir gone; cd gone; rmdir ../gone", "ls .", (10, 74)),
        ("mkdir gone; cd gone; rmdir ../gone", "config show ../both-0", (0, 74)),
        ("unset HOME XDG_STATE_HOME; umask 777", "clean --policy compact --roll both-0", (0, 74)),
        ("export TERM= COLUMNS=x LC_ALL=C PYTHONIOENCODING=ascii", "read --limit 1 both-0", (0,)),
        ("export PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=POSIX", "ls both-0", (0,)),
    ],
)
def test_what_the_system_refuses_is_one_sentence_and_the_logs_stay_whole(
    limit: str, command: str, codes: tuple[int, ...], logs: Path
) -> None:
    done = shell(f"{limit}; seglog {command} 2>&1 >/dev/null | cat", logs)
    code = shell(f"{limit}; seglog {command} >/dev/null 2>&1", logs).returncode
    errors = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert code in codes, done.stdout
    assert "Traceback" not in done.stdout and len(errors) == (code not in (0, 3)), done.stdout
    for partition in PARTITIONS:
        (logs / partition).chmod(0o755)
        assert run("recover", logs / partition).exit_code == 0
        assert run("verify", logs / partition).exit_code == 0


# --- signals


def interrupted(
    moments: str, arguments: Sequence[str | Path], input_bytes: bytes = b"v1\nv2\n"
) -> subprocess.CompletedProcess[bytes]:
    """Runs a seglog process that gets a signal at a chosen call."""
    needs_this_process()
    variables = environment(SEGLOG_TEST_SIGNAL=moments, SEGLOG_JIT="0")
    variables["PYTHONPATH"] = os.pathsep.join([str(INTERRUPTING), variables["PYTHONPATH"]])
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, input=input_bytes, capture_output=True, env=variables, check=False, timeout=120)


COMMANDS = {
    "ls": ["ls", "{logs}"],
    "append": ["append", "{logs}/both-0", "--flush-messages", "1"],
    "clean": ["clean", "--policy", "compact", "--roll", "{logs}/both-0"],
    "export": ["export", "{logs}/both-0", "-o", "{logs}/both.csv"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_signal_at_any_moment_is_one_sentence_and_its_code(name: str, tmp_path: Path) -> None:
    def attempt(moments: str) -> str:
        shutil.rmtree(tmp_path / "4.3.0-clean", ignore_errors=True)
        logs = few_logs(tmp_path)
        done = interrupted(moments, [text.format(logs=logs) for text in COMMANDS[name]])
        said = done.stderr.decode()
        errors = [line for line in said.splitlines() if not line.startswith(("warning: ", "calls: "))]
        assert "Traceback" not in said and "Exception ignored" not in said, (moments, said)
        if done.returncode:
            assert (done.returncode, len(errors)) == (CODES[moments.partition(":")[0]], 1), (moments, said)
            assert errors[0].startswith("error: ")
        else:  # it came when everything was done
            assert errors == [], (moments, said)
        check_logs(logs)
        return said

    calls = int(attempt("SIGINT:").rpartition("calls: ")[2])
    chosen = random.Random(f"{name}{MOMENTS}")
    for _ in range(MOMENTS):
        moment = chosen.randrange(1, calls)
        again = f",{moment + chosen.randrange(1, 500)}" if chosen.random() < 0.3 else ""
        attempt(f"{chosen.choice(list(CODES))}:{moment}{again}")


@pytest.mark.slow
def test_a_signal_outside_of_the_command_has_its_sentence_and_code_too() -> None:
    """Typer's own `main` would end with 130 and without a message."""
    calls = int(interrupted("SIGINT:", ["clean", "--help"]).stderr.decode().rpartition("calls: ")[2])
    for signal_name, code in CODES.items():
        done = interrupted(f"{signal_name}:{calls - 100}", ["clean", "--help"])
        assert done.returncode == code
        assert re.fullmatch(r"error: .*; no log was changed\n", done.stderr.decode())


def check_logs(logs: Path) -> None:
    """Checks that the next command can work with the log directory, and that no data is lost."""
    assert resolve_paths(LocalFileSystem(), [logs])
    for partition in PARTITIONS:
        assert run("verify", logs / partition).exit_code == 0
    assert run("append", logs / "both-0", input_text="after\n").exit_code == 0
    assert not (logs / "both.csv").exists() or (logs / "both.csv").read_bytes().endswith(b"\n")


def test_with_json_a_signal_before_the_command_is_an_exit_error_too(logs: Path) -> None:
    done = interrupted("SIGTERM:10", ["ls", "--json", logs])
    assert done.returncode == 143
    assert json.loads(done.stderr.splitlines()[-1]) == {
        "type": "exit_error",
        "code": 143,
        "error": "TerminatedError",
        "message": "terminated; no log was changed",
    }


def test_a_signal_that_was_switched_off_stays_off(logs: Path) -> None:
    command = [*COMMAND, "append", str(logs / "both-0"), "--flush-messages", "1"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),  # as nohup does
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"one\n")
        child.stdin.flush()
        assert child.stdout.readline().startswith(b"appended")
        child.send_signal(signal.SIGHUP)
        child.stdin.close()
        assert child.wait(60) == 0


def test_a_signal_in_a_finalizer_is_raised_again(tmp_path: Path) -> None:
    script = (
        "import signal, time\n"
        "from seglog_cli import app, process\n"
        "class Closing:\n"
        "    def __del__(self): signal.raise_signal(signal.SIGTERM); time.sleep(0)\n"
        "def run(arguments):\n"
        "    closing = Closing()\n"
        "    del closing\n"
        "    for _ in range(1000): time.sleep(0.01)\n"
        "    return 0\n"
        "def guarded(arguments):\n"
        "    try: return run(arguments)\n"
        "    except process.TerminatedError: return 143\n"
        "app.run = guarded\n"
        "process.main(['ls'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (143, b"")


def test_an_interrupt_in_code_that_was_given_as_a_string_ends_with_130_too(tmp_path: Path) -> None:
    """Dataclasses are compiled from strings while commands import their modules."""
    script = (
        "from seglog_cli import app, process\n"
        "def run(arguments):\n"
        "    try: exec('import signal; signal.raise_signal(signal.SIGINT)')\n"
        "    except KeyboardInterrupt: return 130\n"
        "app.run = run\n"
        "process.main(['ls'])\n"
    )
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-m", "script"],
        capture_output=True,
        env=environment(),
        cwd=tmp_path,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's `&` switches it off
    )
    assert done.returncode == 130
