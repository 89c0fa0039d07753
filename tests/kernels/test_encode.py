"""Encoding batches: compiled = interpreted = written by hand, limits hold, bad rows have a status."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog import layout
from seglog.format.builder import BatchOptions, columns, columns_of
from seglog.format.columns import Records
from seglog.kernels import encode as compiled
from seglog.model import NO_SEQUENCE, Header, Record
from tests.support.interpreted import interpreted
from tests.support.naive import NaiveRecord, batch_v2

nullable = st.none() | st.binary(max_size=70)
record_lists = st.lists(
    st.builds(
        Record,
        value=nullable,
        key=nullable,
        timestamp=st.integers(-1, 2**45),
        headers=st.lists(st.builds(Header, st.text(max_size=4), nullable), max_size=3).map(tuple),
        offset=st.none(),
        sequence=st.just(NO_SEQUENCE),
    ),
    min_size=1,
    max_size=8,
)


def encode(
    records: Records,
    *,
    most_records: int = 2**31 - 1,
    most_bytes: int = 16384,
    room: int = 65536,
    plain: bool = False,
) -> tuple[bytes, np.ndarray, int, int]:
    """(bytes, batch rows, records encoded, status) of one call of the kernel."""
    kernels: ModuleType = interpreted("encode") if plain else compiled
    options = BatchOptions(leader_epoch=3, producer_id=9, producer_epoch=1, base_sequence=2**31 - 2)
    out, table = np.zeros(room, dtype=np.uint8), np.zeros(16, dtype=layout.BATCH)
    arena = records.arena.copy()
    last, size, count, status = kernels.encode_batches(
        arena, records.rows, 0, options.template(100, 0), most_records, most_bytes, True, True, out, table
    )
    return out[:size].tobytes(), table[:count], last, status


@given(record_lists)
@settings(max_examples=100, deadline=None)
def test_batches_are_those_written_by_hand(records: list[Record]) -> None:
    first = records[0].timestamp or 0
    naive = [
        NaiveRecord(
            i,
            (record.timestamp or 0) - first,
            record.key,
            record.value,
            tuple((header.key.encode(), header.value) for header in record.headers),
        )
        for i, record in enumerate(records)
    ]
    expected = batch_v2(
        100,
        naive,
        base_timestamp=first,
        max_timestamp=max(record.timestamp or 0 for record in records),
        producer=(9, 1, 2**31 - 2),
        leader_epoch=3,
    )
    for plain in (False, True):
        data, table, last, status = encode(columns_of(records), plain=plain)
        assert (last, status, len(table)) == (len(records), compiled.ENCODE_COMPLETE, 1)
        assert data == expected


@given(record_lists, st.integers(1, 4), st.integers(61, 200), st.integers(0, 700))
@settings(max_examples=60, deadline=None)
def test_limits_split_and_both_builds_agree(records: list[Record], most: int, most_bytes: int, room: int) -> None:
    columns = columns_of(records)
    results = [encode(columns, most_records=most, most_bytes=most_bytes, room=room, plain=p) for p in (False, True)]
    assert results[0][0] == results[1][0]
    assert results[0][2:] == results[1][2:]
    table = results[0][1]
    assert (table["count"] <= most).all()
    assert ((table["size"] <= most_bytes) | (table["count"] == 1)).all()
    assert table["count"].sum() == results[0][2]
    assert (results[0][3] == compiled.ENCODE_COMPLETE) == (results[0][2] == len(records))


def test_a_split_continues_offsets_and_wraps_sequences() -> None:
    _, table, _, _ = encode(columns_of([Record(b"v", timestamp=5)] * 5), most_records=2)
    assert table["base_offset"].tolist() == [100, 102, 104]
    assert table["last_offset"].tolist() == [101, 103, 104]
    assert table["base_sequence"].tolist() == [2**31 - 2, 0, 2]


def test_rows_that_leave_the_arena_are_refused_in_both_builds() -> None:
    good = columns_of([Record(b"value", key=b"key", timestamp=1, headers=(Header("h", b"x"),))])
    for name, value in [
        ("key_position", -1),
        ("key_size", 100),
        ("key_size", -2),
        ("value_position", 2**31 - 1),
        ("value_size", 2**31 - 1),
        ("headers_position", -5),
        ("header_count", -1),
        ("header_count", 2**31 - 1),
        ("size", 2**31 - 1),
    ]:
        rows = good.rows.copy()
        rows[name] = value
        for plain in (False, True):
            _, table, last, status = encode(columns(good.arena, rows), plain=plain)
            assert (len(table), last, status) == (0, 0, compiled.SPAN_INVALID), name


def test_a_timestamp_below_minus_one_is_refused() -> None:
    rows = columns_of([Record(b"v", timestamp=4), Record(b"v", timestamp=-2)])
    assert encode(rows)[3] == compiled.TIMESTAMP_INVALID
