"""A small log directory with a bit of everything, as a broker that was stopped leaves it; and copies of such.

There are plain, compacted, transactional, legacy, empty and deleted partitions, all codecs, a leftover, checkpoints,
properties and the cluster's metadata.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from seglog.log.append import ProducerIdentity
from seglog.log.log import Log
from seglog.model import Compression, Record, TopicPartition
from tests.support import log_files as logs
from tests.support.compacted_directories import opened
from tests.support.naive import NaiveRecord, batch_v2, message
from tests.support.open_logs import START_MS


def base_directory(path: Path) -> Path:
    """A log directory with a bit of everything, as a broker that was stopped leaves it."""
    path.mkdir(parents=True)
    (path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n")
    logs.write_log(path, logs.transactional_batches(), name="x-0")
    logs.write_log(path, [*logs.messages(0, 4), *_messages(4, 9)], name="old-0")
    logs.write_log(path, logs.wrappers(1, Compression.GZIP), name="old-1")
    with opened(path, segment_bytes=100_000, index_interval_bytes=64) as directory:
        for number, codec in enumerate(Compression):
            _fill(directory.log(TopicPartition(f"c{number}", 0), create=True), codec)
        log = directory.log(TopicPartition("p", 0), create=True)
        for n in range(12):
            producer = ProducerIdentity(7, 0, n)
            log.append([Record(b"v%d" % n, b"k", START_MS + n)], producer=producer, leader_epoch=n // 5)
            if n % 5 == 4:
                log.roll()
        directory.log(TopicPartition("empty", 0), create=True)
        directory.load_all()
    for partition in path.iterdir():
        if partition.is_dir():
            (partition / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    first = path / "c1-0" / f"{0:020d}.log"
    shutil.copy(first, first.with_name(first.name + ".deleted"))
    logs.write_log(path, _metadata(), name="__cluster_metadata-0")
    shutil.copytree(path / "c2-0", path / f"c2-0.{'1' * 32}-delete")
    return path


def _fill(log: Log, codec: Compression) -> None:
    for segment in range(3):
        start = log.log_end_offset
        values = [None if n % 9 == 8 else b"value %d" % n for n in range(20)]
        keyed = [Record(value, b"k%d" % (n % 5), START_MS + start + n) for n, value in enumerate(values)]
        log.append(keyed, batch_records=4, codec=codec, leader_epoch=segment)
        if segment < 2:
            log.roll()


def _messages(first: int, end: int) -> list[bytes]:
    return [message(offset, 1, b"k%d" % offset, b"v", timestamp=START_MS + offset) for offset in range(first, end)]


def _metadata() -> list[bytes]:
    """Two topics, one with a policy of its own, and a broker default, as the controller writes them."""
    values = [
        b"\x01\x02\x00\x03c0" + bytes([7]) * 16 + b"\x00",
        b"\x01\x02\x00\x02p" + bytes([8]) * 16 + b"\x00",
        b"\x01\x04\x00\x02\x03c0\x0fcleanup.policy\x08compact\x00",
        b"\x01\x04\x00\x04\x01\x11log.retention.ms\x025\x00",
    ]
    return [batch_v2(n, [NaiveRecord(0, 0, None, value)], base_timestamp=START_MS) for n, value in enumerate(values)]


def copy_tree(source: Path, target: Path) -> None:
    """A copy of a directory with links as links and pipes as pipes, times and modes as they are."""
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        copy = target / path.name
        if path.is_symlink():
            copy.symlink_to(path.readlink())
            if path.lstat().st_uid != os.geteuid():
                os.lchown(copy, path.lstat().st_uid, path.lstat().st_gid)
        elif path.is_dir():
            copy_tree(path, copy)
        elif path.is_fifo():
            os.mkfifo(copy)
        else:
            shutil.copy2(path, copy)
