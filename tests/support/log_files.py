"""Small logs made batch by batch, for tests of what lies below `Log`."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np

from seglog.format.decoder import scan_batches
from seglog.format.filenames import FileState
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from tests.support.naive import NaiveRecord, batch_v2

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
    segment = LogSegment.create(fs, directory, base_offset, index_interval_bytes=index_interval_bytes, state=state)
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
