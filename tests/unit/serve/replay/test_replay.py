"""A replay's groups: whose offsets are translated, and how they are set; runs with other partitions than before."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import IncompleteError
from seglog.model import Record, TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_rescue.operations.groups import Group, GroupPartition
from seglog_rescue.serve.replay.replay import Replay, Translated
from seglog_rescue.serve.replay.target import NotArrivedError
from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster
from tests.support.open_logs import opened_log
from tests.support.serving import open_catalog

SOURCE = TopicPartition("t", 0)


def group(name: str, kind: str, offset: int) -> Group:
    return Group(name, kind, "Empty", 0, (), (GroupPartition(SOURCE, offset, None, None),))


def test_offsets_of_share_groups_are_neither_translated_nor_set(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append([Record(b"value", timestamp=1000) for _ in range(3)])
    cluster = MemoryCluster({"t": 1})
    with open_catalog([tmp_path / "t-0"]) as catalog:
        fs, clock = LocalFileSystem(), ManualClock(0)
        replay = Replay(catalog, cluster, fs, clock, tmp_path / "state", map_file=tmp_path / "map.csv")
        replay.run(replay.plan(), lambda _size: None)
        groups = [group("classic", "classic", 1), group("share", "share", 2), group("new", "consumer", 3)]
        found = list(replay.translate(groups))
        assert list(replay.commit(found)) == []
    assert found == [Translated("classic", SOURCE, 1, SOURCE, 1), Translated("new", SOURCE, 3, SOURCE, 3)]
    assert cluster.commits == {"classic": [(SOURCE, 1)], "new": [(SOURCE, 3)]}


def test_a_group_that_has_gone_on_is_not_set_back_by_another_run(tmp_path: Path) -> None:
    cluster = MemoryCluster({"t": 1})

    def run_again() -> list[str]:
        with open_catalog([tmp_path / "t-0"]) as catalog:
            fs, clock = LocalFileSystem(), ManualClock(0)
            replay = Replay(catalog, cluster, fs, clock, tmp_path / "state", map_file=tmp_path / "map.csv")
            replay.run(replay.plan(), lambda _size: None)
            return list(replay.commit(list(replay.translate([group("g", "classic", 1)]))))

    with opened_log(tmp_path / "t-0") as log:
        log.append([Record(b"value", timestamp=1000) for _ in range(3)])
    assert (run_again(), cluster.commits["g"]) == ([], [(SOURCE, 1)])
    assert run_again() == []
    cluster.commits["g"] = [(SOURCE, 3)]
    (said,) = run_again()
    assert "group g: t-0 stays at offset 3" in said and cluster.commits["g"] == [(SOURCE, 3)]
    cluster.commits.clear()  # as before the first run, which may have been killed before it set anything
    assert (run_again(), cluster.commits["g"]) == ([], [(SOURCE, 1)])


class _RefusingCluster(MemoryCluster):
    """Does not take a record, as a real one that finds it too large."""

    def send(self, partition: TopicPartition, record: Record) -> None:
        if record.value == b"large":
            raise NotArrivedError(self.bootstrap, partition, "Message size too large", "raise max.message.bytes")
        super().send(partition, record)


def test_a_record_that_the_cluster_does_not_take_is_named_by_its_place_in_the_source(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append([Record(value, timestamp=1000) for value in (b"small", b"large", b"small")])
    with open_catalog([tmp_path / "t-0"]) as catalog:
        cluster = _RefusingCluster({"t": 1})
        replay = Replay(catalog, cluster, LocalFileSystem(), ManualClock(0), tmp_path / "state", map_file=None)
        with pytest.raises(IncompleteError, match=r"\(t-0 offset 1\) did not arrive: .* raise max.message.bytes"):
            replay.run(replay.plan(), lambda _size: None)


def test_a_topic_that_stamps_records_itself_is_named_before_they_lose_their_times(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append([Record(b"value", timestamp=1000)])
    cluster = MemoryCluster({"t": 1})
    cluster.stamping = {"t"}
    with open_catalog([tmp_path / "t-0"]) as catalog:
        replay = Replay(catalog, cluster, LocalFileSystem(), ManualClock(0), tmp_path / "state", map_file=None)
        (said,) = replay.stamped(replay.plan())
    assert said.startswith("t has message.timestamp.type=LogAppendTime")


class _DyingCluster(MemoryCluster):
    """Takes a record of topic `b`, and fails before it reports the delivery."""

    def send(self, partition: TopicPartition, record: Record) -> None:
        if partition.topic == "b":
            self.records.setdefault(partition, []).append(record)
            raise IncompleteError("the process dies")
        super().send(partition, record)


def test_a_partition_that_the_run_after_a_crash_left_out_is_looked_up_by_the_next_one(tmp_path: Path) -> None:
    for topic in ("a", "b"):
        with opened_log(tmp_path / f"{topic}-0") as log:
            log.append([Record(topic.encode(), timestamp=1000)])
    both = [tmp_path / "a-0", tmp_path / "b-0"]
    cluster = _DyingCluster({"a": 1, "b": 1})

    def replayed(paths: list[Path], into: MemoryCluster) -> None:
        with open_catalog(paths) as catalog:
            replay = Replay(catalog, into, LocalFileSystem(), ManualClock(0), tmp_path / "state", map_file=None)
            replay.run(replay.plan(), lambda _size: None)

    with pytest.raises(IncompleteError):
        replayed(both, cluster)
    living = MemoryCluster({"a": 1, "b": 1})
    living.records = cluster.records
    replayed(both[:1], living)
    replayed(both, living)
    assert [len(records) for records in living.records.values()] == [1, 1]
