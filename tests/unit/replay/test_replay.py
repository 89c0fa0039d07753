"""A replay's groups: whose offsets are translated, and how they are set."""

from __future__ import annotations

from pathlib import Path

from seglog.model import Record, TopicPartition
from seglog.operations.groups import Group, GroupPartition
from seglog.replay.replay import Replay, Translated
from seglog.storage.local import LocalFileSystem
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
        replay.commit(found)
    assert found == [Translated("classic", SOURCE, 1, SOURCE, 1), Translated("new", SOURCE, 3, SOURCE, 3)]
    assert cluster.commits == {"classic": [(SOURCE, 1)], "new": [(SOURCE, 3)]}
