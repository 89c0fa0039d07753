"""Producers: replay, transactions, snapshots."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seglog.errors import InvalidRecordError, InvalidTransactionStateError
from seglog.format.producer_snapshot import decode_snapshot
from seglog.log.producer_state import CompletedTransaction, ProducerStateManager
from tests.support.log_files import FS, batch, idempotent, marker, replayed, rows_of, transactional


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


def test_a_producer_without_transactions_is_remembered_from_the_first_id_on(tmp_path: Path) -> None:
    producers = replayed(tmp_path, idempotent(0, 0, 0, 3), idempotent(3, 0, 3, 2), batch(5, 4))
    (kept,) = producers.producers.values()
    assert [(b.first_sequence, b.last_sequence, b.last_offset) for b in kept.batches] == [(0, 2, 2), (3, 4, 4)]
    assert (kept.producer_id, kept.next_sequence, kept.last_data_offset, kept.last_timestamp) == (0, 5, 4, 1000)
    assert (kept.in_transaction, producers.first_unstable_offset, producers.end_offset) == (False, None, 9)


def test_a_marker_alone_makes_its_producer_known(tmp_path: Path) -> None:
    producers = replayed(tmp_path, marker(0, 7, commit=True, epoch=3))
    state = producers.producers[7]
    assert (state.epoch, state.coordinator_epoch, state.last_sequence, state.next_sequence) == (3, 7, -1, 0)
    assert state.last_data_offset == -1
    assert producers.first_unstable_offset is None


def test_a_marker_of_a_later_epoch_forgets_the_batches(tmp_path: Path) -> None:
    producers = replayed(tmp_path, transactional(0, 7, 5), marker(1, 7, commit=False, epoch=1))
    assert (producers.producers[7].epoch, list(producers.producers[7].batches)) == (1, [])


def test_a_new_epoch_forgets_the_batches_of_the_old_one(tmp_path: Path) -> None:
    producers = replayed(tmp_path, transactional(0, 7, 5), marker(1, 7, commit=True), transactional(2, 7, 0, epoch=1))
    assert [kept.last_sequence for kept in producers.producers[7].batches] == [0]


def test_sequences_wrap_to_zero(tmp_path: Path) -> None:
    producers = replayed(tmp_path, transactional(0, 7, 2**31 - 1))
    kept = producers.producers[7].batches[0]
    assert (kept.first_sequence, kept.last_sequence) == (2**31 - 1, 2**31 - 1)
    assert producers.producers[7].next_sequence == 0


def test_a_batch_over_which_sequences_wrap_keeps_both_ends(tmp_path: Path) -> None:
    state = replayed(tmp_path, idempotent(0, 7, 2**31 - 2, 4)).producers[7]
    assert (state.batches[0].first_sequence, state.batches[0].last_sequence) == (2**31 - 2, 1)
    assert state.next_sequence == 2


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
    assert tolerant.open_transactions == {0: 7}


def test_an_error_leaves_no_trace_when_asked_for(tmp_path: Path) -> None:
    """Producers that were known, one that comes, a transaction that ends and one that begins."""
    producers = replayed(tmp_path, transactional(0, 1, 0), idempotent(1, 2, 0), transactional(2, 3, 0))
    producers.replay(*rows_of(marker(3, 3, commit=True)), 0, tmp_path)
    before = state_of(producers)
    data, rows = rows_of(
        marker(4, 1, commit=False)
        + transactional(5, 2, 1)
        + idempotent(6, 4, 0)
        + transactional(7, 1, 1, epoch=1)
        + idempotent(8, 1, 2, epoch=1)
    )
    with pytest.raises(InvalidTransactionStateError), producers.unchanged_on_error(rows):
        producers.replay(data, rows, 0, tmp_path)
    assert state_of(producers) == before
    with producers.unchanged_on_error(rows[:4]):
        producers.replay(data, rows[:4], 0, tmp_path)
    assert (sorted(producers.producers), producers.open_transactions) == ([1, 2, 3, 4], {5: 2, 7: 1})


def state_of(producers: ProducerStateManager) -> object:
    """Everything that replaying changes, apart from the manager."""
    return (
        {id_: state.copy() for id_, state in producers.producers.items()},
        producers.open_transactions,
        producers.first_unstable_offset,
        producers.end_offset,
    )


def test_a_broken_marker_is_reported_with_its_position(tmp_path: Path) -> None:
    first = transactional(0, 7, 0)
    data, rows = rows_of(first + marker(1, 7, commit=True, key=b"\x00"))
    with pytest.raises(InvalidRecordError) as raised:
        ProducerStateManager(FS, tmp_path).replay(data, rows, 0, tmp_path)
    assert raised.value.position == len(first)


def test_the_state_ends_before_what_is_wrong(tmp_path: Path) -> None:
    for wrong in (marker(1, 7, commit=True, key=b"\x00"), idempotent(1, 7, 1)):
        data, rows = rows_of(transactional(0, 7, 0) + wrong)
        producers = ProducerStateManager(FS, tmp_path)
        with pytest.raises((InvalidRecordError, InvalidTransactionStateError)):
            producers.replay(data, rows, 0, tmp_path)
        assert (producers.end_offset, producers.open_transactions) == (1, {0: 7})


@pytest.mark.parametrize("kind", [-1, 2, 6, 9, 77])
def test_a_producers_control_record_of_another_type_ends_a_replay_as_in_kafka(tmp_path: Path, kind: int) -> None:
    """Kafka: EndTransactionMarker.deserialize, whose IllegalArgumentException ends the load."""
    batches = transactional(0, 7, 0), marker(1, 7, commit=True, key=struct.pack(">hh", 0, kind))
    with pytest.raises(InvalidTransactionStateError, match="not a transaction marker"):
        replayed(tmp_path, *batches)
    producers = ProducerStateManager(FS, tmp_path, strict=False)  # as a repair replays them
    data, rows = rows_of(b"".join(batches))
    producers.replay(data, rows, 0, tmp_path / "test.log")
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


@pytest.mark.parametrize(("silent_ms", "restored"), [(9, [7]), (10, [])])
def test_a_producer_is_silent_too_long_after_the_expiration(
    tmp_path: Path, silent_ms: int, restored: list[int]
) -> None:
    replayed(tmp_path, idempotent(0, 7, 0)).take_snapshot()
    producers = ProducerStateManager(FS, tmp_path, expiration_ms=10)
    producers.truncate_and_reload(0, 1, now_ms=1000 + silent_ms)
    assert sorted(producers.producers) == restored


def test_the_first_record_alone_makes_a_snapshot_and_nothing_makes_none(tmp_path: Path) -> None:
    assert ProducerStateManager(FS, tmp_path).take_snapshot() is None
    path = replayed(tmp_path, idempotent(0, 7, 0)).take_snapshot()
    assert path is not None
    (kept,) = decode_snapshot(path.read_bytes(), path)
    assert (kept.last_sequence, kept.last_offset, kept.offset_delta) == (0, 0, 0)
    again = ProducerStateManager(FS, tmp_path)
    again.truncate_and_reload(0, 1, now_ms=2000)
    assert [b.last_offset for b in again.producers[7].batches] == [0]


def test_reloading_drops_the_snapshots_outside_the_log(tmp_path: Path) -> None:
    for offset in (3, 4, 5, 8, 9):
        replayed(tmp_path, *(idempotent(i, 7, i) for i in range(offset))).take_snapshot()
    producers = ProducerStateManager(FS, tmp_path)
    producers.truncate_and_reload(4, 8, now_ms=2000)
    assert producers.snapshots == [5, 8]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{offset:020d}.snapshot" for offset in (5, 8)]
    assert (producers.end_offset, producers.producers[7].last_sequence) == (8, 7)


def test_reloading_forgets_what_came_after_and_stays_where_it_is(tmp_path: Path) -> None:
    producers = replayed(tmp_path, transactional(0, 7, 0), transactional(1, 8, 0), marker(2, 8, commit=True))
    producers.truncate_and_reload(2, 3, now_ms=2000)  # the end stays: so do producers
    assert (sorted(producers.producers), producers.open_transactions) == ([7, 8], {0: 7})
    assert producers.first_unstable_offset == 0
    producers.truncate_and_reload(0, 1, now_ms=2000)
    assert (producers.producers, producers.first_unstable_offset, producers.end_offset) == ({}, None, 0)


def test_a_log_start_beyond_a_marker_forgets_its_transaction(tmp_path: Path) -> None:
    producers = replayed(tmp_path, transactional(0, 8, 0), marker(1, 8, commit=True))
    producers.truncate_and_reload(1, 2, now_ms=2000)
    assert producers.first_unstable_offset == 0
    producers.truncate_and_reload(2, 2, now_ms=2000)
    assert (producers.first_unstable_offset, sorted(producers.producers)) == (None, [8])


def test_starting_anew_leaves_nothing(tmp_path: Path) -> None:
    producers = replayed(tmp_path, transactional(0, 7, 0), transactional(1, 8, 0), marker(2, 8, commit=True))
    producers.take_snapshot()
    producers.truncate_fully_and_start_at(50)
    assert (producers.producers, producers.open_transactions, producers.first_unstable_offset) == ({}, {}, None)
    assert (producers.end_offset, producers.snapshots, list(tmp_path.iterdir())) == (50, [], [])
    assert producers.take_snapshot() is not None


def test_a_corrupt_snapshot_is_removed_and_the_one_before_is_taken(tmp_path: Path) -> None:
    replayed(tmp_path, transactional(0, 7, 3)).take_snapshot()
    bad = tmp_path / "00000000000000000005.snapshot"
    bad.write_bytes(b"\x00\x01garbage")
    producers = ProducerStateManager(FS, tmp_path)
    producers.truncate_and_reload(0, 9, now_ms=2000)
    assert (producers.end_offset, sorted(producers.producers), bad.exists()) == (1, [7], False)


@pytest.mark.parametrize(
    ("bases", "kept"),
    [
        ([0, 10, 20], [10, 20, 40]),
        ([0, 10, 41], [10]),
        ([0, 10, 40], [10, 40]),
        ([5, 10, 12, 20, 30, 40], [5, 10, 12, 20, 30, 40]),
        ([], [40]),
    ],
    ids=str,
)
def test_stray_snapshots_go_but_the_largest_above_all_segments(
    tmp_path: Path, bases: list[int], kept: list[int]
) -> None:
    for offset in (10, 12, 20, 30, 40):
        (tmp_path / f"{offset:020d}.snapshot").write_bytes(b"")
    producers = ProducerStateManager(FS, tmp_path)
    (tmp_path / f"{5:020d}.snapshot").write_bytes(b"")  # came after the manager looked
    producers.remove_stray_snapshots(bases)
    assert producers.snapshots == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{offset:020d}.snapshot" for offset in kept]
