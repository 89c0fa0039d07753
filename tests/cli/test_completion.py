"""Completion: a script for each shell, and values offered for what options take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seglog_cli import completing
from tests.support.command_line import environment, process


def offered(line: str, directory: Path) -> list[str]:
    """What bash is offered for the last word of a line; a blank at its end begins a word."""
    count = len(line.split()) - (not line.endswith(" "))
    variables = environment(COMP_WORDS=line, COMP_CWORD=str(count), _SEGLOG_COMPLETE="complete_bash")
    command = [sys.executable, "-m", "seglog_cli"]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=directory, check=True)
    return done.stdout.split()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("completion")
    for name in ("orders-0", "orders-1", "other", "payments-0"):
        (made / "kafka" / name).mkdir(parents=True)
    return made


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("seglog ver", ["verify"]),
        ("seglog append --codec z", ["zstd"]),
        ("seglog read --isolation ", ["read_committed", "read_uncommitted"]),
        ("seglog verify --code CRC", ["CRC_MISMATCH"]),
        ("seglog verify --only log,s", ["log,snapshot"]),
        ("seglog ls --set min.comp", ["min.compaction.lag.ms="]),
        ("seglog read kafka/or", ["kafka/orders-0", "kafka/orders-1"]),
        ("seglog clean --strategy h", ["header:"]),
        ("seglog txn kafka/orders-0 a", ["abort-cmd"]),
        ("seglog transplant kafka/or", ["kafka/orders-0", "kafka/orders-1"]),
        ("seglog dump-log --key-decoder-class S", ["StringDecoder"]),
    ],
)
def test_a_shell_is_offered_values(line: str, values: list[str], logs: Path) -> None:
    assert offered(line, logs) == values


@pytest.mark.parametrize(
    ("shell", "said"), [("bash", b"complete -o default"), ("zsh", b"#compdef seglog"), ("fish", b"complete --command")]
)
def test_each_shell_has_a_script_of_its_own(shell: str, said: bytes, tmp_path: Path) -> None:
    done = process("--show-completion", shell)
    assert (done.returncode, done.stderr) == (0, b"")
    assert said in done.stdout
    installed = process("--install-completion", shell, variables={"HOME": str(tmp_path)})
    assert (installed.returncode, installed.stderr) == (0, b"")
    assert f"{shell} completion installed".encode() in installed.stdout
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and shell in str(path)]


def test_a_shell_that_is_not_known_or_not_named_is_wrong_usage() -> None:
    for words in (["--show-completion"], ["--show-completion", "tcsh"]):
        done = process(*words)
        assert done.returncode == 2
        assert b"internal error" not in done.stderr


def test_nothing_is_offered_where_nothing_can_be_read(tmp_path: Path) -> None:
    assert completing.partitions(str(tmp_path / "nowhere" / "x")) == []
    assert completing.offer_of("FILE", "config") is None
