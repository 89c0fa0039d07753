"""Starting up: what a command imports, and when kernels run interpreted."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from seglog_cli.startup import choose_kernels
from tests.support.command_line import ROOT, clean_logs, environment, process
from tests.support.naive import NaiveRecord, batch_v2, message

BATCH = batch_v2(0, [NaiveRecord(0, 0, b"k", b"v")])
HEAVY = ("numba", "pydantic", "rich", "yaml")


def chosen(*arguments: str | Path, **variables: str) -> str | None:
    values = dict(variables)
    choose_kernels([str(argument) for argument in arguments], values)
    return values.get("SEGLOG_JIT")


def partition(directory: Path, data: bytes) -> Path:
    made = directory / "t-0"
    made.mkdir()
    (made / "00000000000000000000.log").write_bytes(data)
    return made


def test_a_small_log_is_looked_at_without_heavy_imports(tmp_path: Path) -> None:
    log = partition(tmp_path, BATCH)
    shown = f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    script = f"import atexit, sys; atexit.register(lambda: {shown}); from seglog_cli.app import main; main()"
    variables = {name: value for name, value in environment().items() if name != "SEGLOG_JIT"}
    command = [sys.executable, "-c", script, "dump", "--records", "--json", "--limit", "5", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=ROOT, check=True)
    assert done.stdout.count("\n") == 2
    assert done.stderr == "[]\n"


def test_little_is_looked_at_interpreted(tmp_path: Path) -> None:
    log = partition(tmp_path, BATCH * 100)
    assert chosen("dump", log) == "0"
    assert chosen("dump-log", "--files", f"{log}/00000000000000000000.log,{log}/00000000000000000000.log") == "0"
    assert chosen("verify", "--json", tmp_path) == "0"
    assert chosen("append", log) is None
    assert chosen("dump", log, SEGLOG_JIT="1") == "1"


@pytest.mark.parametrize(
    "data",
    [
        BATCH * 2501,
        batch_v2(0, [NaiveRecord(0, 0, b"k", bytes(300 << 10))]),
        BATCH[:22] + b"\x03" + BATCH[23:],
        BATCH[:57] + struct.pack(">i", 1 << 30) + BATCH[61:],
        BATCH[:57] + struct.pack(">i", -1) + BATCH[61:],
        message(0, 1, b"k", b"v"),
        BATCH + bytes(30),
        BATCH[:-1],
    ],
    ids=["many records", "many bytes", "compressed", "huge count", "negative count", "magic 1", "zeros", "torn"],
)
def test_much_and_what_cannot_be_told_beforehand_is_compiled(tmp_path: Path, data: bytes) -> None:
    assert chosen("dump", partition(tmp_path, data)) is None


def test_what_is_no_file_is_compiled(tmp_path: Path) -> None:
    log = partition(tmp_path, BATCH)
    (log / "00000000000000000000.index").symlink_to("nowhere")
    assert chosen("dump", log) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--offset", "x"), "--offset"),
        (("--offset", "-1"), "--offset"),
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
