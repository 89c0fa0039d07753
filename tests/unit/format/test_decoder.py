"""The decoder: every codec and magic becomes the same rows, whatever the threads, and hostile input stays bounded."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from seglog.format.compression import compress
from seglog.format.decoder import checksums_match, decode_records, scan_batches
from seglog.kernels.records import CODEC_UNKNOWN, DECOMPRESSION_FAILED, DECOMPRESSION_TOO_LARGE
from tests.support.naive import NaiveRecord, batch_v2, message

RECORDS = [NaiveRecord(i, i * 3, b"key-%d" % i, b"value" * (i % 4), ((b"h", b"x"),)) for i in range(50)]


def compressed_batch(codec: int, base_offset: int, payload: bytes | None = None) -> bytes:
    raw = b"".join(record.encode() for record in RECORDS)
    body = compress(codec, raw) if payload is None else payload
    return batch_v2(base_offset, RECORDS, attributes=codec, payload=body)


def wrapper(codec: int, magic: int, offset: int, *, relative: bool, append_time: int | None = None) -> bytes:
    inner = b"".join(
        message(i if relative else offset - 2 + i, magic, b"k%d" % i, b"v", timestamp=100 + i) for i in range(3)
    )
    attributes = codec | (8 if append_time is not None else 0)
    value = compress(codec, inner, magic=magic)
    timestamp = 102 if append_time is None else append_time
    return message(offset, magic, None, value, timestamp=timestamp, attributes=attributes)


def decode(data: bytes, **options) -> tuple[list, list[int]]:
    buffer = np.frombuffer(data, dtype=np.uint8)
    batches = scan_batches(buffer, 0, len(buffer), 0).batches
    records, status = [], []
    for part in decode_records(buffer, batches, 0, **options):
        records += list(part)
        if part.rows_before == 0:
            status += part.status.tolist()
        assert part.first_batch == len(status) - len(part.status)
    return records, status


@pytest.mark.parametrize("arena_bytes", [1, 4000, 1 << 24])
def test_every_codec_gives_the_same_records(arena_bytes: int) -> None:
    data = b"".join(compressed_batch(codec, 100 * codec) for codec in (0, 1, 2, 3, 4, 3, 3, 0))
    records, status = decode(data, arena_bytes=arena_bytes)
    assert status == [0] * 8
    plain, _ = decode(compressed_batch(0, 0))
    for i, base in enumerate((0, 100, 200, 300, 400, 300, 300, 0)):
        got = records[50 * i : 50 * i + 50]
        assert [r.offset for r in got] == [base + r.offset for r in plain]
        assert [(r.key, r.value, r.headers, r.timestamp) for r in got] == [
            (r.key, r.value, r.headers, r.timestamp) for r in plain
        ]


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_wrappers_of_magic_0_and_1_unfold(codec: int) -> None:
    data = (
        wrapper(codec, 0, 12, relative=False)
        + wrapper(codec, 1, 15, relative=True)
        + wrapper(codec, 1, 18, relative=True, append_time=999)
    )
    records, status = decode(data)
    assert status == [0, 0, 0]
    assert [r.offset for r in records] == list(range(10, 19))
    assert [r.timestamp for r in records] == [-1] * 3 + [100, 101, 102] + [999] * 3


def test_checksums_of_every_magic_are_checked() -> None:
    data = bytearray(compressed_batch(0, 0) + message(50, 0, b"k", b"v") + message(51, 1, b"k", b"v"))
    buffer = np.frombuffer(data, dtype=np.uint8)
    batches = scan_batches(buffer, 0, len(buffer), 0).batches
    assert checksums_match(buffer, batches, 0).all()
    for row in batches:
        damaged = buffer.copy()
        damaged[row["position"] + row["size"] - 1] ^= 1
        assert checksums_match(damaged, batches, 0).tolist() == [other is not row and other != row for other in batches]


def test_a_batch_that_expands_beyond_the_limit_is_refused() -> None:
    bomb = compressed_batch(1, 0, zlib.compress(b"\0" * 50_000_000, 9, wbits=31))
    records, status = decode(bomb + compressed_batch(4, 100), limit=1 << 20)
    assert status == [DECOMPRESSION_TOO_LARGE, 0]
    assert [r.offset for r in records] == list(range(100, 150))


@pytest.mark.parametrize(
    ("codec", "payload", "expected"),
    [(c, b"not compressed at all", DECOMPRESSION_FAILED) for c in (1, 2, 3, 4)]
    + [(c, b"xxxxxxxxxxxxxxx", CODEC_UNKNOWN) for c in (5, 6, 7)],
)
def test_what_cannot_be_decompressed_has_a_status_and_stops_nothing(codec: int, payload: bytes, expected: int) -> None:
    data = compressed_batch(0, 0) + compressed_batch(codec, 50, payload) + compressed_batch(3, 100)
    records, status = decode(data)
    assert status == [0, expected, 0]
    assert len(records) == 100
