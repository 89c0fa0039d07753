"""A log directory of small sound partitions, such as most of a broker's are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from seglog.log.append import ProducerIdentity
from seglog.model import Compression, Record, TopicPartition
from tests.support.compacted_directories import opened
from tests.support.open_logs import START_MS

SOUND = ("codecs-0", "empty-0", "epochs-0", "produced-0", "rolled-0")


def sound_directory(path: Path) -> Path:
    """Makes one as a broker that was stopped leaves it."""
    path.mkdir()
    with opened(path, cleanup_policy=frozenset({"delete"}), index_interval_bytes=64) as directory:
        for name in SOUND:
            log = directory.log(TopicPartition(name.partition("-")[0], 0), create=True)
            for n in range(0 if name == "empty-0" else 12):
                producer = ProducerIdentity(7 + n % 2, 0, 3 * (n // 2)) if name == "produced-0" else None
                codec = list(Compression)[n % len(Compression)] if name == "codecs-0" else Compression.NONE
                records = [Record(b"v%d" % n, b"k", START_MS + 3 * n + i) for i in range(3)]
                log.append(records, producer=producer, codec=codec, leader_epoch=n // 5 if name == "epochs-0" else 0)
                if n % 5 == 4 or (n == 11 and name == "rolled-0"):
                    log.roll()
        directory.load_all()
    (path / ".kafka_cleanshutdown").touch()
    for name in SOUND:
        (path / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {SOUND.index(name)}{'A' * 21}")
    return path


def copied(path: Path, to: Path) -> Path:
    """A copy."""
    shutil.copytree(path, to, symlinks=True)
    return to


def killed_copy(path: Path, to: Path) -> Path:
    """A copy as a broker that was killed leaves it: without the marker, with room for more in the last indexes."""
    (copied(path, to) / ".kafka_cleanshutdown").unlink()
    for index in to.glob("[!r]*-0/*30.*index"):
        os.truncate(index, 10_485_756 if index.suffix == ".timeindex" else 10_485_760)
    return to
