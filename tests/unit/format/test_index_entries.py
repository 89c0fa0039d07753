"""Index entries against Kafka's bytes, and files that a broker left preallocated."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.format.index_entries import (
    decode_offset_index,
    decode_time_index,
    decode_transaction_index,
    used_entries,
)

OFFSET_ENTRY = bytes.fromhex("0000000100000047")
TIME_ENTRY = bytes.fromhex("00000000000003ed00000001")
TRANSACTION_ENTRY = bytes.fromhex("0000000000000000000700000000000000640000000000000069000000000000006a")
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_offset_entry_is_kafkas() -> None:
    rows = decode_offset_index(OFFSET_ENTRY, 100)
    assert rows.tolist() == [(101, 71)]


def test_time_entry_is_kafkas() -> None:
    rows = decode_time_index(TIME_ENTRY, 100)
    assert rows.tolist() == [(1005, 101)]


def test_transaction_entry_is_kafkas() -> None:
    rows = decode_transaction_index(TRANSACTION_ENTRY)
    assert rows.tolist() == [(7, 100, 105, 106, 0)]


def test_columns_are_native() -> None:
    for rows in (decode_offset_index(OFFSET_ENTRY, 0), decode_time_index(TIME_ENTRY, 0)):
        for name in rows.dtype.names:
            assert rows[name].dtype.isnative


def test_offsets_of_late_segments_do_not_overflow() -> None:
    base = 2**62
    data = struct.pack(">ii", 2**31 - 1, 2**31 - 1)
    assert decode_offset_index(data, base).tolist() == [(base + 2**31 - 1, 2**31 - 1)]


@given(st.binary(max_size=200), st.integers(0, 2**63 - 1))
def test_any_bytes_decode_to_their_whole_entries(data: bytes, base: int) -> None:
    assert len(decode_offset_index(data, base)) == len(data) // 8
    assert len(decode_time_index(data, base)) == len(data) // 12
    assert len(decode_transaction_index(data)) == len(data) // 34


@pytest.mark.parametrize("padding", [0, 1, 1000])
def test_the_zeroed_tail_of_a_preallocated_index_is_not_used(padding: int) -> None:
    offsets = decode_offset_index(OFFSET_ENTRY * 3 + bytes(8 * padding), 100)
    times = decode_time_index(TIME_ENTRY * 3 + bytes(12 * padding), 100)
    assert used_entries(offsets, 100) == used_entries(times, 100) == 3


def test_zero_entries_between_written_ones_count() -> None:
    rows = decode_offset_index(OFFSET_ENTRY + bytes(8) + OFFSET_ENTRY + bytes(16), 100)
    assert used_entries(rows, 100) == 3


def test_an_index_of_zeros_or_without_entries_has_none_used() -> None:
    for data in (b"", bytes(10 * 24)):
        assert used_entries(decode_offset_index(data, 5), 5) == 0
        assert used_entries(decode_time_index(data, 5), 5) == 0
