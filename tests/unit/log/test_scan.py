"""Scanning a segment: the same batches whatever the chunk size, and a truthful end."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.log.scan import EndReason, SegmentScan
from seglog.storage.filesystem import LocalFileSystem
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
            assert chunk.data[at : at + 8].tobytes() == int(row["base_offset"]).to_bytes(8, "big")
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


def test_the_buffer_grows_to_a_large_batch_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    large = batch(1, 5000)
    path.write_bytes(batch(0, 10) + large + batch(2, 10))
    found, _ = scanned(path, chunk_bytes=64, max_batch_bytes=len(large))
    assert [offset for _, offset in found] == [0, 1, 2]
    found, scan = scanned(path, chunk_bytes=64, max_batch_bytes=len(large) - 1)
    assert [offset for _, offset in found] == [0]
    assert scan.end is not None and (scan.end.reason, scan.end.size) == (EndReason.TOO_LARGE, len(large))
