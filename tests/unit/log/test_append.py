"""Appending: offsets, time, producers, transactions, rolling, flushing, and what a refusal leaves behind."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import (
    AppendError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    RefusedError,
    SeglogError,
    SegmentOffsetOverflowError,
    UnexpectedAppendOffsetError,
)
from seglog.format.builder import BatchOptions, columns, columns_of, encode_all
from seglog.format.decoder import checksums_match
from seglog.log.append import ProducerIdentity
from seglog.log.log import Log
from seglog.model import Compression, Isolation, Record, TimestampType
from tests.support.log_files import encode_message_set, marker, transactional
from tests.support.manual_clock import ManualClock
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.open_logs import START_MS, opened_log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with opened_log(tmp_path / "t-0") as opened:
        yield opened


def some(count: int, *, size: int = 10, start: int = START_MS) -> list[Record]:
    return [Record(b"v" * size, b"k%d" % i, timestamp=start + i) for i in range(count)]


# --- records --------------------------------------------------------------------------------------------


def test_records_get_offsets_and_come_back(log: Log) -> None:
    info = log.append(some(10), batch_records=3)
    assert (info.first_offset, info.last_offset, info.batches, info.count) == (0, 9, 4, 10)
    assert log.append(some(2)).first_offset == 10
    assert [record.offset for record in log.records()] == list(range(12))
    assert log.high_watermark == log.log_end_offset == 12


def test_nothing_to_append_is_no_error(log: Log) -> None:
    info = log.append([])
    assert (info.first_offset, info.last_offset, info.count) == (0, -1, 0)
    assert log.append_batches(b"").count == 0


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"leader_epoch": "1"}, TypeError, "leader_epoch must be an integer, not '1'"),
        ({"leader_epoch": -2}, ValueError, "leader_epoch: -2 is not from -1 to 2147483647"),
        ({"leader_epoch": 2**31}, ValueError, "leader_epoch: 2147483648 is not"),
        ({"producer": 5}, TypeError, "producer must be a seglog.ProducerIdentity, not 5"),
        ({"batch_records": "9"}, TypeError, "batch_records must be an integer, not '9'"),
        ({"batch_bytes": 1.5}, TypeError, "batch_bytes must be an integer, not 1.5"),
    ],
)
def test_an_argument_of_a_wrong_kind_is_named_and_nothing_is_written(
    log: Log, wrong: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        log.append(some(1), **wrong)
    if "leader_epoch" in wrong:
        with pytest.raises(error, match=said):
            log.append_as_follower(batch_v2(0, [NaiveRecord(0, 0, None, b"v")]), wrong["leader_epoch"])
    assert (log.log_end_offset, log.append(some(1)).first_offset) == (0, 0)


def test_records_without_timestamp_get_now(log: Log) -> None:
    log.append([Record(b"a"), Record(b"b", timestamp=START_MS - 5), Record(b"c")])
    assert [record.timestamp for record in log.records()] == [START_MS, START_MS - 5, START_MS]


def test_append_time_is_now_also_where_the_log_holds_a_later_one(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    late = START_MS + 10**12
    with opened_log(tmp_path / "t-0", clock=clock, message_timestamp_after_max_ms=10**13) as log:
        assert log.append(some(1, start=late)).log_append_time == -1
    kind = TimestampType.LOG_APPEND_TIME
    with opened_log(tmp_path / "t-0", clock=clock, message_timestamp_type=kind) as log:
        assert log.append(some(1, start=7)).log_append_time == START_MS
        clock.advance(-1000)
        assert log.append(some(1)).log_append_time == START_MS - 1000
        clock.advance(1500)
        sent = encode_all(columns_of(some(1)), 0, BatchOptions())
        info = log.append_batches(sent)
        assert info.max_timestamp == info.log_append_time == START_MS + 500
        assert [r.timestamp for r in log.records()] == [late, START_MS, START_MS - 1000, START_MS + 500]
        copied = encode_all(columns_of(some(1, start=3)), 4, BatchOptions())
        assert log.append_as_follower(copied, 0).log_append_time == -1


def test_a_duplicate_has_the_append_time_of_the_first_time(tmp_path: Path) -> None:
    clock, producer = ManualClock(START_MS), ProducerIdentity(1, base_sequence=0)
    with opened_log(tmp_path / "t-0", clock=clock, message_timestamp_type=TimestampType.LOG_APPEND_TIME) as log:
        log.append(some(1), producer=producer)
        clock.advance(50)
        info = log.append(some(1), producer=producer)
    assert (info.duplicate, info.first_offset, info.log_append_time) == (True, 0, START_MS)


def test_producers_and_markers_that_cannot_be_are_refused_where_they_are_made(log: Log) -> None:
    for wrong in ({"producer_id": 2**63}, {"producer_id": "1"}, {"base_sequence": 1.5}, {"transactional": "no"}):
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong)).split("_")[0]):
            ProducerIdentity(**{"producer_id": 1, **wrong})  # type: ignore[arg-type]
    producer = ProducerIdentity(1, transactional=True)
    log.append(some(1), producer=producer)
    for named in ({"commit": "abort"}, {"coordinator_epoch": 2**31}, {"timestamp": "now"}, {"timestamp": -5}):
        with pytest.raises((TypeError, ValueError), match=next(iter(named))):
            log.append_end_txn_marker(producer, **{"commit": False, **named})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"producer must be a seglog.ProducerIdentity, not 1 \(int\)"):
        log.append_end_txn_marker(1, commit=False)  # type: ignore[arg-type]
    assert log.append(some(1), producer=producer, batch_records=2**70).count == 1
    assert log.append_end_txn_marker(producer, commit=False).first_offset == 2


BAD_ROWS = columns_of(some(3)).rows.copy()
BAD_ROWS["value_position"][2] = 10_000
REFUSED: dict[str, tuple[Any, dict[str, Any], type[SeglogError]]] = {
    "a negative timestamp": ([*some(5000), Record(b"v", timestamp=-2)], {}, InvalidTimestampError),
    "a timestamp too far ahead": ([*some(9), Record(b"v", timestamp=START_MS + 10**7)], {}, InvalidTimestampError),
    "a null key": (
        [*some(9), Record(b"v", timestamp=1)],
        {"cleanup_policy": frozenset({"compact"})},
        InvalidRecordError,
    ),
    "a record too large": ([*some(9), *some(1, size=2000)], {"max_message_bytes": 2000}, RecordTooLargeError),
    "a record larger than a segment": (some(1, size=2000), {"segment_bytes": 1500}, RecordBatchTooLargeError),
    "a row outside its buffer": (columns(columns_of(some(3)).arena, BAD_ROWS), {}, AppendError),
}


@pytest.mark.parametrize(
    ("name", "codec"),
    # compressed, the records that are too large are small enough
    [
        (name, codec)
        for name in REFUSED
        for codec in (Compression.NONE, Compression.GZIP)
        if not codec or "large" not in name
    ],
)
def test_a_refused_append_writes_nothing_at_all(tmp_path: Path, name: str, codec: Compression) -> None:
    records, config, error = REFUSED[name]
    with opened_log(tmp_path / "t-0", **config) as log:
        with pytest.raises(error):
            log.append(records, codec=codec)
        assert log.log_end_offset == 0
        assert (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size == 0
        assert log.append(some(1)).first_offset == 0


def test_what_compression_cannot_make_small_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    import random

    noise = random.Random(1).randbytes(3000)
    with opened_log(tmp_path / "t-0", max_message_bytes=2000) as log:
        with pytest.raises(RecordTooLargeError):
            log.append([*some(500), Record(noise, timestamp=1)], codec=Compression.GZIP)
        assert log.log_end_offset == 0
        assert log.append(some(1, size=5000), codec=Compression.GZIP).count == 1


@pytest.mark.parametrize("codec", list(Compression))
def test_threads_give_the_same_log_as_none(tmp_path: Path, codec: Compression) -> None:
    with ThreadPoolExecutor(2) as pool:
        for name, workers in (("a-0", None), ("b-0", pool)):
            with opened_log(tmp_path / name) as log:
                log.append(some(2000), codec=codec, pool=workers)
    files = [(tmp_path / name / "00000000000000000000.log").read_bytes() for name in ("a-0", "b-0")]
    assert files[0] == files[1]


# --- producers ------------------------------------------------------------------------------------------


def test_a_batch_sent_again_is_answered_with_its_first_offsets(log: Log) -> None:
    first = ProducerIdentity(5, 0, base_sequence=0)
    log.append(some(3), producer=first)
    log.append(some(2), producer=ProducerIdentity(5))
    again = log.append(some(3), producer=first)
    assert (again.duplicate, again.first_offset, again.last_offset) == (True, 0, 2)
    assert log.log_end_offset == 5


def test_sequences_must_follow(log: Log) -> None:
    log.append(some(3), producer=ProducerIdentity(5, 0, base_sequence=2**31 - 2))
    log.append(some(1), producer=ProducerIdentity(5, 0, base_sequence=1))
    for sequence in (1, 3, 0):
        with pytest.raises(OutOfOrderSequenceError):
            log.append(some(2), producer=ProducerIdentity(5, 0, base_sequence=sequence))
    with pytest.raises(OutOfOrderSequenceError):
        log.append(some(1), producer=ProducerIdentity(5, 1, base_sequence=2))
    log.append(some(1), producer=ProducerIdentity(5, 1, base_sequence=0))
    with pytest.raises(ProducerFencedError):
        log.append(some(1), producer=ProducerIdentity(5, 0, base_sequence=2))
    assert log.log_end_offset == 5


def test_a_transaction_holds_back_committed_readers_until_its_marker(log: Log) -> None:
    producer, other = ProducerIdentity(1, 0, transactional=True), ProducerIdentity(2, 0, transactional=True)
    log.append(some(2), producer=producer)
    log.append(some(3), producer=other)
    assert log.last_stable_offset == 0
    with pytest.raises(InvalidTransactionStateError):
        log.append(some(1), producer=ProducerIdentity(1, 0))
    log.append_end_txn_marker(producer, commit=False)
    assert log.last_stable_offset == 2
    log.append_end_txn_marker(other, commit=True, coordinator_epoch=4)
    with pytest.raises(ProducerFencedError):
        log.append_end_txn_marker(other, commit=True, coordinator_epoch=3)
    committed = [record.offset for record in log.records(isolation=Isolation.READ_COMMITTED)]
    assert (log.last_stable_offset, committed) == (7, [2, 3, 4])
    assert [record.offset for record in log.records()] == [0, 1, 2, 3, 4]


def test_a_followers_contradiction_is_not_written(tmp_path: Path) -> None:
    one = [NaiveRecord(0, 0, None, b"v")]
    with opened_log(tmp_path / "t-0") as log:
        log.append_as_follower(batch_v2(0, one, attributes=0x10, producer=(3, 0, 0)), 0)
        with pytest.raises(InvalidTransactionStateError):
            log.append_as_follower(batch_v2(1, one, producer=(3, 0, 1)), 0)
        size = log.segments.active.size
        assert (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size == size
        assert log.append(some(1)).first_offset == 1
        other = [NaiveRecord(0, 0, struct.pack(">hh", 0, 2), b"")]
        marker = batch_v2(2, other, attributes=0x30, producer=(3, 0, -1), leader_epoch=4)
        with pytest.raises(InvalidRecordError, match="not a transaction marker"):
            log.append_as_follower(marker, 4)
        assert (log.log_end_offset, log.leader_epochs.latest_epoch) == (2, 0)
        assert log.producers.open_transactions == {0: 3}


def test_attributes_that_mean_nothing_stay_with_their_checksum(log: Log) -> None:
    log.append_batches(batch_v2(0, [NaiveRecord(0, 0, None, b"v")], attributes=0x0300, base_timestamp=START_MS))
    (chunk,) = log.segments.active.scan()
    assert checksums_match(chunk.data, chunk.batches, chunk.position).all()
    assert chunk.data[21] == 3


# --- follower -------------------------------------------------------------------------------------------


def test_no_abort_is_hidden_from_readers_of_what_a_follower_appended_at_once(log: Log) -> None:
    ended = [
        transactional(offset, producer, sequence) + marker(offset + 1, producer, commit=False)
        for offset, producer, sequence in ((0, 7, 0), (2, 7, 1), (4, 8, 0))
    ]
    log.append_as_follower(b"".join(ended), 0)
    entries = log.segments.active.transaction_index.entries
    assert [(entry.first_offset, entry.last_stable_offset) for entry in entries] == [(0, 2), (2, 4), (4, 6)]


def test_a_follower_keeps_offsets_epochs_and_the_high_watermark(log: Log) -> None:
    one = [NaiveRecord(0, 0, None, b"v")]
    log.append_as_follower(batch_v2(10, one, leader_epoch=2) + batch_v2(20, one, leader_epoch=3), 3)
    assert (log.log_end_offset, log.high_watermark) == (21, 0)
    assert [(e.epoch, e.start_offset) for e in log.leader_epochs.entries] == [(2, 10), (3, 20)]
    assert list(log.records()) == []
    assert log.update_high_watermark(99) == 21
    assert [record.offset for record in log.records()] == [10, 20]
    with pytest.raises(UnexpectedAppendOffsetError):
        log.append_as_follower(batch_v2(20, one), 3)


# --- leader epochs --------------------------------------------------------------------------------------


def epochs_of(log: Log) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries]


def batch_epochs(log: Log) -> list[int]:
    return [int(epoch) for segment in log.segments for rows in segment.rows() for epoch in rows["leader_epoch"]]


def test_an_append_without_an_epoch_continues_the_last_one(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append(some(1))
        log.append(some(1), leader_epoch=3)
        log.append(some(1))
        log.append_batches(batch_v2(0, [NaiveRecord(0, 0, None, b"v")], base_timestamp=START_MS))
        log.append_end_txn_marker(ProducerIdentity(1), commit=True)
    with opened_log(tmp_path / "t-0") as log:
        log.append(some(1))
        assert batch_epochs(log) == [0, 3, 3, 3, 3, 3]
        assert epochs_of(log) == [(0, 0), (3, 1)]


def test_without_a_checkpoint_the_last_batch_tells_the_epoch_that_goes_on(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append(some(3), leader_epoch=5, batch_records=1)
        log.roll()
    (tmp_path / "t-0" / "leader-epoch-checkpoint").unlink()
    with opened_log(tmp_path / "t-0") as log:
        log.append(some(1))
        assert (batch_epochs(log), epochs_of(log)) == ([5, 5, 5, 5], [(5, 3)])


def test_an_epoch_whose_leader_wrote_nothing_goes_on_all_the_same(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append(some(1), leader_epoch=2)
        log.leader_epochs.assign(6, 1)
    with opened_log(tmp_path / "t-0") as log:
        assert epochs_of(log) == [(2, 0)], "opening drops what begins at the log end"
        log.append(some(1))
        assert (batch_epochs(log), epochs_of(log)) == ([2, 6], [(2, 0), (6, 1)])


def test_an_epoch_that_is_given_counts_also_when_it_is_lower(log: Log) -> None:
    log.append(some(1), leader_epoch=1)
    log.append(some(1), leader_epoch=0)
    assert (batch_epochs(log), epochs_of(log)) == ([1, 0], [(0, 1)])


def test_truncating_at_the_log_end_drops_an_epoch_that_begins_there(log: Log) -> None:
    log.leader_epochs.assign(6, 0)
    log.truncate_to(0)
    assert epochs_of(log) == []
    log.append(some(2), leader_epoch=1)
    log.leader_epochs.assign(8, 2)
    log.truncate_to(5)
    assert epochs_of(log) == [(1, 0)]


def test_a_refused_batch_leaves_the_epochs_as_they_were(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0", segment_bytes=200) as log:
        log.append(some(1), leader_epoch=1)
        one = [NaiveRecord(0, 0, None, b"v" * 300)]
        with pytest.raises(RecordBatchTooLargeError):
            log.append_as_follower(batch_v2(1, one, leader_epoch=4), 4)
        assert epochs_of(log) == [(1, 0)]


# --- the ends of the offsets ----------------------------------------------------------------------------


def test_the_last_offset_that_there_is_can_be_written_and_none_after_it(tmp_path: Path) -> None:
    end = 2**63 - 1
    with opened_log(tmp_path / "t-0") as log:
        log.truncate_fully(end - 2)
        with pytest.raises(AppendError, match="3 records from offset 9223372036854775805 on need offsets above"):
            log.append(some(3))
        with pytest.raises(AppendError, match="offsets above"):
            log.append_batches(encode_all(columns_of(some(3)), 0, BatchOptions()))
        assert log.append(some(2)).last_offset == end - 1
        assert log.log_end_offset == end
        for more in (some(1), some(1000)):
            with pytest.raises(AppendError, match="offsets above"):
                log.append(more)
        assert [record.offset for record in log.records()] == [end - 2, end - 1]
    with opened_log(tmp_path / "t-0") as log:
        assert log.log_end_offset == end


def test_an_append_that_spans_more_than_a_segment_can_is_refused_before_anything_changes(log: Log) -> None:
    one = [NaiveRecord(0, 0, None, b"v")]
    log.append(some(1), producer=ProducerIdentity(5))
    before = [(s.base_offset, s.size) for s in log.segments], epochs_of(log), log.log_end_offset
    data = batch_v2(2**31 + 5, one, leader_epoch=2, producer=(5, 0, 1)) + batch_v2(2**32 + 9, one, leader_epoch=2)
    with pytest.raises(SegmentOffsetOverflowError):
        log.append_as_follower(data, 2)
    assert ([(s.base_offset, s.size) for s in log.segments], epochs_of(log), log.log_end_offset) == before
    assert log.producers.producers[5].last_sequence == 0
    assert log.append(some(1)).first_offset == 1


def test_rolling_moves_the_recovery_point_and_not_the_log_end(log: Log) -> None:
    one = [NaiveRecord(0, 0, None, b"v")]
    log.append_as_follower(batch_v2(2**31 + 5, one), 0)
    assert [s.base_offset for s in log.segments] == [0, 2**31 + 5]
    assert (log.recovery_point, log.log_end_offset) == (2**31 + 5, 2**31 + 6)


def test_a_segment_that_holds_messages_is_named_without_unpacking_them(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0", segment_bytes=200) as log:
        log.append(some(3))
        inner = [Record(b"v" * 40, timestamp=1000 + i) for i in range(5)]
        log.append_as_follower(encode_message_set(inner, 100, 1, Compression.GZIP), 0)
        assert [s.base_offset for s in log.segments] == [0, 3]


# --- rolling and flushing -------------------------------------------------------------------------------


def test_segments_roll_by_size_and_keep_every_record(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0", segment_bytes=1000) as log:
        log.append(some(200), batch_records=4)
        assert all(segment.size <= 1000 for segment in log.segments)
        assert len(log.segments) > 5
        assert [record.offset for record in log.records(max_bytes=100)] == list(range(200))
        bases = log.segments.base_offsets
        names = {path.name for path in (tmp_path / "t-0").glob("*.snapshot")}
        assert names == {f"{base:020d}.snapshot" for base in bases[1:]}


def test_segments_roll_by_the_age_of_their_records(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0", segment_ms=100) as log:
        log.append([Record(b"v", timestamp=START_MS + stamp) for stamp in (0, 60, 100, 101, 150, 202)], batch_records=1)
        assert log.segments.base_offsets == [0, 3, 5]


def test_segments_roll_when_an_index_is_full(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0", segment_index_bytes=36, index_interval_bytes=0) as log:
        log.append(some(10), batch_records=1)
        assert log.segments.base_offsets == [0, 3, 6, 9]
        assert [record.offset for record in log.records()] == list(range(10))


def test_an_index_without_room_for_an_entry_still_takes_batches(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0", segment_index_bytes=12, index_interval_bytes=0) as log:
        log.append(some(3), batch_records=1)
        assert [record.offset for record in log.records()] == [0, 1, 2]


def test_rolling_an_empty_segment_keeps_it(log: Log) -> None:
    assert log.roll().base_offset == 0
    log.append(some(2))
    assert log.roll().base_offset == 2
    assert log.roll().base_offset == 2
    assert log.recovery_point == 2


def test_flushes_come_after_messages_and_after_time(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    with opened_log(tmp_path / "t-0", clock=clock, flush_messages=10, flush_ms=1000) as log:
        assert not log.append(some(9)).flushed
        assert log.recovery_point == 0
        assert log.append(some(1)).flushed
        assert log.recovery_point == 10
        assert not log.append(some(1)).flushed
        clock.advance(1000)
        assert log.append(some(1)).flushed
        assert log.recovery_point == 12


def test_the_time_of_a_flush_counts_from_opening_and_only_flushes_that_write_begin_it_again(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    with opened_log(tmp_path / "t-0", clock=clock, flush_ms=1000) as log:
        clock.advance(600)
        log.flush()  # nothing is there to flush (Kafka: LocalLog.markFlushed)
        clock.advance(400)
        assert log.append(some(1)).flushed
        clock.advance(999)
        assert not log.append(some(1)).flushed
        clock.advance(1)
        assert log.append(some(1)).flushed


def test_a_closed_log_and_one_for_reading_take_nothing(tmp_path: Path) -> None:
    log = opened_log(tmp_path / "t-0")
    log.append(some(3))
    log.close()
    with pytest.raises(RefusedError, match="closed"):
        log.append(some(1))
    with opened_log(tmp_path / "t-0", writable=False) as reading, pytest.raises(RefusedError, match="reading"):
        reading.roll()
