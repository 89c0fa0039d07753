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
from tests.support.interpreted import interpreted
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


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_decode(magic: int) -> None:
    data = message(5, magic, None, b"v", timestamp=3) + message(6, magic, b"", None, timestamp=4)
    got = decode(data)
    assert [(r.offset, r.key, r.value, r.timestamp) for r in got] == [
        (5, None, b"v", 3 if magic else -1),
        (6, b"", None, 4 if magic else -1),
    ]


@given(st.binary(max_size=80), st.integers(0, 400))
@settings(max_examples=300)
def test_damaged_batches_decode_alike_and_inside_their_bounds(noise: bytes, at: int) -> None:
    records = [NaiveRecord(i, i, b"k%d" % i, b"v" * i, ((b"n", None),)) for i in range(5)]
    data = bytearray(batch_v2(10, records) + message(20, 1, b"k", b"v" * 30, timestamp=1))
    data[at : at + len(noise)] = noise[: max(0, len(data) - at)]
    with np.errstate(over="ignore"):
        one, two = decode(bytes(data)), decode(bytes(data), plain=True)
    assert (one.rows == two.rows).all() and (one.status == two.status).all()
