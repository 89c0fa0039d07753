"""Cuts of a log that a broker goes on with: no key is lost that it had at the cut, and no leader epoch lies beyond."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.command_line import json_lines, run
from tests.support.log_files import batch
from tests.unit.backup.test_backup import (
    Interfering,
    WritingClock,
    broker_at_work,
    log_of,
    logs_of,
    restored,
    stored,
    watermarks,
)

FIRST, ACTIVE = "00000000000000000000.log", "00000000000000000012.log"


def compacted(logs: Path, *, has_ended: bool) -> None:
    """The broker appends, rolls and compacts what lies below the active segment: offset 11 is the newest of its key."""
    orders = logs / "orders-0"
    (orders / FIRST).rename(orders / f"{FIRST}.deleted")
    (orders / FIRST).write_bytes(batch(11))
    (orders / ACTIVE).write_bytes(batch(12))
    if has_ended:
        (orders / f"{FIRST}.deleted").unlink()
        (logs / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 12\n")


def compacted_meanwhile(tmp_path: Path, *watermarks_then: int, has_ended: bool) -> list[str]:
    """Backs a log up that is compacted after the high watermarks were read; returns the run's remarks."""
    logs = logs_of(tmp_path / "logs", *(batch(i) for i in range(10)))
    logs_of(logs, batch(0), name="before-0")  # stored first
    watermarks(logs, orders_0=1)
    fs = Interfering(FIRST, lambda: compacted(logs, has_ended=has_ended))
    clock = WritingClock(logs, *({"orders_0": offset, "before_0": 1} for offset in (7, *watermarks_then)))
    with broker_at_work(logs):
        return stored(logs, tmp_path / "backup", clock, fs).remarks


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_log_that_was_compacted_beyond_its_cut_is_stored_with_a_later_one(tmp_path: Path, has_ended: bool) -> None:
    assert compacted_meanwhile(tmp_path, 13, has_ended=has_ended) == []
    assert log_of(restored(tmp_path / "backup", tmp_path / "new")) == batch(11) + batch(12)


def test_a_log_whose_high_watermark_stays_behind_the_compaction_is_told_of(tmp_path: Path) -> None:
    *_, remark = compacted_meanwhile(tmp_path, 8, 9, 10, has_ended=True)
    assert "orders-0 is compacted faster than its broker writes high watermarks" in remark
    assert "written again at 10 or above" in remark


def test_a_log_without_a_compaction_is_stored_once(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i) for i in range(10)))
    (logs / "orders-0" / ACTIVE).write_bytes(batch(12))
    watermarks(logs, orders_0=1)
    with broker_at_work(logs):
        assert stored(logs, tmp_path / "backup", WritingClock(logs, {"orders_0": 7}, {"orders_0": 13})).remarks == []
    assert log_of(restored(tmp_path / "backup", tmp_path / "new")) == b"".join(batch(i) for i in range(7))


def test_a_log_of_which_retention_deletes_segments_is_stored_once(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", batch(0))
    orders, second = logs / "orders-0", "00000000000000000001.log"
    (orders / FIRST).rename(orders / f"{FIRST}.deleted")
    (orders / second).write_bytes(b"".join(batch(i) for i in range(1, 10)))
    (orders / ACTIVE).write_bytes(batch(12))
    watermarks(logs, orders_0=1)
    with broker_at_work(logs):
        assert stored(logs, tmp_path / "backup", WritingClock(logs, {"orders_0": 7}, {"orders_0": 13})).remarks == []
    new = restored(tmp_path / "backup", tmp_path / "new")
    assert (new / "orders-0" / second).read_bytes() == b"".join(batch(i) for i in range(1, 7))


@pytest.mark.parametrize("live", [False, True])
def test_leader_epochs_that_begin_beyond_the_cut_stay_out(tmp_path: Path, live: bool) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i, epoch=i // 4) for i in range(10)))
    epochs = logs / "orders-0" / "leader-epoch-checkpoint"
    epochs.write_text("0\n3\n0 0\n1 4\n2 8\n")
    watermarks(logs, orders_0=6)
    with broker_at_work(logs) if live else nullcontext():
        stored(logs, tmp_path / "backup", WritingClock(logs, {"orders_0": 6}))
    new = restored(tmp_path / "backup", tmp_path / "new")
    assert (new / "orders-0" / epochs.name).read_text() == "0\n2\n0 0\n1 4\n"
    grave = [row for row in json_lines(run("verify", "--json", new)) if row.get("severity") in ("warning", "error")]
    assert grave == []
    stored(logs, tmp_path / "backup", uncommitted=True)
    again = restored(tmp_path / "backup", tmp_path / "again")
    assert (again / "orders-0" / epochs.name).read_text() == epochs.read_text()


def test_leader_epochs_that_cannot_be_read_are_stored_as_they_are(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i) for i in range(10)))
    epochs = logs / "orders-0" / "leader-epoch-checkpoint"
    epochs.write_text("0\n3\n0 0\n")
    watermarks(logs, orders_0=6)
    stored(logs, tmp_path / "backup")
    assert (restored(tmp_path / "backup", tmp_path / "new") / "orders-0" / epochs.name).read_text() == "0\n3\n0 0\n"


def test_a_checkpoint_that_was_cut_comes_whole_with_the_next_run_although_it_has_not_changed(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i) for i in range(10)))
    starts = logs / "log-start-offset-checkpoint"
    starts.write_text("0\n1\norders 0 8\n")
    watermarks(logs, orders_0=1)
    with broker_at_work(logs):
        clock = WritingClock(logs, {"orders_0": 6}, {"orders_0": 9})
        for offset in (6, 9):
            stored(logs, tmp_path / "backup", clock)
            new = restored(tmp_path / "backup", tmp_path / str(offset))
            assert (new / starts.name).read_text() == f"0\n1\norders 0 {min(offset, 8)}\n"
