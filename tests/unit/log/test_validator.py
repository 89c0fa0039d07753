"""What a leader and a follower refuse, and what they change in the batches they take."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from seglog.configuration.keys import COMPACT, LogConfig
from seglog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetsOutOfOrderError,
    RecordTooLargeError,
    SeglogError,
    UnexpectedAppendOffsetError,
)
from seglog.format.builder import BatchOptions, EncodedBatches, columns_of, encode_all
from seglog.format.decoder import checksums_match, decode_records
from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.log.validator import (
    AppendOrigin,
    analyze,
    validate_for_follower,
    validate_for_leader,
)
from seglog.model import Compression, Record, TimestampType
from tests.support.log_files import encode_message_set
from tests.support.naive import NaiveRecord, batch_v2

RECORDS = [Record(b"v%d" % i, key=b"k%d" % i, timestamp=1000 + i) for i in range(4)]


def rules_of(max_message_bytes: int = 10_000, **others: object) -> LogConfig:
    return LogConfig(**{"max_message_bytes": max_message_bytes, "message_timestamp_after_max_ms": 2**63 - 1} | others)  # type: ignore[arg-type]


RULES = rules_of()


def client_batch(codec: Compression = Compression.NONE, records: list[Record] = RECORDS) -> bytes:
    return encode_all(columns_of(records), 0, BatchOptions(codec=codec))


def as_leader(
    data: bytes, rules: LogConfig = RULES, origin: AppendOrigin = AppendOrigin.CLIENT, now: int = 2000
) -> EncodedBatches:
    return validate_for_leader(
        analyze(data, rules.max_message_bytes),
        rules,
        origin=origin,
        base_offset=500,
        leader_epoch=6,
        append_time_ms=now,
    )


def records_of(batches: EncodedBatches) -> list[Record]:
    assert checksums_match(batches.data, batches.batches, 0).all()
    return [record for part in decode_records(batches.data, batches.batches, 0) for record in part]


def with_header(data: bytes, **changes: int) -> bytes:
    """A valid batch whose header says something else."""
    from dataclasses import replace

    return encode_batch(replace(RecordBatchHeader.read(data), **changes), data[61:])  # type: ignore[arg-type]


# --- leader ---------------------------------------------------------------------------------------------


def test_in_place_changes_only_the_header() -> None:
    data = client_batch(Compression.GZIP)
    valid = as_leader(data)
    header = RecordBatchHeader.read(valid.data)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (500, 503, 6)
    assert valid.data[17:].tobytes() == data[17:]
    assert data == client_batch(Compression.GZIP)  # what the caller gave is untouched


def test_a_wrong_max_timestamp_is_corrected() -> None:
    valid = as_leader(with_header(client_batch(), max_timestamp=5))
    assert RecordBatchHeader.read(valid.data).max_timestamp == 1003
    records_of(valid)


def test_append_time_replaces_every_timestamp_but_not_the_payload() -> None:
    rules = rules_of(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    data = client_batch()
    valid = as_leader(data, rules)
    assert {record.timestamp for record in records_of(valid)} == {2000}
    assert valid.data[61:].tobytes() == data[61:]


@pytest.mark.parametrize("source", list(Compression))
@pytest.mark.parametrize("target", list(Compression))
def test_the_topics_codec_wins(source: Compression, target: Compression) -> None:
    valid = as_leader(client_batch(source), rules_of(compression_type=target))
    assert RecordBatchHeader.read(valid.data).codec == target
    found = records_of(valid)
    assert [(r.offset, r.key, r.value, r.timestamp) for r in found] == [
        (500 + i, r.key, r.value, r.timestamp) for i, r in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.LZ4])
def test_old_messages_become_one_v2_batch(magic: int, codec: Compression) -> None:
    valid = as_leader(encode_message_set(RECORDS, 0, magic, codec))
    assert len(valid.batches) == 1
    header = RecordBatchHeader.read(valid.data)
    assert (header.magic, header.count, header.codec) == (2, 4, codec)
    expected = [-1] * 4 if magic == 0 else [1000, 1001, 1002, 1003]
    assert [(r.offset, r.value, r.timestamp) for r in records_of(valid)] == [
        (500 + i, b"v%d" % i, stamp) for i, stamp in enumerate(expected)
    ]


def test_a_compressed_batch_with_holes_is_numbered_anew() -> None:
    holes = [Record(b"a", timestamp=1, offset=0), Record(b"b", timestamp=1, offset=5)]
    options = BatchOptions(codec=Compression.GZIP)
    data = encode_all(columns_of(holes), 0, options, keep_offsets=True)
    valid = as_leader(data, origin=AppendOrigin.COORDINATOR)
    assert [record.offset for record in records_of(valid)] == [500, 501]


GOOD = client_batch()
NO_KEY = client_batch(records=[Record(b"v", timestamp=1)])
CONTROL = with_header(client_batch(records=RECORDS[:1]), attributes=0x30, producer_id=1, producer_epoch=0)
REFUSED: dict[str, tuple[bytes, LogConfig, type[SeglogError]]] = {
    "a client's base offset that is not 0": (with_header(GOOD, base_offset=9), RULES, InvalidRecordError),
    "two v2 batches": (GOOD + GOOD, RULES, InvalidRecordError),
    "different magic": (
        encode_message_set(RECORDS, 0, 0) + encode_message_set(RECORDS, 0, 1),
        RULES,
        InvalidRecordError,
    ),
    "a count that is not the offsets'": (with_header(GOOD, last_offset_delta=9), RULES, InvalidRecordError),
    "no records": (with_header(GOOD[:61], count=0, last_offset_delta=-1), RULES, InvalidRecordError),
    "a control batch of a client": (CONTROL, RULES, InvalidRecordError),
    "a producer without sequence": (
        with_header(GOOD, producer_id=4, producer_epoch=0),
        RULES,
        InvalidRecordError,
    ),
    "a null key in a compacted topic": (NO_KEY, rules_of(cleanup_policy={COMPACT}), InvalidRecordError),
    "append time from a client": (
        with_header(GOOD, attributes=8),
        rules_of(message_timestamp_type=TimestampType.LOG_APPEND_TIME),
        InvalidTimestampError,
    ),
    "too long ago": (GOOD, rules_of(message_timestamp_before_max_ms=999), InvalidTimestampError),
    "a negative timestamp": (
        batch_v2(0, [NaiveRecord(0, -2000, None, b"v")], max_timestamp=1000),
        RULES,
        InvalidTimestampError,
    ),
    "a batch that is too large": (GOOD, rules_of(len(GOOD) - 1), RecordTooLargeError),
    "a wrong checksum": (GOOD[:-1] + b"\xff", RULES, CorruptRecordError),
    "a batch smaller than its header": (bytes(8) + b"\0\0\0\x0e" + bytes(60), RULES, CorruptRecordError),
    "an unknown magic": (GOOD[:16] + b"\x03" + GOOD[17:], RULES, CorruptRecordError),
    "records that do not fill the batch": (with_header(GOOD + b"x"), RULES, InvalidRecordError),
    "a codec that is none": (with_header(GOOD, attributes=5), RULES, InvalidRecordError),
    "too far ahead": (
        client_batch(records=[Record(b"v", timestamp=5000)]),
        rules_of(message_timestamp_after_max_ms=2999),
        InvalidTimestampError,
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_leader_refuses(name: str) -> None:
    data, rules, error = REFUSED[name]
    with pytest.raises(error):
        as_leader(data, rules)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_clients_old_messages_may_have_any_offsets(magic: int) -> None:
    found = records_of(as_leader(encode_message_set(RECORDS, 7, magic)))
    assert [(record.offset, record.value) for record in found] == [(500 + i, b"v%d" % i) for i in range(4)]


def test_a_batch_as_large_as_the_topic_allows_is_taken() -> None:
    assert len(as_leader(GOOD, rules_of(len(GOOD))).batches) == 1
    smaller = rules_of(len(GOOD) - 1, compression_type="uncompressed")
    with pytest.raises(RecordTooLargeError, match="rebuilt batch"):
        as_leader(client_batch(Compression.ZSTD, [Record(b"v" * 500, timestamp=1)]), smaller)


def test_a_producer_counts_from_0_on() -> None:
    taken = RecordBatchHeader.read(as_leader(with_header(GOOD, producer_id=0, producer_epoch=0, base_sequence=0)).data)
    assert (taken.producer_id, taken.producer_epoch, taken.base_sequence) == (0, 0, 0)
    with pytest.raises(InvalidRecordError, match="producer 0 without a sequence"):
        as_leader(with_header(GOOD, producer_id=0, producer_epoch=0))


def test_an_empty_key_is_a_key() -> None:
    rules = rules_of(cleanup_policy={COMPACT})
    records = [Record(b"v", key=b"", timestamp=1), Record(b"v", key=b"k", timestamp=1), Record(b"v", timestamp=1)]
    assert len(records_of(as_leader(client_batch(records=records[:2]), rules))) == 2
    with pytest.raises(InvalidRecordError, match="record 2 has no key"):
        as_leader(client_batch(records=records), rules)


def test_a_topic_of_create_time_takes_append_time_where_it_says_one_and_stores_it_as_create_time() -> None:
    """As Kafka, which looks at a batch's timestamp type only where the timestamps are not compared with now."""
    taken = as_leader(with_header(GOOD, attributes=8))
    assert RecordBatchHeader.read(taken.data).timestamp_type == TimestampType.CREATE_TIME
    timeless = client_batch(records=[Record(b"v", timestamp=-1)])
    assert len(as_leader(timeless).batches) == 1
    with pytest.raises(InvalidTimestampError):
        as_leader(with_header(timeless, attributes=8))


