"""The zeros that a broker with `log.preallocate` leaves at the end of a log when it is killed are no lost data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.command_line import json_lines, run
from tests.support.log_files import batch, write_segment
from tests.support.open_logs import START_MS

SEGMENT_BYTES = 1 << 16
NOW = str(START_MS + 86_400_000)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The last segment of t-0, whose file has the size of segment.bytes."""
    write_segment(tmp_path / "t-0", 0, batch(0, 4))
    write_segment(tmp_path / "t-0", 4, batch(4, 4))
    last = tmp_path / "t-0" / f"{4:020d}.log"
    os.truncate(last, SEGMENT_BYTES)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    return last


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_recovery_counts_them_apart_from_what_is_lost(log: Path, dry_run: bool) -> None:
    written = len(batch(4, 4))
    (row,) = json_lines(run("recover", "--json", *(["--dry-run"] if dry_run else []), log.parent))
    assert (row["truncated_bytes"], row["truncated_segments"], row["run"]) == (0, [], None)
    assert (row["preallocated_bytes"], row["log_end_offset"]) == (SEGMENT_BYTES - written, 8)
    assert log.stat().st_size == (SEGMENT_BYTES if dry_run else written)


def test_a_recovery_says_that_nothing_is_lost(log: Path) -> None:
    done = run("recover", log.parent)
    cut = SEGMENT_BYTES - len(batch(4, 4))
    assert f"offsets 0 to 8, nothing lost, {cut} preallocated zero bytes cut off\n" in done.stdout


@pytest.mark.parametrize(
    "command",
    [("retain", "--now", NOW, "--retention-ms", "1h"), ("append",), ("clean", "--set", "cleanup.policy=compact")],
    ids=lambda command: command[0],
)
def test_work_on_the_log_warns_of_no_loss(log: Path, command: tuple[str, ...]) -> None:
    done = run(command[0], *command[1:], log.parent, input_text="x\n")
    assert done.exit_code == 0
    assert "cut off" not in done.stderr and "lost" not in done.stderr
    assert run("verify", "--level", "crc", log.parent).exit_code == 0


def test_zeros_at_another_size_or_before_another_segment_are_lost_data(log: Path) -> None:
    os.truncate(log, SEGMENT_BYTES - 1)
    (row,) = json_lines(run("recover", "--json", "--dry-run", log.parent))
    assert row["preallocated_bytes"] == 0 < row["truncated_bytes"]
    os.truncate(log, SEGMENT_BYTES)
    write_segment(log.parent, 8, batch(8, 4))
    (row,) = json_lines(run("recover", "--json", "--dry-run", log.parent))
    assert (row["preallocated_bytes"], row["deleted_segments"]) == (0, [8])
