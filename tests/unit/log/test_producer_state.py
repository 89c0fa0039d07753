"""Producers: replay, transactions, snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import InvalidRecordError, InvalidTransactionStateError
from seglog.log.producer_state import CompletedTransaction, ProducerStateManager
from tests.support.log_files import FS, batch, marker, replayed, rows_of, transactional


def test_plain_batches_move_the_end_and_leave_no_producer(tmp_path: Path) -> None:
    producers = replayed(tmp_path, batch(0, 5), batch(5, 5))
    assert (producers.end_offset, producers.producers) == (10, {})


def test_the_last_five_batches_are_remembered(tmp_path: Path) -> None:
    producers = replayed(tmp_path, *(transactional(i, 7, i) for i in range(8)))
    state = producers.producers[7]
    assert [kept.last_sequence for kept in state.batches] == [3, 4, 5, 6, 7]
    assert state.duplicate_of(0, 4, 4) is not None
    assert state.duplicate_of(0, 2, 2) is None
    assert state.duplicate_of(1, 4, 4) is None


def test_a_new_epoch_forgets_the_batches_of_the_old_one(tmp_path: Path) -> None:
    producers = replayed(tmp_path, transactional(0, 7, 5), marker(1, 7, commit=True), transactional(2, 7, 0, epoch=1))
    assert [kept.last_sequence for kept in producers.producers[7].batches] == [0]


def test_sequences_wrap_to_zero(tmp_path: Path) -> None:
    producers = replayed(tmp_path, transactional(0, 7, 2**31 - 1))
    kept = producers.producers[7].batches[0]
    assert (kept.first_sequence, kept.last_sequence) == (2**31 - 1, 2**31 - 1)


def test_transactions_open_at_their_first_batch_and_end_at_their_marker(tmp_path: Path) -> None:
    seen: list[tuple[CompletedTransaction, int]] = []
    producers = ProducerStateManager(FS, tmp_path)
    data, rows = rows_of(
        transactional(10, 1, 0) + transactional(11, 2, 0) + marker(12, 1, commit=False) + marker(13, 2, commit=True)
    )
    producers.replay(data, rows, 0, tmp_path, lambda *completed: seen.append(completed))
    assert seen == [
        (CompletedTransaction(1, 10, 12, True), 11),
        (CompletedTransaction(2, 11, 13, False), 14),
    ]
    assert producers.open_transactions == {}


def test_a_completed_transaction_is_unstable_until_the_high_watermark_passes_its_marker(tmp_path: Path) -> None:
    producers = replayed(tmp_path, transactional(10, 1, 0), marker(11, 1, commit=True))
    assert producers.first_unstable_offset == 10
    producers.on_high_watermark(11)
    assert producers.first_unstable_offset == 10
    producers.on_high_watermark(12)
    assert producers.first_unstable_offset is None


def test_a_plain_batch_inside_its_producers_transaction_is_an_error_unless_only_read(tmp_path: Path) -> None:
    inside = bytearray(batch(1, 1))
    inside[43:53] = transactional(1, 7, 1)[43:53]
    data, rows = rows_of(transactional(0, 7, 0) + bytes(inside))
    with pytest.raises(InvalidTransactionStateError, match="began at offset 0"):
        ProducerStateManager(FS, tmp_path).replay(data, rows, 0, tmp_path)
    tolerant = ProducerStateManager(FS, tmp_path, strict=False)
    tolerant.replay(data, rows, 0, tmp_path)
    assert tolerant.end_offset == 2


def test_a_broken_marker_is_told_with_its_place(tmp_path: Path) -> None:
    first = transactional(0, 7, 0)
    data, rows = rows_of(first + marker(1, 7, commit=True, key=b"\x00"))
    with pytest.raises(InvalidRecordError) as raised:
        ProducerStateManager(FS, tmp_path).replay(data, rows, 0, tmp_path)
    assert raised.value.position == len(first)


def test_markers_of_unknown_type_end_nothing(tmp_path: Path) -> None:
    producers = replayed(tmp_path, transactional(0, 7, 0), marker(1, 7, commit=True, key=b"\x00\x00\x00\x09"))
    assert producers.open_transactions == {0: 7}


def test_a_snapshot_brings_the_state_back(tmp_path: Path) -> None:
    producers = replayed(tmp_path, transactional(0, 7, 3), marker(1, 7, commit=True), transactional(2, 8, 0))
    path = producers.take_snapshot()
    assert path is not None and path.name == "00000000000000000003.snapshot"
    assert producers.take_snapshot() is None
    again = ProducerStateManager(FS, tmp_path)
    again.truncate_and_reload(0, 3, now_ms=2000)
    assert (again.end_offset, again.open_transactions) == (3, {2: 8})
    assert again.producers[7].coordinator_epoch == 7
    assert again.producers[7].last_data_offset == 0


def test_silent_producers_are_not_restored_but_those_in_a_transaction_are(tmp_path: Path) -> None:
    replayed(tmp_path, transactional(0, 7, 3), marker(1, 7, commit=True), transactional(2, 8, 0)).take_snapshot()
    late = ProducerStateManager(FS, tmp_path, expiration_ms=10)
    late.truncate_and_reload(0, 3, now_ms=10**6)
    assert sorted(late.producers) == [8]


def test_a_corrupt_snapshot_is_removed_and_the_one_before_is_taken(tmp_path: Path) -> None:
    replayed(tmp_path, transactional(0, 7, 3)).take_snapshot()
    bad = tmp_path / "00000000000000000005.snapshot"
    bad.write_bytes(b"\x00\x01garbage")
    producers = ProducerStateManager(FS, tmp_path)
    producers.truncate_and_reload(0, 9, now_ms=2000)
    assert (producers.end_offset, sorted(producers.producers), bad.exists()) == (1, [7], False)


def test_stray_snapshots_go_but_the_largest_above_all_segments(tmp_path: Path) -> None:
    for offset in (5, 10, 12, 20, 30, 40):
        (tmp_path / f"{offset:020d}.snapshot").write_bytes(b"")
    producers = ProducerStateManager(FS, tmp_path)
    producers.remove_stray_snapshots([0, 10, 20])
    assert sorted(producers.snapshots) == [10, 20, 40]
