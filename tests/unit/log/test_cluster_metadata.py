"""Configuration out of a controller's metadata log: snapshots, removals, transactions, damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.format.builder import BatchOptions, columns_of, encode_all
from seglog.log.cluster_metadata import (
    ABORT_TRANSACTION_RECORD,
    BEGIN_TRANSACTION_RECORD,
    CONFIG_RECORD,
    END_TRANSACTION_RECORD,
    REMOVE_TOPIC_RECORD,
    TOPIC_RECORD,
    ClusterMetadata,
    read_cluster_metadata,
)
from seglog.model import Record
from seglog.storage.filesystem import LocalFileSystem


def compact(text: str | None) -> bytes:
    return b"\x00" if text is None else bytes([len(text) + 1]) + text.encode()


def config(topic: str, key: str, value: str | None, resource: int = 2) -> bytes:
    body = bytes([resource]) + compact(topic) + compact(key) + compact(value) + b"\x00"
    return bytes([1, CONFIG_RECORD, 0]) + body


def topic_record(name: str, identity: int) -> bytes:
    return bytes([1, TOPIC_RECORD, 0]) + compact(name) + bytes([identity]) * 16 + b"\x00"


def remove(identity: int) -> bytes:
    return bytes([1, REMOVE_TOPIC_RECORD, 0]) + bytes([identity]) * 16 + b"\x00"


def marker(kind: int) -> bytes:
    return bytes([1, kind, 0, 0, 0])


def batches(base_offset: int, *values: bytes) -> bytes:
    """One batch a record, so that damage takes just one."""
    encoded = (
        encode_all(columns_of([Record(value, timestamp=1)]), base_offset + i, BatchOptions())
        for i, value in enumerate(values)
    )
    return b"".join(encoded)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "__cluster_metadata-0").mkdir()
    return tmp_path / "__cluster_metadata-0"


def replayed(directory: Path) -> ClusterMetadata:
    found = read_cluster_metadata(LocalFileSystem(), directory.parent)
    assert found is not None
    return found


def values(directory: Path, topic: str) -> dict[str, str]:
    return {key: stored.value for key, stored in replayed(directory).topic_values(topic).items()}


def log(directory: Path, *records: bytes, base_offset: int = 0) -> Path:
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(batches(base_offset, *records))
    return path


def test_a_directory_without_a_metadata_log_has_no_answer(tmp_path: Path) -> None:
    assert read_cluster_metadata(LocalFileSystem(), tmp_path) is None


def test_the_last_value_of_a_key_counts_and_names_its_record(directory: Path) -> None:
    path = log(
        directory, config("a", "segment.bytes", "1"), config("b", "x", "y"), config("a", "segment.bytes", "2")
    )
    stored = replayed(directory).topic_values("a")["segment.bytes"]
    assert (stored.value, stored.path, stored.offset) == ("2", path, 2)


def test_a_null_value_takes_the_key_back(directory: Path) -> None:
    log(directory, config("a", "segment.bytes", "1"), config("a", "segment.bytes", None))
    assert values(directory, "a") == {}


def test_removing_a_topic_takes_its_configuration_and_a_new_topic_starts_afresh(directory: Path) -> None:
    log(
        directory,
        topic_record("a", 7),
        config("a", "k", "1"),
        remove(7),
        topic_record("a", 8),
        config("a", "l", "2"),
    )
    assert values(directory, "a") == {"l": "2"}


def test_a_broker_inherits_the_cluster_default_and_overrides_it(directory: Path) -> None:
    log(
        directory,
        config("", "log.retention.ms", "1", resource=4),
        config("", "log.segment.bytes", "2", resource=4),
        config("3", "log.retention.ms", "9", resource=4),
    )
    found = replayed(directory)
    assert {k: v.value for k, v in found.broker_values(3).items()} == {
        "log.retention.ms": "9",
        "log.segment.bytes": "2",
    }
    assert found.broker_values(4)["log.retention.ms"].value == "1"


def test_an_aborted_metadata_transaction_leaves_nothing_and_a_finished_one_all(directory: Path) -> None:
    log(
        directory,
        marker(BEGIN_TRANSACTION_RECORD),
        config("a", "k", "lost"),
        marker(ABORT_TRANSACTION_RECORD),
        marker(BEGIN_TRANSACTION_RECORD),
        config("a", "l", "kept"),
        marker(END_TRANSACTION_RECORD),
        marker(BEGIN_TRANSACTION_RECORD),
        config("a", "m", "open"),
    )
    assert values(directory, "a") == {"l": "kept"}


def test_the_log_continues_the_newest_finished_snapshot(directory: Path) -> None:
    log(directory, config("a", "old", "1"), config("a", "k", "old"))
    log(directory, config("a", "k", "replayed twice"), config("a", "l", "new"), base_offset=2)
    (directory / "00000000000000000003-0000000001.checkpoint").write_bytes(
        batches(0, config("a", "k", "snapshot"))
    )
    (directory / "00000000000000000009-0000000001.checkpoint.part").write_bytes(b"unfinished")
    assert values(directory, "a") == {"k": "snapshot", "l": "new"}
    assert replayed(directory).end_offset == 4


def test_damage_ends_the_replay_and_is_told(directory: Path) -> None:
    path = log(directory, config("a", "k", "good"), config("a", "k", "damaged"), config("a", "l", "after"))
    data = bytearray(path.read_bytes())
    second = len(batches(0, config("a", "k", "good")))
    data[second + 70] ^= 1
    path.write_bytes(data)
    found = replayed(directory)
    assert values(directory, "a") == {"k": "good"}
    assert found.problems == [
        f"{path}: position {second}: the batch fails its checksum; what follows was not read"
    ]


def test_a_torn_tail_keeps_what_came_before(directory: Path) -> None:
    path = log(directory, config("a", "k", "good"), config("a", "k", "torn"))
    path.write_bytes(path.read_bytes()[:-3])
    assert values(directory, "a") == {"k": "good"}
    assert "no whole batch" in replayed(directory).problems[0]


def test_a_record_cut_short_is_told_and_the_next_one_counts(directory: Path) -> None:
    log(directory, config("a", "k", "v")[:6], config("a", "l", "w"))
    assert values(directory, "a") == {"l": "w"}
    assert "offset 0: 1 bytes are wanted at byte 6, 0 are left" in replayed(directory).problems[0]
