"""Transactions as a log tells them."""

from __future__ import annotations

from pathlib import Path

from seglog.scan.listing import list_partition
from seglog.verification.transaction_coordinators import transactions
from seglog.verification.transactions import Transaction, TransactionState
from seglog_cli.commands.txn import abort_command
from tests.support.fixtures import expected, fixture_copy
from tests.support.log_files import FS, batch, marker, transactional, write_segment

LATE_MS = 10**13


def found_in(log: Path, now_ms: int = 2000) -> list[Transaction]:
    return list(transactions(FS, list_partition(FS, log), now_ms))


def test_begin_and_end_across_segments(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    write_segment(log, 0, transactional(0, 7, 0, timestamp=1000), transactional(1, 8, 0), batch(2))
    write_segment(log, 3, transactional(3, 7, 1), marker(4, 7, commit=False), marker(5, 8, commit=True))
    aborted, committed = found_in(log)
    assert (aborted.state, aborted.first_offset, aborted.last_offset) == (TransactionState.ABORTED, 0, 4)
    assert (aborted.batches, aborted.records, aborted.coordinator_epoch) == (2, 2, 7)
    assert (committed.state, committed.first_offset, committed.last_offset) == (TransactionState.COMMITTED, 1, 5)
    assert (committed.file, committed.position) == (f"{0:020d}.log", aborted.bytes // 2)


def test_an_open_one_hangs_when_it_is_too_old(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, transactional(0, 7, 0), marker(1, 9, commit=True))
    (young,), (old,) = found_in(tmp_path / "t-0"), found_in(tmp_path / "t-0", LATE_MS)
    assert (young.state, young.last_offset, young.hanging) == (TransactionState.OPEN, None, None)
    assert old.hanging is True
    command = abort_command(old, list_partition(FS, tmp_path / "t-0"), "broker:9092")
    assert command.endswith("--bootstrap-server broker:9092 abort --topic t --partition 0 --start-offset 0")


def test_damaged_batches_are_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    write_segment(log, 0, transactional(0, 7, 0), transactional(1, 7, 1), marker(2, 7, commit=True))
    path = log / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    (one,) = found_in(log)
    assert (one.first_offset, one.batches) == (1, 1)


def test_the_aborted_ones_are_those_of_kafkas_index(tmp_path: Path) -> None:
    log = fixture_copy("4.3.0/clean", tmp_path) / "payments-0"
    files = expected("4.3.0/clean", "payments-0", "index")
    files = files.get("files", files)
    listed = {
        (int(entry["producerId"]), int(entry["firstOffset"]), int(entry["lastOffset"]))
        for name, file in files.items()
        if name.endswith(".txnindex")
        for entry in file["entries"]
    }
    assert len(listed) > 10
    ours = [one for one in found_in(log) if one.state is TransactionState.ABORTED]
    assert {(one.producer_id, one.first_offset, one.last_offset) for one in ours} == listed
