"""The offset map: runs, translation, and what a kill left in its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.model import TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_rescue.serve.replay.offset_map import HEADER, ReplayOffsetMap

SOURCE, TARGET = TopicPartition("a", 0), TopicPartition("b", 1)


def made(path: Path, size: int = 0) -> ReplayOffsetMap:
    found = ReplayOffsetMap(LocalFileSystem(), path)
    found.load(size)
    return found


def fill(offsets: ReplayOffsetMap, *pairs: tuple[int, int]) -> None:
    for offset, new in pairs:
        offsets.add(SOURCE, offset, TARGET, new)


def test_offsets_that_ascend_together_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "map.csv"
    offsets = made(path)
    fill(offsets, (5, 0), (6, 1), (9, 2), (10, 4))
    assert offsets.save() == path.stat().st_size
    assert path.read_bytes() == HEADER + b"a,0,5,6,b,1,0\na,0,9,9,b,1,2\na,0,10,10,b,1,4\n"


def test_an_offset_is_translated_to_the_first_record_at_it_or_after_it(tmp_path: Path) -> None:
    offsets = made(tmp_path / "map.csv")
    fill(offsets, (5, 0), (6, 1), (9, 2))
    assert [offsets.translated(SOURCE, n) for n in (0, 5, 6, 7, 9, 10)] == [0, 0, 1, 2, 2, None]
    assert offsets.translated(TARGET, 0) is None


def test_a_later_run_takes_what_its_state_counts_and_cuts_off_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "map.csv"
    offsets = made(path)
    fill(offsets, (0, 0), (1, 1))
    counted = offsets.save()
    fill(offsets, (2, 2))
    offsets.save()
    again = made(path, counted)
    assert path.stat().st_size == counted
    fill(again, (2, 7))
    again.save()
    assert [made(path, path.stat().st_size).translated(SOURCE, n) for n in range(3)] == [0, 1, 7]


def test_the_map_of_another_replay_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "map.csv"
    offsets = made(path)
    assert made(path).save() == len(HEADER)  # a run that was killed before its first save began no runs
    fill(offsets, (0, 0), (1, 1))
    offsets.save()
    before = path.read_bytes()
    with pytest.raises(RefusedError, match="is the offset map of another replay"):
        made(path)
    assert path.read_bytes() == before


def test_a_map_that_is_not_what_the_state_counts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="is missing"):
        made(tmp_path / "gone.csv", 10)
    (tmp_path / "other.csv").write_text("something else\n")
    for size in (0, 1000):
        with pytest.raises(RefusedError):
            made(tmp_path / "other.csv", size)
    assert (tmp_path / "other.csv").read_text() == "something else\n"
    path = tmp_path / "bad.csv"
    path.write_bytes(HEADER + b"a,0,x\n")
    with pytest.raises(RefusedError, match="is not an offset map"):
        made(path, path.stat().st_size)
