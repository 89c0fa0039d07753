"""Committed offsets lose the leader epoch and the topic id that mean nothing in another cluster."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from seglog.format.coordinator import OFFSETS, decode_coordinator_record
from seglog.format.decoder import checksums_match, scan_batches
from seglog.model import Record
from seglog.storage.local import LocalFileSystem
from seglog_rescue.groups.coordinator_replay import OFFSETS_TOPIC
from tests.support.group_records import commit_key, text
from tests.support.open_logs import START_MS, opened_log
from tests.support.target_directories import request, target_directory, transplanted

FS = LocalFileSystem()
NAME = f"{OFFSETS_TOPIC}-0"
TOPIC_ID = bytes(range(100, 116))


def commit_v3(group: str, offset: int, epoch: int) -> Record:
    value = struct.pack(">hqi", 3, offset, epoch) + text("note") + struct.pack(">q", START_MS)
    return Record(key=commit_key(group), value=value, timestamp=START_MS)


def commit_v4(group: str, offset: int, epoch: int) -> Record:
    """A flexible version: a compact string, and the topic id as tagged field 0."""
    head = struct.pack(">hqi", 4, offset, epoch) + b"\x05note" + struct.pack(">q", START_MS)
    value = head + b"\x01\x00\x10" + TOPIC_ID
    return Record(key=commit_key(group), value=value, timestamp=START_MS)


def other_kinds() -> list[Record]:
    """Group metadata, an old commit without epoch, a tombstone, and what is no record of a coordinator."""
    old = struct.pack(">hq", 1, 5) + text("") + struct.pack(">qq", START_MS, START_MS)
    return [
        Record(key=struct.pack(">h", 2) + text("g"), value=bytes(range(40)), timestamp=START_MS),
        Record(key=commit_key("old"), value=old, timestamp=START_MS),
        Record(key=commit_key("gone"), value=None, timestamp=START_MS),
        Record(key=b"x", value=bytes(range(30)), timestamp=START_MS),
    ]


@pytest.mark.parametrize("codec", ["none", "zstd", "gzip"])
def test_epochs_and_topic_ids_are_forgotten_and_offsets_stay(tmp_path: Path, codec: str) -> None:
    with opened_log(tmp_path / "old" / NAME) as log:
        log.append([commit_v3("one", 11, 4), *other_kinds(), commit_v4("two", 12, 9)], codec=codec)
        log.append([commit_v3("unknown", 13, -1)])
        log.append(other_kinds(), codec=codec)
        before = list(log.records())
    target = target_directory(FS, tmp_path / "new", [NAME])
    assert transplanted(FS, START_MS, request(FS, target, tmp_path / "old" / NAME)).run is not None
    data = np.frombuffer((target / NAME / f"{0:020}.log").read_bytes(), dtype=np.uint8)
    assert checksums_match(data, scan_batches(data, 0, len(data), 0).batches, 0).all()
    with opened_log(target / NAME, writable=False) as log:
        after = list(log.records())
    assert [(one.offset, one.timestamp, one.key) for one in after] == [
        (one.offset, one.timestamp, one.key) for one in before
    ]
    seen = []
    for old, new in zip(before, after, strict=True):
        if (old.value or b"")[:2] not in (b"\x00\x03", b"\x00\x04") or old.key == b"x":
            assert new.value == old.value
            continue
        values = [decode_coordinator_record(OFFSETS, one.key, one.value).value for one in (old, new)]
        assert values[0] is not None and values[1] is not None
        seen.append((values[1]["offset"], values[1]["leaderEpoch"], values[1].get("topicId")))
        assert {**values[0], "leaderEpoch": -1, "topicId": None} == {**values[1], "topicId": None}
    assert seen == [(11, -1, None), (12, -1, None), (13, -1, None)]
    assert not any(TOPIC_ID in (one.value or b"") for one in after)
