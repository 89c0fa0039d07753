"""Targets: where a broker would set data aside, or a replica cut it off, nothing is put."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.configuration.cluster_metadata import Assignment, ClusterMetadata
from seglog.errors import RefusedError
from seglog.format.uuids import format_uuid
from seglog.model import TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_rescue.transplant.target import TargetDirectory
from tests.support.target_directories import TOPIC_ID, target_directory

FS = LocalFileSystem()
KEY = TopicPartition("t", 0)


def without(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def of_zookeeper(path: Path) -> None:
    (path / "t-0" / "partition.metadata").unlink()
    (path / "meta.properties").write_text("version=0\nbroker.id=1\n")


def garbage_metadata(path: Path) -> None:
    (path / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: no\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("meta.properties"), "it is not a broker's log directory"),
        (without(".kafka_cleanshutdown"), "was not stopped cleanly"),
        (lambda path: (path / ".seglog-run").write_bytes(b"/x"), "a run was cut short here"),
        (without("t-0/partition.metadata"), "a broker takes the partition for a stray"),
        (of_zookeeper, "transplant keeps topic ids, which its topics do not have"),
        (garbage_metadata, "a broker would not start with it"),
    ],
)
def test_what_a_broker_would_not_serve_is_refused(tmp_path: Path, change: Callable[[Path], object], words: str) -> None:
    path = target_directory(FS, tmp_path / "logs", ["t-0"])
    assert TargetDirectory(FS, path).partition(KEY).is_empty
    change(path)
    with pytest.raises(RefusedError, match=words):
        TargetDirectory(FS, path).partition(KEY)


def known(path: Path, topic_id: str, *assignments: Assignment) -> TargetDirectory:
    """The target, whose cluster knows these partitions of the topic."""
    target = TargetDirectory(FS, path)
    partitions = {topic_id: dict(enumerate(assignments))}
    target.metadata = ClusterMetadata(path, topic_ids={"t": topic_id}, partitions=partitions)
    return target


def test_what_the_cluster_says_of_the_partition_must_fit(tmp_path: Path) -> None:
    path = target_directory(FS, tmp_path / "logs", ["t-0"])
    mine, own = Assignment((1,), (1,), 1), format_uuid(TOPIC_ID)
    assert known(path, own, mine, mine, mine).partition(KEY).count == 3
    with pytest.raises(RefusedError, match="another topic id"):
        known(path, "AAAAAAAAAAAAAAAAAAAAAQ", mine).partition(KEY)
    with pytest.raises(RefusedError, match=r"moved this partition to the brokers \(2,\)"):
        known(path, own, Assignment((2,), (2,), 2)).partition(KEY)
    two = known(path, own, Assignment((1, 2), (1, 2), 1))
    with pytest.raises(RefusedError, match=r"has replicas on the brokers \[1, 2\].*--every-replica"):
        two.partition(KEY)
    assert two.partition(KEY, every_replica=True).count == 1


@pytest.mark.parametrize("name", [f"{0:020}.log.swap", f"{0:020}.log.cleaned"])
def test_a_replacement_under_way_is_data(tmp_path: Path, name: str) -> None:
    path = target_directory(FS, tmp_path / "logs", ["t-0"])
    (path / "t-0" / f"{5:020}.log.deleted").write_bytes(b"x")
    assert TargetDirectory(FS, path).partition(KEY).is_empty
    (path / "t-0" / name).write_bytes(b"x")
    assert not TargetDirectory(FS, path).partition(KEY).is_empty