def test_timestamps_at_the_edges_are_taken() -> None:
    records = [Record(b"v", timestamp=1000), Record(b"v", timestamp=3000), Record(b"v", timestamp=-1)]
    rules = rules_of(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    assert len(records_of(as_leader(client_batch(records=records), rules))) == 3
    with pytest.raises(InvalidTimestampError, match="timestamp 1000 is more than 1000 ms before now"):
        as_leader(client_batch(records=records), rules, now=2001)
    with pytest.raises(InvalidTimestampError, match="timestamp 3000 is more than 1000 ms after now"):
        as_leader(client_batch(records=records), rules, now=1999)


@pytest.mark.parametrize("before", [2000, 2001])
def test_the_oldest_timestamp_is_0(before: int) -> None:
    rules = rules_of(message_timestamp_before_max_ms=before)
    assert len(records_of(as_leader(client_batch(records=[Record(b"v", timestamp=0)]), rules))) == 1


def test_records_out_of_order_in_their_batch_are_numbered_anew() -> None:
    disordered = [NaiveRecord(0, 0, b"a", b"0"), NaiveRecord(2, 0, b"b", b"1"), NaiveRecord(1, 0, b"c", b"2")]
    found = records_of(as_leader(batch_v2(0, disordered, last_offset_delta=2)))
    assert [(record.offset, record.value) for record in found] == [(500, b"0"), (501, b"1"), (502, b"2")]


@pytest.mark.parametrize("attributes", [0, 0x10])
def test_a_rebuilt_batch_keeps_its_producer_and_whether_it_is_transactional(attributes: int) -> None:
    batch = with_header(GOOD, producer_id=0, producer_epoch=0, base_sequence=0, attributes=attributes)
    rules = rules_of(compression_type="gzip")
    header = RecordBatchHeader.read(as_leader(batch, rules).data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (0, 0, 0)
    assert header.is_transactional == bool(attributes)


def test_a_control_batch_is_not_rebuilt_as_one_of_records() -> None:
    batch = with_header(client_batch(Compression.GZIP), attributes=Compression.GZIP | 0x20)
    assert len(as_leader(batch, origin=AppendOrigin.COORDINATOR).batches) == 1
    with pytest.raises(InvalidRecordError, match="a control batch cannot be rebuilt"):
        as_leader(batch, rules_of(compression_type="uncompressed"), AppendOrigin.COORDINATOR)


@pytest.mark.parametrize(("producer_id", "epoch", "sequence"), [(0, -1, 0), (0, 0, -1), (-(2**63), -1, 0)])
def test_a_producer_without_epoch_or_sequence_is_not_rebuilt(producer_id: int, epoch: int, sequence: int) -> None:
    batch = with_header(GOOD, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    assert len(as_leader(batch, origin=AppendOrigin.COORDINATOR).batches) == 1
    with pytest.raises(InvalidRecordError, match="cannot be rebuilt"):
        as_leader(batch, rules_of(compression_type="gzip"), AppendOrigin.COORDINATOR)


def test_an_inner_message_with_a_wrong_checksum_is_refused() -> None:
    inner = bytearray(encode_message_set(RECORDS, 0, 1))
    inner[-1] ^= 1
    from seglog.format.compression import compress
    from seglog.format.message_set import encode_message

    wrapper = Record(compress(Compression.GZIP, bytes(inner)), timestamp=1003)
    with pytest.raises(CorruptRecordError, match="inside a wrapper"):
        as_leader(encode_message(wrapper, 3, 1, codec=Compression.GZIP))


def test_a_coordinator_may_write_control_batches() -> None:
    valid = as_leader(CONTROL, rules_of(compression_type="zstd"), AppendOrigin.COORDINATOR)
    assert RecordBatchHeader.read(valid.data).codec == 0


def test_a_trailing_partial_batch_is_trimmed() -> None:
    assert len(as_leader(GOOD + GOOD[:40]).batches) == 1
    assert len(analyze(GOOD[:40], None).batches) == 0


# --- follower -------------------------------------------------------------------------------------------


def replica_batch(base: int, epoch: int) -> bytes:
    return batch_v2(base, [NaiveRecord(0, 0, None, b"v")], leader_epoch=epoch)


def as_follower(data: bytes, log_end_offset: int, leader_epoch: int) -> EncodedBatches:
    analyzed = analyze(data, None, leader_epoch)
    if len(analyzed.batches):
        validate_for_follower(analyzed, log_end_offset)
    return analyzed


def test_a_follower_keeps_gaps_and_drops_later_epochs() -> None:
    data = replica_batch(10, 1) + replica_batch(20, 2) + replica_batch(30, 3) + replica_batch(40, 2)
    valid = as_follower(data, 10, 2)
    assert valid.batches["base_offset"].tolist() == [10, 20]
    assert len(valid.data) == valid.batches["size"].sum()
    assert len(as_follower(replica_batch(1, 9), 0, 2).batches) == 0


def test_what_a_later_epochs_batch_holds_does_not_matter_but_its_framing_does() -> None:
    later = bytearray(replica_batch(20, 3))
    later[-1] ^= 1
    assert as_follower(replica_batch(10, 2) + bytes(later), 0, 2).batches["base_offset"].tolist() == [10]
    later[16] = 77
    with pytest.raises(CorruptRecordError, match="magic 77"):
        as_follower(replica_batch(10, 2) + bytes(later), 0, 2)


def test_a_follower_refuses_disorder_and_overlap() -> None:
    assert len(as_follower(replica_batch(0, 0), 0, 0).batches) == 1
    with pytest.raises(OffsetsOutOfOrderError, match="offsets 15 to 15 do not follow"):
        as_follower(replica_batch(10, 0) + replica_batch(20, 0) + replica_batch(15, 0), 0, 0)
    with pytest.raises(OffsetsOutOfOrderError):
        as_follower(replica_batch(10, 0) + replica_batch(10, 0), 0, 0)
    with pytest.raises(UnexpectedAppendOffsetError):
        as_follower(replica_batch(10, 0), 11, 0)
    with pytest.raises(InvalidRecordError, match="ends before it begins"):
        as_follower(batch_v2(10, [NaiveRecord(0, 0, None, b"v")], last_offset_delta=-1), 0, 0)


def test_a_followers_wrapper_starts_at_its_first_inner_offset() -> None:
    data = encode_message_set(RECORDS, 7, 1, Compression.GZIP)
    assert len(as_follower(data, 7, 0).batches) == 1
    with pytest.raises(UnexpectedAppendOffsetError):
        as_follower(data, 8, 0)
    assert np.array_equal(analyze(data, None).data, np.frombuffer(data, dtype=np.uint8))


def test_a_codec_that_nobody_knows_is_refused() -> None:
    batch = batch_v2(10, [NaiveRecord(0, 0, None, b"v")], attributes=6)
    with pytest.raises(InvalidRecordError, match="unknown codec 6"):
        as_follower(batch, 0, 0)


# --- bytes that are not a whole batch ----------------------------------------------------------------------


@pytest.mark.parametrize("magic", [3, 77, -1, -128])
def test_a_partial_batch_of_an_unknown_magic_is_no_beginning_of_one(magic: int) -> None:
    partial = struct.pack(">qiib", 0, 1000, 0, magic) + b"x" * 60
    for data in (partial, GOOD + partial, partial[:17]):
        with pytest.raises(CorruptRecordError, match=f"unknown magic {magic}"):
            analyze(data, None)
    assert len(analyze(partial[:16], None).batches) == 0, "the magic is not there yet"


@pytest.mark.parametrize("size", [13, 0, -1, -(2**31)])
def test_a_partial_batch_whose_size_cannot_be_is_no_beginning_of_one(size: int) -> None:
    for rest in (b"", b"\0" * 5, b"\0" * 60):
        with pytest.raises(CorruptRecordError, match="no batch can"):
            analyze(GOOD + struct.pack(">qi", 0, size) + rest, None)
    assert len(analyze(GOOD + struct.pack(">qi", 0, size)[:11], None).batches) == 1


def test_the_smallest_size_that_there_is_may_begin_a_batch() -> None:
    assert len(analyze(GOOD + struct.pack(">qi", 0, 14), None).batches) == 1


@pytest.mark.parametrize("size", [2**31 - 1, 2**31 - 12])
def test_a_partial_batch_larger_than_any_can_be_is_no_beginning_of_one(size: int) -> None:
    partial = struct.pack(">qiib", 0, size, 0, 2) + b"x" * 60
    with pytest.raises(CorruptRecordError, match="no batch can"):
        analyze(partial, None)
    assert len(analyze(struct.pack(">qiib", 0, 2**31 - 13, 0, 2) + b"x" * 60, None).batches) == 0
