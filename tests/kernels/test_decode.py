"""Decoding records: compiled = interpreted = what was encoded, and every rule broken has its status."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog import layout
from seglog.format.columns import Records
from seglog.kernels import batches as batch_kernels
from seglog.kernels import decode as decode_kernels
from seglog.kernels import records as status_of
from seglog.kernels import spans as span_kernels
from tests.support.interpreted import both, interpreted
from tests.support.naive import NaiveRecord, batch_v2, message, varint


def decode(data: bytes, *, plain: bool = False) -> Records:
    """All uncompressed batches in `data` through walk, spans and decode; `plain` runs them interpreted."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    walk, kernels = (interpreted("batches"), interpreted("decode")) if plain else (batch_kernels, decode_kernels)
    table = np.zeros(16, dtype=layout.BATCH)
    found, _, _ = walk.walk_batches(buffer, 0, len(buffer), 0, table)
    batches = table[:found]
    starts, ends = np.zeros(found, dtype=np.int64), np.zeros(found, dtype=np.int64)
    status = np.zeros(found, dtype=np.int8)
    kernels.payload_spans(buffer, batches, 0, starts, ends, status)
    rows = np.zeros(kernels.rows_needed(batches, starts, ends), dtype=layout.RECORD)
    filled = kernels.decode_batches(buffer, starts, ends, batches, rows, status)
    return Records(buffer, rows[:filled], batches, status)


def decode_inner(run: bytes, wrapper: bytes, *, plain: bool = False) -> tuple[np.ndarray, int]:
    """(rows, status) of a wrapper whose value expands to `run`."""
    walk, kernels = (interpreted("batches"), interpreted("decode")) if plain else (batch_kernels, decode_kernels)
    buffer, batches = np.frombuffer(wrapper, dtype=np.uint8), np.zeros(1, dtype=layout.BATCH)
    assert walk.walk_batches(buffer, 0, len(buffer), 0, batches)[0] == 1
    arena = np.frombuffer(run, dtype=np.uint8)
    starts, ends = np.zeros(1, dtype=np.int64), np.array([len(arena)], dtype=np.int64)
    status = np.zeros(1, dtype=np.int8)
    rows = np.zeros(kernels.rows_needed(batches, starts, ends), dtype=layout.RECORD)
    filled = kernels.decode_batches(arena, starts, ends, batches, rows, status)
    return rows[:filled], int(status[0])


nullable = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.binary(max_size=5), nullable), max_size=3).map(tuple)
record_lists = st.lists(
    st.builds(NaiveRecord, st.integers(0, 1000), st.integers(-(2**40), 2**40), nullable, nullable, headers), max_size=5
)


@given(record_lists, st.integers(0, 2**40), st.booleans())
@settings(max_examples=150)
def test_decoded_records_are_the_encoded_ones(records: list[NaiveRecord], base: int, append_time: bool) -> None:
    attributes = 8 if append_time else 0
    data = batch_v2(base, records, producer=(1, 0, 2**31 - 2), attributes=attributes, max_timestamp=9)
    for plain in (False, True):
        got = decode(data, plain=plain)
        assert got.status.tolist() == [0]
        assert len(got) == len(records)
        for i, record in enumerate(records):
            decoded = got.record(i)
            assert (decoded.key, decoded.value) == (record.key, record.value)
            assert decoded.offset == base + record.offset_delta
            assert decoded.timestamp == (9 if append_time else 1000 + record.timestamp_delta)
            assert decoded.sequence == (2**31 - 2 + record.offset_delta) % 2**31
            assert [(h.key.encode("utf-8", "surrogateescape"), h.value) for h in decoded.headers] == list(
                record.headers
            )


GOOD = NaiveRecord(0, 0, b"key", b"value", ((b"h", b"1"),)).encode()


@pytest.mark.parametrize(
    ("payload", "count", "expected"),
    [
        (GOOD, -1, status_of.COUNT_INVALID),
        (GOOD, 2**31 - 1, status_of.COUNT_INVALID),
        (GOOD, 2, status_of.LENGTH_INVALID),
        (GOOD + b"\x00", 1, status_of.TRAILING_BYTES),
        (varint(60) + GOOD[1:], 1, status_of.LENGTH_INVALID),
        (varint(len(GOOD) - 2) + GOOD[1:], 1, status_of.HEADERS_INVALID),
        (varint(len(GOOD)) + GOOD[1:] + b"\x00", 1, status_of.BODY_INVALID),
        (varint(7) + b"\x00\x00\x00\x01\x01" + varint(-3) + b"\x00", 1, status_of.HEADERS_INVALID),
        (varint(7) + b"\x00\x00\x00" + varint(40) + b"\x01\x00\x00", 1, status_of.FIELD_INVALID),
        (varint(8) + b"\x00" + b"\x80" * 7, 1, status_of.FIELD_INVALID),
    ],
)
def test_every_broken_rule_has_its_status(payload: bytes, count: int, expected: int) -> None:
    data = bytearray(batch_v2(0, [], payload=payload))
    data[57:61] = count.to_bytes(4, "big", signed=True)
    for plain in (False, True):
        assert decode(bytes(data), plain=plain).status.tolist() == [expected]


def test_a_broken_batch_keeps_its_good_records_and_the_next_batch() -> None:
    broken = bytearray(batch_v2(0, [], payload=GOOD + b"\x0a\x00"))
    broken[57:61] = (2).to_bytes(4, "big")
    got = decode(bytes(broken) + batch_v2(5, [NaiveRecord(0, 0, None, b"x")]))
    assert [r.value for r in got] == [b"value", b"x"]
    assert got.status.tolist() == [status_of.LENGTH_INVALID, 0]


