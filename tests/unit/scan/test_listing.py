"""Listings: what lies there, with nothing touched."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from seglog.errors import NotALogError, RefusedError
from seglog.format.filenames import PartitionState
from seglog.model import TopicPartition
from seglog.scan.listing import (
    TargetKind,
    is_07,
    list_log_directory,
    list_partition,
    partition_directories,
    readable_entries,
    require_partition,
    require_room_for_partition,
    resolve_path,
)
from seglog.storage.filesystem import FileSystem
from tests.support.faulty_filesystem import DeletingFileSystem
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
    assert partition_directories(FS, resolve_path(FS, tmp_path / "kafka-logs-1")) == (partition,)


def test_segments_in_a_log_directorys_root_do_not_make_it_a_partition(tmp_path: Path) -> None:
    touch(tmp_path, "meta.properties", f"{BASE}.log")
    assert resolve_path(FS, tmp_path).kind is TargetKind.LOG_DIRECTORY


def test_a_directory_whose_name_ends_in_a_number_by_chance_is_no_partition(tmp_path: Path) -> None:
    touch(tmp_path / "etc" / "dbus-1", "system.conf")
    with pytest.raises(NotALogError):
        resolve_path(FS, tmp_path / "etc")


def test_what_is_no_partition_is_refused_by_name_with_the_partitions_it_holds(tmp_path: Path) -> None:
    for n in (11, 2, 3, 4, 5, 6):
        touch(tmp_path / "logs" / f"orders-{n}", f"{BASE}.log")
    touch(tmp_path / "logs" / "__consumer_offsets-0", f"{BASE}.log")
    require_partition(FS, tmp_path / "logs" / "orders-2")
    expected = "name one of its 7 partitions: orders-2, orders-3, orders-4, orders-5, orders-6, …"
    with pytest.raises(NotALogError, match=f"a log directory, not a partition; {expected}"):
        require_partition(FS, tmp_path / "logs")
    with pytest.raises(NotALogError, match=r"a file; the partition is a directory, perhaps .*orders-2"):
        require_partition(FS, tmp_path / "logs" / "orders-2" / f"{BASE}.log")
    with pytest.raises(NotALogError, match="it holds no partition"):
        require_partition(FS, touch(tmp_path / "bare", "meta.properties"))


def test_a_partition_is_made_only_under_a_partitions_name_in_what_may_be_a_log_directory(tmp_path: Path) -> None:
    touch(tmp_path / "logs" / "orders-0", f"{BASE}.log")
    touch(tmp_path / "home", "notes.txt")
    for place in ("logs/orders-1", "home/orders-0", "orders-0"):
        require_room_for_partition(FS, tmp_path / place)
    for place, reason in {
        "logs/orders": "only a directory named TOPIC-NUMBER",
        "logs/orders-x": "only a directory named TOPIC-NUMBER",
        "logs/orders-0/deep-0": "orders-0 is a partition itself",
        f"logs/{'x' * 250}-0": "only a directory named TOPIC-NUMBER",
    }.items():
        with pytest.raises(RefusedError, match=reason):
            require_room_for_partition(FS, tmp_path / place)
    with pytest.raises(NotALogError, match="no such directory"):
        require_room_for_partition(FS, tmp_path / "missing" / "orders-0")


@pytest.mark.parametrize("name", ["missing", "nothing-of-kafka"])
def test_paths_that_are_not_logs_are_refused(tmp_path: Path, name: str) -> None:
    touch(tmp_path / "nothing-of-kafka", "readme.md")
    with pytest.raises(NotALogError):
        resolve_path(FS, tmp_path / name)


@pytest.mark.parametrize(
    "look", [list_partition, readable_entries, list_log_directory, resolve_path, require_partition]
)
def test_a_directory_that_goes_while_it_is_looked_at_is_none(
    look: Callable[[FileSystem, Path], object], tmp_path: Path
) -> None:
    directory = touch(tmp_path / "t-0", f"{BASE}.log")
    with pytest.raises(NotALogError, match="t-0: no such directory any more"):
        look(DeletingFileSystem(FS), directory)


def test_a_missing_directory_holds_no_log_of_kafka_07(tmp_path: Path) -> None:
    assert not is_07(FS, tmp_path / "t-0")


NAMES_BESIDE_07 = ("0" * 20 + ".kafka", f"{BASE}.log", f"{BASE}.log.deleted", "notes.log", "notes.kafka")


@pytest.mark.parametrize("names", list(itertools.combinations(NAMES_BESIDE_07, 2)))
def test_a_log_is_of_kafka_07_if_its_listing_says_so(tmp_path: Path, names: Sequence[str]) -> None:
    directory = touch(tmp_path / "t-0", *names)
    assert is_07(FS, directory) is (list_partition(FS, directory).format == "0.7")
