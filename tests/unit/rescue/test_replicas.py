"""Of several replicas in log directories the newest is transplanted, and what a source lacks is named."""

from __future__ import annotations

from pathlib import Path

from seglog.scan.listing import Target, TargetKind, list_partition
from seglog.storage.local import LocalFileSystem
from seglog_rescue.log_ends import LogEnds
from seglog_rescue.operations.rebuild import RebuildRequest, plan_rebuild
from seglog_rescue.rebuild.completeness import missing_of
from seglog_rescue.transplant.counts import SourceCounts
from seglog_rescue.transplant.planner import choose
from tests.support.log_files import batch
from tests.support.lost_clusters import broker_directory, registration, topic_records
from tests.support.manual_clock import ManualClock
from tests.support.metadata_records import write_metadata_log

FS = LocalFileSystem()


def chosen(*paths: Path, kind: TargetKind = TargetKind.LOG_DIRECTORY) -> tuple[list[Path], list[tuple[str, str]]]:
    found, left_out = choose(
        FS, ManualClock(), [Target(path, kind) for path in paths], {}, [paths[0].parent / "target"]
    )
    return [one.directory for one in found], left_out


def test_the_newest_replica_by_epoch_then_length_is_taken_and_the_others_are_named(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0, 0, 0], "orders-1": [2]})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0, 3], "orders-1": [2, 2]})
    found, left_out = chosen(one, two)
    assert found == [two / "orders-0", two / "orders-1"]
    assert [path for path, _ in left_out] == [str(one / "orders-0"), str(one / "orders-1")]
    assert all("which is newer" in reason for _, reason in left_out)
    end = LogEnds(FS).of(list_partition(FS, two / "orders-0"))
    assert (end.epoch, end.offset) == (3, 2)


def test_a_replica_in_sync_by_the_metadata_is_taken_though_another_is_longer(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0, 0]})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0, 0, 0]})
    write_metadata_log(one, topic_records("orders", [[1, 2]], isr=[1]))
    found, left_out = chosen(one, two)
    assert found == [one / "orders-0"]
    assert "which was in sync" in dict(left_out)[str(two / "orders-0")]


def test_the_metadata_of_another_cluster_does_not_choose(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0, 0]})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0, 0, 0]})
    other = broker_directory(tmp_path / "3", 3, {"clicks-0": [0]}, cluster="another-cluster")
    write_metadata_log(other, topic_records("orders", [[1, 2]], isr=[1]))
    assert two / "orders-0" in chosen(one, two, other)[0]


def test_a_source_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0], "orders-1": [2]})
    assert chosen(one, one / ".")[0] == [one / "orders-0", one / "orders-1"]
    assert chosen(one / "orders-0", one / "orders-0" / ".", kind=TargetKind.PARTITION)[0] == [one / "orders-0"]


def test_brokers_that_the_sources_metadata_names_are_missed(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    write_metadata_log(one, [registration(1), registration(2), *topic_records("orders", [[1, 2]])])
    ((known, missing),) = missing_of(FS, [one])
    assert "no log directory of broker 2 is given" in missing.described(known)
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0]})
    assert list(missing_of(FS, [one, two])) == []
    (two / "meta.properties").unlink()
    assert list(missing_of(FS, [one, two])) == []


def test_the_metadata_in_any_directory_of_a_cluster_says_how_many_partitions_its_topics_had(tmp_path: Path) -> None:
    first = broker_directory(tmp_path / "1a", 1, {"orders-0": [0]})
    second = broker_directory(tmp_path / "1b", 1, {"orders-1": [0]}, number=1)
    other = broker_directory(tmp_path / "2", 2, {"orders-6": [0]}, cluster="another-cluster")
    write_metadata_log(first, [registration(1, 2), *topic_records("orders", [[1], [1], [1]])])
    counts = SourceCounts(FS, [first, second, other])
    assert [counts.stated("orders", path) for path in (first, second, other)] == [3, 3, None]
    assert [counts.least("orders", path) for path in (first, second, other)] == [2, 2, 7]
    (second / "meta.properties").unlink()
    assert counts.stated("clicks", second) is None
    assert SourceCounts(FS, [first, second]).stated("orders", second) == 3
    restored = tmp_path / "restored"
    (restored / "orders-0").mkdir(parents=True)
    assert SourceCounts(FS, [restored]).stated("orders", restored) is None


def test_the_newest_metadata_of_several_says_how_many_partitions_a_topic_had(tmp_path: Path) -> None:
    stale = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    newer = broker_directory(tmp_path / "2", 2, {"orders-0": [0]})
    write_metadata_log(stale, topic_records("orders", [[1]]))
    write_metadata_log(newer, topic_records("orders", [[1], [2]]))
    assert SourceCounts(FS, [stale, newer]).stated("orders", stale) == 2


def damaged(directory: Path, number: int, size: int = 75) -> None:
    """Turns a bit in a batch of the first segment of orders-0."""
    log = directory / "orders-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[number * size + 70] ^= 1
    log.write_bytes(data)


def second_segment(directory: Path, base: int, count: int) -> None:
    """Appends a segment to orders-0, so that the damage is not in the last one. A broker recovers a segment without an
    index apart, and goes on with a hole in the log: all have one."""
    data = b"".join(batch(base + i) for i in range(count))
    (directory / "orders-0" / f"{base:020}.log").write_bytes(data)
    for log in (directory / "orders-0").glob("*.log"):
        log.with_suffix(".index").touch()


def test_a_longer_replica_that_is_damaged_before_its_last_segment_is_not_taken(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 6})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0] * 6})
    second_segment(one, 6, 4)
    second_segment(two, 6, 2)
    damaged(one, 2)  # a start cuts it there, with all later segments
    found, left_out = chosen(one, two)
    assert found == [two / "orders-0"]
    assert dict(left_out).keys() == {str(one / "orders-0")}
    rebuilt = plan_rebuild(FS, ManualClock(), RebuildRequest([one, two]))
    (partition,) = rebuilt.topics[0].partitions
    assert (partition.leader, partition.log_end) == (2, 8)


def test_rebuild_says_what_the_start_of_a_damaged_leader_cuts(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 6})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0]})
    second_segment(one, 6, 4)
    damaged(one, 2)
    rebuilt = plan_rebuild(FS, ManualClock(), RebuildRequest([one, two]))
    (partition,) = rebuilt.topics[0].partitions
    assert (partition.leader, partition.log_end) == (1, 2)
    assert any("its start cuts offsets 2 to 9" in note for note in rebuilt.notes)


def test_of_equal_replicas_the_undamaged_one_is_taken_though_damage_below_the_recovery_point_is_not_cut(
    tmp_path: Path,
) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 6})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0] * 6})
    for directory in (one, two):
        second_segment(directory, 6, 2)
        (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    damaged(one, 2)
    found, left_out = chosen(one, two)
    assert found == [two / "orders-0"]
    assert "which is less damaged" in dict(left_out)[str(one / "orders-0")]
