"""A replay whose state or offset map cannot be written: each record arrives once, and the map knows where each is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog_rescue.operations.groups import Group, GroupPartition
from seglog_rescue.serve.replay import replay as replays
from seglog_rescue.serve.replay.offset_map import HEADER, ReplayOffsetMap
from seglog_rescue.serve.replay.replay import Replay
from tests.support.faulty_filesystem import FAULTS, Faults, FaultyFileSystem, Killed, calls_of, moments
from tests.support.log_files import batch, write_segment
from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster
from tests.support.serving import open_catalog

FS = LocalFileSystem()
SOURCE = TopicPartition("t", 0)
OFFSETS = (0, 1, 4, 7, 8, 12, 20, 21, 30)


@pytest.fixture(autouse=True)
def save_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "SAVE_SECONDS", 0.0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A cleaned log: its offsets have gaps, so that the map has several lines."""
    write_segment(tmp_path / "t-0", 0, *(batch(offset, timestamp=offset) for offset in OFFSETS))
    return tmp_path / "t-0"


def replayed(fs: FileSystem, source: Path, cluster: MemoryCluster, place: Path) -> Replay:
    with open_catalog([source]) as catalog:
        replay = Replay(catalog, cluster, fs, ManualClock(0), place / "state", map_file=place / "map.csv")
        replay.run(replay.plan(), lambda _size: None)
    return replay


def emptied(place: Path) -> Path:
    place.mkdir(exist_ok=True)
    for path in place.iterdir():
        path.unlink()
    return place


@pytest.mark.parametrize("kind", FAULTS)
def test_a_replay_that_cannot_save_is_gone_on_with_and_each_record_is_there_once(
    source: Path, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "place"
    calls = calls_of(lambda fs: replayed(fs, source, MemoryCluster({"t": 1}), emptied(place)))
    assert calls > 3 * len(OFFSETS)
    for at in moments(calls, kind):
        cluster, faults = MemoryCluster({"t": 1}), Faults(at, kind)
        with suppress(OSError, Killed):
            replayed(FaultyFileSystem(faults), source, cluster, emptied(place))
        replay = replayed(FS, source, cluster, place)
        times = [record.timestamp for record in cluster.records[SOURCE]]
        assert times == list(OFFSETS), f"{kind} at {at}: {faults.call}"
        assert replay.state.partitions[SOURCE].records == len(OFFSETS)
        known = ReplayOffsetMap(FS, place / "map.csv")
        known.load(replay.state.map_bytes)
        found = [known.translated(SOURCE, offset) for offset in OFFSETS]
        assert found == list(range(len(OFFSETS))), f"{kind} at {at}: {faults.call}"


@pytest.mark.parametrize("size", [0, 1, 20, len(HEADER) - 1])
def test_a_map_whose_first_line_was_cut_short_is_begun_again(tmp_path: Path, size: int) -> None:
    path = tmp_path / "map.csv"
    path.write_bytes(HEADER[:size])
    ReplayOffsetMap(FS, path).load(0)
    assert path.read_bytes() == HEADER


@pytest.mark.parametrize("first", ["with a map", "without one"])
def test_a_replay_has_its_map_from_the_beginning_or_none(source: Path, tmp_path: Path, first: str) -> None:
    """Offsets that the map lacks would be translated to those of later records, which groups would then skip to."""
    cluster, maps = MemoryCluster({"t": 1}), (tmp_path / "map.csv", None)
    for number, path in enumerate(maps if first == "with a map" else reversed(maps)):
        with open_catalog([source]) as catalog:
            replay = Replay(catalog, cluster, FS, ManualClock(0), tmp_path / "state", map_file=path)
            if number == 0:
                replay.run(replay.plan(), lambda _size: None)
                continue
            with pytest.raises(RefusedError, match=r"--map"):
                replay.plan()
    assert len(cluster.records[SOURCE]) == len(OFFSETS)


@pytest.mark.slow
def test_groups_are_translated_after_a_save_that_failed_once(source: Path, tmp_path: Path) -> None:
    """The error of one save ends the run; the last save of that run must not count what the first could not write."""
    calls = calls_of(lambda fs: replayed(fs, source, MemoryCluster({"t": 1}), emptied(tmp_path / "place")))
    group = Group("g", "classic", "Empty", 0, (), (GroupPartition(SOURCE, 4, None, None),))
    for at in range(calls):
        cluster = MemoryCluster({"t": 1})
        with suppress(OSError):
            replayed(FaultyFileSystem(Faults(at, "error")), source, cluster, emptied(tmp_path / "place"))
        found = list(replayed(FS, source, cluster, tmp_path / "place").translate([group]))
        assert [one.new_offset for one in found] == [2], at
