"""What stops a broker although the log is whole, as recover, clean and retain report it."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.log.checkpoints import directory_obstacles, partition_obstacles
from tests.support.command_line import json_lines, run
from tests.support.compacted_directories import broker_directory
from tests.support.log_files import FS

METADATA = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
COMMANDS = (
    ("clean", "--policy", "compact"),
    ("clean", "--policy", "compact", "--dry-run"),
    ("retain", "--retention-bytes", "1"),
    ("retain", "--retention-bytes", "1", "--dry-run"),
)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    path = broker_directory(tmp_path / "logs", {"t-0": (2, 5)})
    (path / "t-0" / "partition.metadata").write_text(METADATA)
    return path


def test_a_directory_that_a_broker_takes_has_no_obstacles(logs: Path) -> None:
    assert list(directory_obstacles(FS, logs)) == []
    assert list(partition_obstacles(FS, logs / "t-0")) == []
    assert list(partition_obstacles(FS, logs / "gone-0")) == []


@pytest.mark.parametrize(
    "contents", [b"", b"version: 0\n", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"\xff", None]
)
def test_a_partition_metadata_that_cannot_be_read_is_reported_by_all_that_could_work_without_it(
    logs: Path, contents: bytes | None
) -> None:
    path = logs / "t-0" / "partition.metadata"
    path.unlink()
    if contents is None:
        path.mkdir()
    else:
        path.write_bytes(contents)
    for dry_run in (["--dry-run"], []):
        done = run("recover", "--json", *dry_run, logs / "t-0")
        assert done.exit_code == 1
        assert [sentence for sentence in json_lines(done)[0]["obstacles"] if "partition.metadata" in sentence]
        assert "a broker does not open it" in run("recover", *dry_run, logs).stdout
    for command in COMMANDS:
        done = run(*command, logs / "t-0")
        assert done.exit_code == 0 and f"warning: a broker does not start with this: {path}" in done.stderr


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("meta.properties", b"version=7\n"),
        ("meta.properties", b"version=1\nnode.id=1\n"),
        ("recovery-point-offset-checkpoint", b"gibberish"),
        ("replication-offset-checkpoint", b"0\n1\nt 0 x\n"),
        ("cleaner-offset-checkpoint", b"0\n2\nt 0 5\n"),
        ("t-0/leader-epoch-checkpoint", b"0\n1\n-3 -4\n"),
        ("t-0/abc.index", b""),
    ],
)
def test_other_small_files_that_stop_a_broker_are_named(logs: Path, name: str, contents: bytes) -> None:
    (logs / name).write_bytes(contents)
    found = [*directory_obstacles(FS, logs), *partition_obstacles(FS, logs / "t-0")]
    assert len(found) == 1 and str(logs / name) in found[0]
    done = run("recover", "--dry-run", logs)
    assert done.exit_code == 1 and str(logs / name) in done.output


def test_a_number_that_is_none_counts_as_an_empty_checkpoint_as_in_a_broker(logs: Path) -> None:
    (logs / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 x\n")
    assert list(directory_obstacles(FS, logs)) == []
