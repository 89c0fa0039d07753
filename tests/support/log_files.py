"""Small logs made batch by batch, or written byte by byte (tests/support/naive.py) to be damaged or looked at; and sets
of old messages as producers sent them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seglog.format.compression import compress
from seglog.format.decoder import scan_batches
from seglog.format.filenames import FileState
from seglog.format.message_set import encode_messages
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.model import Compression, Record
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from tests.support.naive import NaiveRecord, batch_v2, message

FS = LocalFileSystem()
TRANSACTIONAL, CONTROL = 0x10, 0x20


def batch(base_offset: int, count: int = 1, *, timestamp: int = 1000, value: bytes = b"value", epoch: int = 0) -> bytes:
    """A plain batch; record i has timestamp + i."""
    records = [NaiveRecord(i, i, b"k%d" % i, value) for i in range(count)]
    return batch_v2(base_offset, records, base_timestamp=timestamp, leader_epoch=epoch)


def transactional(base_offset: int, producer_id: int, sequence: int, *, epoch: int = 0, timestamp: int = 1000) -> bytes:
    """A batch of one record inside a transaction."""
    return batch_v2(
        base_offset,
        [NaiveRecord(0, 0, b"k", b"v")],
        base_timestamp=timestamp,
        attributes=TRANSACTIONAL,
        producer=(producer_id, epoch, sequence),
    )


def idempotent(base_offset: int, producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0) -> bytes:
    """A batch of `count` records of a producer outside any transaction."""
    records = [NaiveRecord(i, 0, b"k", b"v") for i in range(count)]
    return batch_v2(base_offset, records, base_timestamp=1000, producer=(producer_id, epoch, sequence))


def marker(base_offset: int, producer_id: int, *, commit: bool, epoch: int = 0, key: bytes | None = None) -> bytes:
    """A COMMIT or ABORT marker of coordinator epoch 7; `key` replaces the record's key."""
    record = NaiveRecord(0, 0, struct.pack(">hh", 0, int(commit)) if key is None else key, struct.pack(">hi", 0, 7))
    return batch_v2(base_offset, [record], attributes=TRANSACTIONAL | CONTROL, producer=(producer_id, epoch, -1))


def rows_of(data: bytes, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(bytes as uint8, batch table) of encoded batches."""
    array = np.frombuffer(data, dtype=np.uint8)
    return array, scan_batches(array, 0, len(array), position).batches


def write_segment(
    directory: Path,
    base_offset: int,
    *batches: bytes,
    index_interval_bytes: int = 4096,
    state: FileState = FileState.LIVE,
    fs: FileSystem = FS,
) -> LogSegment:
    """A segment with these batches, appended one by one and closed."""
    directory.mkdir(parents=True, exist_ok=True)
    segment = LogSegment(fs, directory, base_offset, index_interval_bytes=index_interval_bytes, state=state).create()
    for data in batches:
        array, rows = rows_of(data)
        segment.append(rows, array)
    segment.on_become_inactive()
    segment.flush()
    segment.close_files()
    return segment


def write_three_segments(directory: Path) -> None:
    """Segments at 0, 20 and 40, of two batches of ten records each, and every batch indexed."""
    for base in (0, 20, 40):
        write_segment(directory, base, batch(base, 10), batch(base + 10, 10), index_interval_bytes=0)


def rewrite(path: Path, data: bytes) -> None:
    """Gives a file other contents, as a disk does: its times stay."""
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replayed(directory: Path, *batches: bytes) -> ProducerStateManager:
    """The producers that these batches leave."""
    producers = ProducerStateManager(FS, directory)
    data, rows = rows_of(b"".join(batches))
    producers.replay(data, rows, 0, directory / "test.log")
    return producers


def files_of(directory: Path) -> dict[str, bytes]:
    """Name → contents of every file."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


def contents_below(directory: Path) -> dict[str, bytes]:
    """The bytes of all files below a directory but the locks."""
    return {name: contents for name, (contents, *_) in facts(directory).items()}


def facts(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    """Contents, modification time and mode of all files below a directory but the locks."""
    found = [path for path in directory.rglob("*") if path.is_file() and path.name != ".lock"]
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in found
    }


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


def encode_message_set(
    records: Sequence[Record],
    base_offset: int,
    magic: int,
    codec: Compression = Compression.NONE,
    *,
    append_time_ms: int | None = None,
) -> bytes:
    """`records` as log entries back to back, or as one wrapper when there is a codec."""
    offsets = range(base_offset, base_offset + len(records))
    return encode_messages(records, offsets, magic, codec, append_time_ms=append_time_ms)