SIZED = st.sampled_from((None, 0, 1, 62, 63, 64, 65, 8190, 8191, 8192, 8193)).map(
    lambda n: None if n is None else b"z" * n
)
EDGE = st.sampled_from((0, 63, 64, 8191, 8192, 2**20)) | st.integers(0, 2**31 - 1)


@given(
    st.builds(NaiveRecord, EDGE, EDGE | EDGE.map(lambda n: -n), SIZED, SIZED, headers),
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(0, 30) | st.integers(0, 17000), st.integers(0, 255)), max_size=2),
    st.integers(0, 3),
)
@settings(max_examples=400)
def test_a_record_of_short_numbers_is_read_as_number_after_number_tells(
    record: NaiveRecord, room: int, broken: list[tuple[int, int]], cut: int
) -> None:
    """Whole and broken at any place, with and without bytes after it; both ways stand in `read_record`."""
    data = bytearray(record.encode() + b"\x07" * room)
    for at, byte in broken:
        data[at % len(data)] = byte
    buffer = np.frombuffer(bytes(data[: len(data) - cut]), dtype=np.uint8)
    plain, shorts = interpreted("spans"), interpreted("records")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "read_short_record", lambda *_: (-1, *[0] * 9))
        expected = tuple(map(int, plain.read_record(buffer, 0, len(buffer))))
    for read in both(span_kernels, "read_record"):
        assert tuple(map(int, read(buffer, 0, len(buffer)))) == expected
    stop = int(shorts.read_short_record(buffer, 0, len(buffer))[0])
    assert stop in (-1, expected[1])
    sizes = [len(part or b"") for part in (record.key, record.value)]
    if not broken and not cut and len(buffer) >= 16 and max(*sizes, len(record.encode()) - 2) < 8192:
        small = record.offset_delta < 8192 and -8192 <= record.timestamp_delta < 8192
        assert (stop > 0) == small


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_decode(magic: int) -> None:
    data = message(5, magic, None, b"v", timestamp=3) + message(6, magic, b"", None, timestamp=4)
    got = decode(data)
    assert [(r.offset, r.key, r.value, r.timestamp) for r in got] == [
        (5, None, b"v", 3 if magic else -1),
        (6, b"", None, 4 if magic else -1),
    ]


# What Kafka 4.3 lists of such logs: only magic 0 has no timestamp, whatever a message inside a wrapper claims to be.
@pytest.mark.parametrize("outer", [0, 1])
@pytest.mark.parametrize("inner", [-128, -1, 0, 1, 2, 127])
def test_a_message_of_any_magic_but_0_has_the_fields_of_magic_1(inner: int, outer: int) -> None:
    first = 0 if outer else 10
    run = b"".join(message(first + i, inner, b"k", b"v%d" % i, timestamp=100 + i) for i in range(2))
    for plain in (False, True):
        rows, status = decode_inner(run, message(11, outer, None, b"", timestamp=555, attributes=1), plain=plain)
        assert status == status_of.RECORDS_VALID
        assert rows["offset"].tolist() == [10, 11]
        assert rows["timestamp"].tolist() == ([-1, -1] if inner == 0 else [100, 101])
        assert rows["value_size"].tolist() == [2, 2]


@pytest.mark.parametrize(("inner", "timestamps"), [(0, [-1, -1]), (1, [555, 555]), (-1, [100, 101]), (2, [100, 101])])
def test_only_messages_of_magic_1_take_over_their_wrappers_append_time(inner: int, timestamps: list[int]) -> None:
    run = b"".join(message(i, inner, b"k", b"v", timestamp=100 + i) for i in range(2))
    for plain in (False, True):
        rows, _ = decode_inner(run, message(11, 1, None, b"", timestamp=555, attributes=9), plain=plain)
        assert rows["timestamp"].tolist() == timestamps


@pytest.mark.parametrize("outer", [-128, -1])
def test_a_wrapper_of_negative_magic_is_none(outer: int) -> None:
    run = message(0, 1, b"k", b"v", timestamp=100)
    for plain in (False, True):
        _, status = decode_inner(run, message(11, outer, None, b"", attributes=1), plain=plain)
        assert status == status_of.ENTRY_INVALID


@pytest.mark.parametrize("magic", [-128, -1])
def test_a_plain_message_of_negative_magic_has_a_timestamp(magic: int) -> None:
    for plain in (False, True):
        got = decode(message(11, magic, b"k", b"v", timestamp=77), plain=plain)
        assert [(r.key, r.value, r.timestamp) for r in got] == [(b"k", b"v", 77)]
        assert got.batches["max_timestamp"].tolist() == [77]


@given(st.binary(max_size=80), st.integers(0, 400))
@settings(max_examples=300)
def test_damaged_batches_decode_alike_and_inside_their_bounds(noise: bytes, at: int) -> None:
    records = [NaiveRecord(i, i, b"k%d" % i, b"v" * i, ((b"n", None),)) for i in range(5)]
    data = bytearray(batch_v2(10, records) + message(20, 1, b"k", b"v" * 30, timestamp=1))
    data[at : at + len(noise)] = noise[: max(0, len(data) - at)]
    with np.errstate(over="ignore"):
        one, two = decode(bytes(data)), decode(bytes(data), plain=True)
    assert (one.rows == two.rows).all() and (one.status == two.status).all()
