"""Small logs written byte by byte (tests/support/naive.py), for tests that damage them or look at them."""

from __future__ import annotations

from pathlib import Path

from seglog.format.compression import compress
from seglog.model import Compression
from tests.support.naive import NaiveRecord, batch_v2, message


def records(count: int, first: int = 0) -> list[NaiveRecord]:
    """Records with all kinds of keys, values and headers."""
    kinds: list[tuple[bytes | None, bytes | None]] = [
        (b"key", b"value"),
        (None, b"\xff\x00"),
        (b"", None),
        (b"k\xc3\xa9", b""),
    ]
    return [
        NaiveRecord(i, i, *kinds[(first + i) % len(kinds)], (((b"h", b"1"), (b"n", None)) if i % 3 == 0 else ()))
        for i in range(count)
    ]


def plain_batches(count: int = 8, each: int = 3, first_offset: int = 0) -> list[bytes]:
    """Uncompressed v2 batches, offsets without gaps."""
    return [batch_v2(first_offset + i * each, records(each, i), base_timestamp=1000 + 10 * i) for i in range(count)]


def compressed_batches(codec: Compression, count: int = 6, each: int = 4) -> list[bytes]:
    """v2 batches of one codec."""
    found = []
    for i in range(count):
        inner = records(each, i)
        body = compress(codec, b"".join(record.encode() for record in inner))
        found.append(batch_v2(i * each, inner, base_timestamp=1000 + 10 * i, attributes=int(codec), payload=body))
    return found


def transactional_batches() -> list[bytes]:
    """Two aborted transactions, a committed one, and one that stays open."""
    abort, commit = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"
    marker = b"\x00\x00\x00\x00\x00\x05"
    found, offset = [], 0
    for producer, key in ((7, abort), (8, commit), (7, abort), (9, None)):
        sequence = 2 * sum(1 for other in found if other[1] == producer)
        data = batch_v2(
            offset, records(2), base_timestamp=2000 + offset, attributes=0x10, producer=(producer, 0, sequence)
        )
        found.append((data, producer))
        offset += 2
        if key is not None:
            control = [NaiveRecord(0, 0, key, marker)]
            found.append(
                (
                    batch_v2(
                        offset, control, base_timestamp=2000 + offset, attributes=0x30, producer=(producer, 0, -1)
                    ),
                    -1,
                )
            )
            offset += 1
    return [data for data, _ in found]


def messages(magic: int, count: int = 9) -> list[bytes]:
    """Plain messages of magic 0 or 1."""
    return [message(i, magic, b"k%d" % i, b"v" * i, timestamp=1000 + i) for i in range(count)]


def wrappers(magic: int, codec: Compression, count: int = 5, each: int = 3) -> list[bytes]:
    """Compressed messages of magic 0 or 1."""
    found = []
    for i in range(count):
        base = i * each
        inner = b"".join(
            message(k if magic else base + k, magic, b"k", b"v%d" % k, timestamp=1000 + base + k) for k in range(each)
        )
        body = compress(codec, inner, magic=magic)
        last = base + each - 1
        found.append(message(last, magic, None, body, timestamp=1000 + last, attributes=int(codec)))
    return found


def write_log(directory: Path, batches: list[bytes], base_offset: int = 0, name: str = "t-0") -> Path:
    """Writes a `.log` into partition directory `name`; returns the file."""
    partition = directory / name
    partition.mkdir(parents=True, exist_ok=True)
    path = partition / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(batches))
    return path
