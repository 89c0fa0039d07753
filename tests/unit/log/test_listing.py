"""Listings: what lies there, with nothing touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import NotALogError
from seglog.format.filenames import PartitionState
from seglog.log.listing import TargetKind, list_log_directory, list_partition, partitions_of, resolve_path
from seglog.model import TopicPartition
from tests.support.log_files import FS

BASE, NEXT = "0" * 20, "0" * 18 + "42"


def touch(directory: Path, *names: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_bytes(b"x")
    return directory


def test_files_are_sorted_into_segments_snapshots_leftovers_and_strangers(tmp_path: Path) -> None:
    names = (
        f"{NEXT}.log", f"{BASE}.log", f"{BASE}.index", f"{BASE}.timeindex", f"{NEXT}.snapshot",
        f"{'0' * 18}07.index", f"{BASE}.log.deleted", f"{BASE}.log.swap", "partition.metadata.tmp",
        "leader-epoch-checkpoint", "partition.metadata", "notes.txt", "x.log",
    )  # fmt: skip
    listing = list_partition(FS, touch(tmp_path / "my-topic-3", *names))
    assert listing.topic_partition == TopicPartition("my-topic", 3)
    assert [segment.base_offset for segment in listing.segments] == [0, 42]
    assert listing.segments[0].offset_index is not None and listing.segments[0].transaction_index is None
    assert listing.segments[1].offset_index is None
    assert [snapshot.offset for snapshot in listing.snapshots] == [42]
    assert [orphan.offset for orphan in listing.orphans] == [7]
    assert [path.name for path in listing.leftovers] == [f"{BASE}.log.deleted", f"{BASE}.log.swap", names[8]]
    assert [path.name for path in listing.strangers] == ["notes.txt", "x.log"]
    assert listing.leader_epoch_checkpoint is not None and listing.partition_metadata is not None
    assert listing.size == 2


def test_a_directory_of_kafka_0_7_is_recognised_by_its_files(tmp_path: Path) -> None:
    listing = list_partition(FS, touch(tmp_path / "old-0", f"{BASE}.kafka", f"{NEXT}.kafka"))
    assert (listing.format, [segment.base_offset for segment in listing.segments]) == ("0.7", [0, 42])


def test_a_log_directory_lists_partitions_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in (
        "t-10",
        "t-2",
        f"t-3.{'a' * 32}-delete",
        f"t-4.{'b' * 32}-future",
        "__cluster_metadata-0",
        "lost+found",
    ):
        touch(tmp_path / name)
    touch(tmp_path, "recovery-point-offset-checkpoint", ".kafka_cleanshutdown", ".lock")
    listing = list_log_directory(FS, tmp_path)
    assert [str(found.topic_partition) for found in listing.live] == ["t-2", "t-10"]
    states = {found.topic_partition.partition: found.state for found in listing.partitions}
    assert (states[3], states[4]) == (PartitionState.DELETED, PartitionState.FUTURE)
    assert list(listing.checkpoints) == ["recovery-point-offset-checkpoint"]
    assert listing.clean_shutdown
    assert [path.name for path in listing.strangers] == ["lost+found"]


def test_paths_resolve_by_contents_before_names(tmp_path: Path) -> None:
    partition = touch(tmp_path / "kafka-logs-1" / "t-0", f"{BASE}.log")
    assert resolve_path(FS, partition).kind is TargetKind.PARTITION
    assert resolve_path(FS, tmp_path / "kafka-logs-1").kind is TargetKind.LOG_DIRECTORY
    assert resolve_path(FS, partition / f"{BASE}.log").kind is TargetKind.FILE
    assert resolve_path(FS, touch(tmp_path / "empty-0")).kind is TargetKind.PARTITION
    assert [found.directory for found in partitions_of(FS, resolve_path(FS, tmp_path / "kafka-logs-1"))] == [partition]


@pytest.mark.parametrize("name", ["missing", "nothing-of-kafka"])
def test_what_is_no_log_is_told(tmp_path: Path, name: str) -> None:
    touch(tmp_path / "nothing-of-kafka", "readme.md")
    with pytest.raises(NotALogError):
        resolve_path(FS, tmp_path / name)
