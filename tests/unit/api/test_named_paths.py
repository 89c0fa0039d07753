"""Library functions take the cluster's metadata from a directory that was named before that of a neighbour."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.errors import RefusedError
from seglog.storage.local import LocalFileSystem
from seglog_rescue.transplant.target import TargetDirectory
from tests.support.metadata_records import metadata_record, topic_id, write_metadata_log


def directory(path: Path, number: int) -> Path:
    path.mkdir()
    (path / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id=1\ndirectory.id={number}\n")
    return path


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    """Copies of a broker's two directories, beside which its first one has changed since."""
    original, copy, other = (directory(tmp_path / name, number) for name, number in (("A0", 1), ("a", 1), ("b", 2)))
    for place, size, brokers in ((original, "-1", [1, 2, 3]), (copy, "1", [1, 2])):
        records = [
            metadata_record("TOPIC_RECORD", name="t", topicId=topic_id(1)),
            metadata_record(
                "PARTITION_RECORD",
                partitionId=0,
                topicId=topic_id(1),
                replicas=brokers,
                isr=brokers,
                removingReplicas=[],
                addingReplicas=[],
                leader=1,
                leaderEpoch=0,
                partitionEpoch=0,
                directories=[],
            ),
            metadata_record("CONFIG_RECORD", resourceType=2, resourceName="t", name="cleanup.policy", value="delete"),
            metadata_record("CONFIG_RECORD", resourceType=2, resourceName="t", name="retention.bytes", value=size),
        ]
        write_metadata_log(place, records)
    for _ in range(3):
        with seglog.open_log(str(other / "t-0"), create=True, config={"segment.bytes": "170"}) as log:
            log.append([seglog.Record(b"v" * 90, key=b"k", timestamp=1000)])
    return copy, other


def planned(*paths: Path) -> list[int]:
    return [len(one.plan.removed) for one in seglog.plan_retain(*map(str, paths)) if isinstance(one, seglog.Retained)]


CALLS: dict[str, Callable[[Path, Path], object]] = {
    "plan_retain": lambda copy, other: planned(other, copy) == [2],
    "retain": lambda copy, other: bool(seglog.retain(str(copy), str(other), policy=None)) and planned(other) == [0],
    "report": lambda copy, other: (
        {one.value for one in seglog.report(str(copy), str(other)).settings if one.key == "retention.bytes"} == {"1"}
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_directory_that_was_named_wins_over_a_neighbour(name: str, disks: tuple[Path, Path]) -> None:
    assert planned(disks[1]) == [0], "alone, the neighbour's metadata is the first"
    assert CALLS[name](*disks)


def test_an_erasure_counts_the_replicas_of_the_directory_that_was_named(disks: tuple[Path, Path]) -> None:
    def brokers(*paths: Path, **more: Any) -> str:
        plan = seglog.plan_redact(*map(str, paths), keys=[b"k"], tiers_done=True, **more)
        return next(one.what for one in plan.elsewhere if one.what.startswith("broker"))

    copy, other = disks
    assert brokers(other / "t-0") == "broker 2, broker 3"
    assert brokers(other / "t-0", metadata_directory=copy) == "broker 2"
    (copy / "t-1").mkdir()
    with seglog.open_log(str(copy / "t-1"), create=True) as log:
        log.append([seglog.Record(b"v", key=b"k", timestamp=1000)])
    assert brokers(other, copy) == "broker 2"


def test_the_source_of_a_transplant_does_not_know_what_the_target_serves(disks: tuple[Path, Path]) -> None:
    copy, other = disks
    (other / ".kafka_cleanshutdown").touch()
    (copy / ".kafka_cleanshutdown").touch()
    fs, original = LocalFileSystem(), copy.parent / "A0"

    def metadata(*given: Any) -> Path:
        known = TargetDirectory(fs, other, *given).metadata
        assert known is not None
        return known.directory.parent

    assert metadata() == original
    assert metadata((), [original]) == copy, "a dead cluster's copy beside its target"
    assert metadata([copy], [original]) == copy
    (copy / ".kafka_cleanshutdown").unlink()
    with pytest.raises(RefusedError, match="not stopped cleanly"):
        metadata([copy])
