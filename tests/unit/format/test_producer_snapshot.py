"""Producer snapshots against Kafka's bytes, both ways, and damaged ones."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import CorruptSnapshotError
from seglog.format.checksum import crc32c
from seglog.format.producer_snapshot import ProducerEntry, decode_snapshot, encode_snapshot

KAFKA_SNAPSHOT = bytes.fromhex(
    "0001e03b11a500000001000000000000000700030000000600000000000000650000000100000000000003edffffffff0000000000000064"
)
KAFKA_ENTRY = ProducerEntry(7, 3, 6, 101, 1, 1005, -1, 100)
INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
ENTRIES = st.lists(st.builds(ProducerEntry, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64))


def with_checksum(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


def test_kafkas_snapshot_is_read_and_written() -> None:
    assert decode_snapshot(KAFKA_SNAPSHOT, "s") == (KAFKA_ENTRY,)
    assert encode_snapshot([KAFKA_ENTRY]) == KAFKA_SNAPSHOT


def test_without_producers_it_takes_ten_bytes() -> None:
    assert len(encode_snapshot([])) == 10
    assert decode_snapshot(encode_snapshot([]), "s") == ()


@given(ENTRIES)
def test_round_trip(entries: list[ProducerEntry]) -> None:
    assert decode_snapshot(encode_snapshot(entries), "s") == tuple(entries)


def test_every_flipped_bit_is_found() -> None:
    for i in range(len(KAFKA_SNAPSHOT) * 8):
        damaged = bytearray(KAFKA_SNAPSHOT)
        damaged[i // 8] ^= 1 << i % 8
        with pytest.raises(CorruptSnapshotError, match="dir/s: position"):
            decode_snapshot(damaged, "dir/s")


def test_every_truncation_is_found() -> None:
    for size in range(len(KAFKA_SNAPSHOT)):
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(KAFKA_SNAPSHOT[:size], "s")


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1, -(2**31)])
def test_a_count_that_does_not_fit_the_size_is_corrupt_though_the_checksum_is_right(count: int) -> None:
    body = struct.pack(">i", count) + KAFKA_SNAPSHOT[10:]
    with pytest.raises(CorruptSnapshotError, match=f"{count} entries"):
        decode_snapshot(with_checksum(body), "s")


def test_bytes_after_the_entries_mean_nothing_when_the_checksum_covers_them() -> None:
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(KAFKA_SNAPSHOT + b"\x00", "s")
    assert decode_snapshot(with_checksum(KAFKA_SNAPSHOT[6:] + b"\x00"), "s") == (KAFKA_ENTRY,)
    assert decode_snapshot(with_checksum(bytes(4) + KAFKA_SNAPSHOT[10:]), "s") == ()


@pytest.mark.parametrize("version", [0, 2, -1])
def test_other_versions_are_corrupt(version: int) -> None:
    with pytest.raises(CorruptSnapshotError, match=f"version {version}"):
        decode_snapshot(with_checksum(KAFKA_SNAPSHOT[6:], version), "s")


@given(st.binary(max_size=200))
def test_random_bytes_raise_only_the_documented_error(data: bytes) -> None:
    for body in (data, with_checksum(data)):
        try:
            decode_snapshot(body, "s")
        except CorruptSnapshotError as error:
            assert error.position is not None


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(OverflowError):
        encode_snapshot([ProducerEntry(2**63)])
