"""What recovery cannot know below the log start, indexes and snapshots need not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog.format.producer_snapshot import encode_snapshot
from tests.support.log_files import batch, marker, transactional, write_segment


@pytest.fixture
def recovered(tmp_path: Path) -> Path:
    """A broker's t-0 after a crash, whose records below 5 were deleted; the transactions of producers 6 to 9 begin in
    the first segment, and that of 6 has no end."""
    logs = tmp_path / "logs"
    write_segment(logs / "t-0", 0, *(transactional(producer - 6, producer, 0) for producer in (6, 7, 8, 9)))
    write_segment(logs / "t-0", 4, marker(4, 7, commit=False), batch(5), transactional(6, 8, 1))
    write_segment(logs / "t-0", 7, marker(7, 8, commit=False), marker(8, 9, commit=False), batch(9))
    for name, offset in (("log-start-offset", 5), ("recovery-point-offset", 0), ("replication-offset", 10)):
        (logs / f"{name}-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
    (report,) = seglog.recover(logs, keep=False)
    assert (report.clean_shutdown, report.truncated_bytes) == (False, 0)
    return logs


def found(logs: Path) -> list[tuple[str, int | None, int | None]]:
    return [(each.code, each.first_offset, each.last_offset) for each in seglog.verify(logs)]


def test_a_recovered_log_lists_no_transactions_that_were_over_before_and_none_is_missed(recovered: Path) -> None:
    assert not (recovered / "t-0" / f"{4:020d}.txnindex").exists(), "as with Kafka"
    assert found(recovered) == [("TRANSACTION_OPEN", 0, None)]


def test_an_abort_that_a_reader_needs_is_missed_as_ever(recovered: Path) -> None:
    (recovered / "t-0" / f"{7:020d}.txnindex").unlink()
    assert ("TRANSACTION_INDEX_DIFFERS", 6, 7) in found(recovered)


@pytest.mark.parametrize("start", [0, 1])
def test_a_snapshot_need_not_know_a_transaction_that_began_below_the_log_start(tmp_path: Path, start: int) -> None:
    """A broker that starts after all records were deleted replays none, and closes with an empty snapshot."""
    write_segment(tmp_path / "t-0", 0, transactional(0, 6, 0))
    (tmp_path / "t-0" / f"{1:020d}.snapshot").write_bytes(encode_snapshot([]))
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    codes = {code for code, _, _ in found(tmp_path / "t-0")}
    assert ("SNAPSHOT_DIFFERS" in codes) is (start == 0)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_an_abort_below_the_log_start_need_not_be_listed(tmp_path: Path, start: int) -> None:
    """Kafka's cleaner leaves it out where records were deleted up to the middle of a segment."""
    write_segment(tmp_path / "t-0", 0, transactional(0, 6, 0), marker(1, 6, commit=False), batch(2))
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    missed = [] if start == 2 else [("TRANSACTION_INDEX_DIFFERS", 0, 1)]
    assert [each for each in found(tmp_path / "t-0") if each[0] != "INDEX_MISSING"] == missed
