"""Scanning a segment: the same batches whatever the chunk size, and a truthful end."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.scan.segment_scan import EndReason, SegmentScan
from seglog.storage.local import LocalFileSystem
from tests.support.naive import NaiveRecord, batch_v2

FS = LocalFileSystem()


def batch(offset: int, size: int) -> bytes:
    return batch_v2(offset, [NaiveRecord(0, 0, b"k", b"v" * size)])


def scanned(path: Path, **options) -> tuple[list[tuple[int, int]], SegmentScan]:
    scan = SegmentScan(FS, path, **options)
    found = []
    for chunk in scan:
        for row in chunk.batches:
            at = int(row["position"]) - chunk.position
            head = chunk.data[at : at + 8].tobytes() if chunk.complete else chunk.file.read_at(int(row["position"]), 8)
            assert head == int(row["base_offset"]).to_bytes(8, "big")
            found.append((int(row["position"]), int(row["base_offset"])))
    return found, scan


@pytest.mark.parametrize("chunk_bytes", [1, 64, 100, 1000, 1 << 20])
def test_chunks_of_any_size_give_all_batches(tmp_path: Path, chunk_bytes: int) -> None:
    path = tmp_path / "00000000000000000000.log"
    data, expected = b"", []
    for i in range(40):
        expected.append((len(data), i))
        data += batch(i, i * 37 % 500)
    path.write_bytes(data)
    found, scan = scanned(path, chunk_bytes=chunk_bytes)
    assert found == expected
    assert scan.end is not None
    assert (scan.end.position, scan.end.reason) == (len(data), EndReason.COMPLETE)
    middle, scan = scanned(path, chunk_bytes=chunk_bytes, start=expected[10][0], end=expected[20][0])
    assert middle == expected[10:20]


@pytest.mark.parametrize("chunk_bytes", [64, 1 << 20])
@pytest.mark.parametrize(
    ("tail", "reason", "size"),
    [
        (b"", EndReason.COMPLETE, 0),
        (b"\x01", EndReason.TRAILING, 0),
        (batch(1, 10)[:-1], EndReason.TRAILING, len(batch(1, 10))),
        (b"\x00" * 100, EndReason.BAD_SIZE, 12),
        (b"\x00" * 8 + b"\x7f\xff\xff\xff\x00\x00\x00\x00\x02" + b"\x00" * 90, EndReason.TRAILING, 2**31 + 11),
        (b"\x00" * 11 + b"\x30" + b"\x00" * 4 + b"\x02" + b"\x00" * 80, EndReason.BAD_HEADER, 60),
    ],
    ids=["nothing", "a byte", "torn", "zeroes", "huge size", "short header"],
)
def test_the_end_says_where_and_why(
    tmp_path: Path, chunk_bytes: int, tail: bytes, reason: EndReason, size: int
) -> None:
    path = tmp_path / "00000000000000000000.log"
    head = batch(0, 10)
    path.write_bytes(head + tail)
    found, scan = scanned(path, chunk_bytes=chunk_bytes)
    assert found == [(0, 0)]
    assert scan.end is not None
    assert (scan.end.position, scan.end.reason, scan.end.size) == (len(head), reason, size)
    assert scan.end.remaining == len(tail)


def test_an_empty_file_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"")
    found, scan = scanned(path)
    assert found == [] and scan.end is not None and scan.end.reason is EndReason.COMPLETE


def test_a_batch_too_large_to_be_held_comes_without_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    large = batch(1, 5000)
    path.write_bytes(batch(0, 10) + large + batch(2, 10))
    found, _ = scanned(path, chunk_bytes=64, held_bytes=len(large))
    assert [offset for _, offset in found] == [0, 1, 2]
    chunks = list(SegmentScan(FS, path, chunk_bytes=64, held_bytes=len(large)))
    assert [chunk.complete for chunk in chunks] == [True, True, True]
    found, scan = scanned(path, chunk_bytes=64, held_bytes=len(large) - 1)
    assert [offset for _, offset in found] == [0, 1, 2]
    assert scan.end is not None and scan.end.reason is EndReason.COMPLETE


def test_checksum_and_records_of_a_batch_that_is_not_held_are_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    large = bytearray(batch(7, 5000))
    for damage in (0, 1):
        large[-1] ^= damage
        path.write_bytes(batch(0, 10) + large + batch(12, 10))
        seen = []
        for chunk in SegmentScan(FS, path, chunk_bytes=64, held_bytes=1000):
            keys = [(r.offset, r.value) for part in chunk.records() for r in part] if not damage else []
            seen.append((chunk.complete, len(chunk.data), chunk.size, chunk.checksums_valid().tolist(), keys))
        middle = [(7, b"v" * 5000)] if not damage else []
        assert seen[1] == (False, 0, len(large), [not damage], middle)
        assert [one[0] for one in seen] == [True, False, True]


def test_a_control_batch_is_held_whatever_its_size(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(batch_v2(0, [NaiveRecord(0, 0, b"\0\0\0\1", b"v" * 5000)], attributes=0x30, producer=(1, 0, -1)))
    assert [chunk.complete for chunk in SegmentScan(FS, path, chunk_bytes=64, held_bytes=100)] == [True]


def test_a_large_entry_with_a_header_that_cannot_be_ends_the_scan(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    large = bytearray(batch(1, 5000))
    large[:8] = (2**63 - 1).to_bytes(8, "big")
    path.write_bytes(batch(0, 10) + large)
    found, scan = scanned(path, chunk_bytes=64, held_bytes=100)
    assert [offset for _, offset in found] == [0]
    assert scan.end is not None and (scan.end.reason, scan.end.size) == (EndReason.BAD_HEADER, len(large))


def test_no_batch_has_more_bytes_than_an_int_counts(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    head = bytearray(batch(0, 10))
    for size, reason, offsets in ((2**31 - 1 - 12, EndReason.COMPLETE, [0]), (2**31 - 1, EndReason.BAD_SIZE, [])):
        head[8:12] = size.to_bytes(4, "big")
        with path.open("wb") as file:
            file.write(head)
            file.truncate(size + 12)  # sparse
        found, scan = scanned(path)
        assert [offset for _, offset in found] == offsets
        assert scan.end is not None and scan.end.reason is reason
