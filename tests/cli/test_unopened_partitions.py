"""A partition that this user may not open costs only its own part of the work on a log directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import seglog
from tests.support.command_line import ended
from tests.support.log_files import batch, write_segment
from tests.support.other_users import acting_as_user, given_to, needs_root, open_directory

PARTITIONS = ("t-0", "u-0", "v-0")
CLOSED = "u-0"


@pytest.fixture
def logs() -> Iterator[Path]:
    with open_directory() as directory:
        logs = directory / "logs"
        for name in PARTITIONS:
            write_segment(logs / name, 0, batch(0, 4))
            write_segment(logs / name, 4, batch(4, 4))
        (logs / "recovery-point-offset-checkpoint").write_text("0\n3\nt 0 0\nu 0 0\nv 0 0\n")
        given_to(logs)
        (logs / CLOSED).chmod(0)
        yield logs


@needs_root
@pytest.mark.parametrize("dry_run", [True, False], ids=["planned", "done"])
@pytest.mark.parametrize(
    "command",
    [("recover",), ("reindex",), ("retain", "--retention-ms", "1h"), ("retain", "--free", "+1")],
    ids=" ".join,
)
def test_the_others_are_worked_on_and_the_failed_one_is_named(
    logs: Path, command: tuple[str, ...], dry_run: bool
) -> None:
    with acting_as_user():
        done = ended(*command, "--json", *(["--dry-run"] if dry_run else []), logs)
    assert done.code == 3
    assert str(logs / CLOSED).encode() in done.stderr and b"Permission denied" in done.stderr
    assert all(name.encode() in done.stdout for name in PARTITIONS if name != CLOSED)
    assert not (logs / ".kafka_cleanshutdown").exists()


@needs_root
def test_repair_mends_the_others_and_names_the_closed_one(logs: Path) -> None:
    torn = {name: logs / name / f"{4:020d}.log" for name in PARTITIONS if name != CLOSED}
    whole = {name: path.read_bytes() for name, path in torn.items()}
    for path in torn.values():
        path.write_bytes(path.read_bytes() + b"torn")
    ended("repair", "--dry-run", logs)  # as root: a module imported later may lie where the other user cannot go
    with acting_as_user():
        planned = ended("repair", "--dry-run", logs)
        assert all(path.stat().st_size == len(whole[name]) + 4 for name, path in torn.items())
        done = ended("repair", logs)
    for run in (planned, done):
        assert run.code == 3
        assert f"{logs / CLOSED}: Permission denied; nothing is repaired in this partition".encode() in run.stderr
    assert {name: path.read_bytes() for name, path in torn.items()} == whole
    assert b"1 finding left" in done.stdout


@needs_root
def test_the_librarys_repair_warns_of_the_closed_one(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    torn = logs / PARTITIONS[0] / f"{4:020d}.log"
    torn.write_bytes(torn.read_bytes() + b"torn")
    seglog.plan_repair(logs)  # as root: a module imported later may lie where the other user cannot go
    with acting_as_user():
        (done,) = seglog.repair(logs)
    assert f"{logs / CLOSED}: Permission denied" in caplog.text
    assert [f"{logs / CLOSED}: Permission denied" in sentence for sentence in done.outcome.plan.unopened] == [True]
    assert done.outcome.run is not None and not done.complete
