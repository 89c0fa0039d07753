"""Startup: the modules that a command imports, values that are usage errors, how kernels run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import typer

from seglog.kernels._mode import MODE
from seglog_cli.app import COMMANDS, build
from seglog_cli.help import split_docstring
from tests.support.command_line import ROOT, clean_logs, environment, needs_this_process, process
from tests.support.naive import NaiveRecord, batch_v2

BATCH = batch_v2(0, [NaiveRecord(0, 0, b"k", b"v")])
HEAVY = ("numba", "pydantic", "rich", "yaml")


def partition(directory: Path, data: bytes) -> Path:
    made = directory / "t-0"
    made.mkdir()
    (made / "00000000000000000000.log").write_bytes(data)
    return made


def imported(
    names: tuple[str, ...], *arguments: str | Path, variables: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """Returns standard output, and which of the modules the command has imported at its end."""
    shown = f"print([name for name in {names} if name in sys.modules], file=sys.stderr)"
    script = f"import atexit, sys; atexit.register(lambda: {shown}); from seglog_cli.process import main; main()"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(**(variables or {})), cwd=ROOT, check=True
    )
    return done.stdout, done.stderr


@pytest.mark.skipif(MODE.name == "jit", reason="it imports numba")
def test_a_log_is_looked_at_without_heavy_imports(tmp_path: Path) -> None:
    log = partition(tmp_path, BATCH)
    shown, found = imported(HEAVY, "dump", "--records", "--json", "--limit", "5", log)
    assert shown.count("\n") == 2
    assert found == "[]\n"


@pytest.mark.skipif(MODE.name == "jit", reason="numba imports hashlib")
def test_reading_imports_neither_openssl_nor_the_reader_of_kafka_07(tmp_path: Path) -> None:
    shown, found = imported(("hashlib", "seglog.verification.messages_07"), "read", partition(tmp_path, BATCH))
    assert "k" in shown
    assert found == "[]\n"


MODULES = tuple(f"seglog_cli.commands.{name.replace('-', '_')}" for name in COMMANDS)


@pytest.mark.parametrize(
    ("line", "expected"),
    [("--help", []), ("txn --help", ["seglog_cli.commands.txn"])],
)
def test_help_imports_the_command_that_it_describes(line: str, expected: list[str]) -> None:
    shown, found = imported(MODULES, *line.split())
    assert "Usage: seglog" in shown
    assert found == f"{expected}\n"


@pytest.mark.parametrize(
    ("line", "offered", "expected"),
    [("seglog ver", "verify", []), ("seglog txn --pro", "--progress", ["seglog_cli.commands.txn"])],
)
@pytest.mark.parametrize(("shell", "words"), [("bash", "COMP_WORDS"), ("zsh", "_TYPER_COMPLETE_ARGS")])
def test_completion_imports_the_command_that_was_typed(
    shell: str, words: str, line: str, offered: str, expected: list[str]
) -> None:
    variables = {words: line, "COMP_CWORD": str(len(line.split()) - 1), "_SEGLOG_COMPLETE": f"complete_{shell}"}
    shown, found = imported(MODULES, variables=variables)
    assert offered in shown
    assert found == f"{expected}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_what_a_command_says_of_itself(name: str) -> None:
    command = typer.main.get_command(build([name])).commands[name]  # type: ignore[attr-defined]
    assert split_docstring(command.help)[0] == COMMANDS[name]


READING_TIERS = ("view", "partition", "segments", "contents", "lineage", "metadata")
READING_URLS = ("filesystem", "store", "blocks", "listings", "credentials", "failures")


@pytest.mark.parametrize("command", ["verify", "dump", "read"])
def test_a_local_log_is_looked_at_without_what_reads_tiers_and_urls(tmp_path: Path, command: str) -> None:
    names = (
        *(f"seglog_stores.tiers.{name}" for name in READING_TIERS),
        *(f"seglog_stores.remote.{name}" for name in READING_URLS),
        "seglog_stores.formats.tier_keys",
        "seglog_stores.formats.tier_manifest",
    )
    _, found = imported(names, command, partition(tmp_path, BATCH))
    assert found == "[]\n"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists a process's threads there")
def test_a_command_runs_without_threads_that_nothing_here_needs(tmp_path: Path) -> None:
    shown = "print(len(os.listdir('/proc/self/task')), file=sys.stderr)"
    script = f"import atexit, os, sys; atexit.register(lambda: {shown}); from seglog_cli.process import main; main()"
    command = [sys.executable, "-c", script, "dump", "--records", str(partition(tmp_path, BATCH))]
    variables = {name: value for name, value in environment().items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=ROOT, check=True)
    assert done.stderr == "1\n"


def test_help_imports_neither_the_engine_nor_what_one_command_needs() -> None:
    shown, found = imported((*HEAVY, "numpy", "asyncio", "seglog.scan"), "--help")
    assert "dump-log" in shown
    assert found == "[]\n"


def test_looking_writes_nothing_anywhere(tmp_path: Path) -> None:
    home, logs = tmp_path / "home", tmp_path / "logs"
    home.mkdir()
    logs.mkdir()
    log = partition(logs, BATCH)
    homes = {"HOME": str(home), "TMPDIR": str(home)}
    homes |= {name: str(home / name) for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")}
    before = sorted(log.rglob("*"))
    assert process("verify", log, variables=homes, directory=home).returncode == 0
    assert list(home.rglob("*")) == []
    assert sorted(log.rglob("*")) == before


def test_the_version_with_v_says_how_kernels_run() -> None:
    needs_this_process()
    shown = process("--version", "-v").stdout.decode().splitlines()
    assert shown[0] == "seglog 0.1.0"
    assert shown[1] == f"kernels: {MODE.name} ({MODE.detail})"
    interpreted = process("-v", "--version", variables={"SEGLOG_KERNELS": "interpreted"}).stdout.decode()
    assert "kernels: interpreted" in interpreted
    assert process("-v", "verify").returncode == 2


@pytest.mark.parametrize("arguments", [("verify", "."), ("--version", "-v")], ids=lambda given: given[0])
def test_kernels_that_cannot_be_had_are_a_usage_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = process(*arguments, variables={"SEGLOG_KERNELS": "fast"}, directory=tmp_path)
    assert done.returncode == 2
    assert done.stderr == b"error: SEGLOG_KERNELS=fast is not one of native, jit, interpreted\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from-offset", "x"), "--from-offset"),
        (("--from-offset", "-1"), "--from-offset"),
        (("--color", "pink"), "--color"),
        (("--max-bytes", "much"), "'much' is not a size"),
        (("--jobs", "0"), "--jobs"),
        (("--now", "soon"), "'soon' is not a time"),
    ],
)
def test_values_that_cannot_be_are_usage_errors(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = process("read", clean_logs(tmp_path) / "clicks-0", *arguments)
    assert done.returncode == 2
    assert said in done.stderr.decode()
