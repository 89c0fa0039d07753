"""What doctor says of a log directory that another process holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seglog.verification.codes import Severity
from tests.support.command_line import json_lines, run
from tests.support.log_files import batch, write_segment
from tests.unit.rescue.doctor.test_doctor import codes, diagnose


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with the partition t-0 of one segment, without a marker of a clean stop."""
    write_segment(tmp_path / "logs" / "t-0", 0, batch(0, 4), batch(4, 4))
    return tmp_path / "logs"


@contextmanager
def held_by(logs: Path, *words: str) -> Iterator[int]:
    """A process with these words in its command line holds the lock of a log directory; gives its id."""
    (logs / ".lock").touch()
    holding = (
        "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print('held',flush=True); input()"
    )
    command = [sys.executable, "-c", holding, str(logs / ".lock"), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        yield holder.pid
        holder.communicate("\n")


def test_a_held_lock_is_a_blocker_that_names_the_process(logs: Path) -> None:
    with held_by(logs) as process:
        row = diagnose(logs)[0]
    assert (row.code, row.gravity) == ("DIRECTORY_LOCKED", Severity.BLOCKER)
    assert f"process {process}" in row.message
    assert codes(logs) == set()


@pytest.mark.parametrize("words", [("kafka.Kafka", "server.properties"), ("/opt/kafka/kafka.Kafka", "start")])
def test_a_broker_that_runs_here_is_said_to_and_does_not_block(logs: Path, words: tuple[str, ...]) -> None:
    with held_by(logs, *words) as process:
        row = diagnose(logs)[0]
        result = run("doctor", logs)
        summary = json_lines(run("doctor", "--json", logs))[-1]
    assert (row.code, row.gravity) == ("BROKER_RUNS", Severity.NOTE)
    assert result.exit_code == 0 and f": a broker runs here (process {process}); 1 note" in result.stdout
    assert (summary["broker"], summary["exit_code"], summary["loads"]) == (process, 0, True)
    assert codes(logs) == set()
