"""Copies compared by bytes, batches and view."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.look.inspect.diff import Difference, diff_batches, diff_bytes
from seglog.look.inspect.diff_view import ViewOptions, diff_view
from seglog.scan.listing import list_partition
from seglog.scan.selection import EVERYTHING, Selection
from tests.support.log_files import FS, batch, marker, transactional, write_segment
from tests.support.naive import NaiveRecord, batch_v2

NAME = f"{0:020d}.log"


def compared(level: str, *logs: Path, **options: Any) -> list[Difference]:
    copies = [list_partition(FS, log) for log in logs]
    if level == "view":
        return list(diff_view(FS, copies, ViewOptions(**options)))
    return list(diff_bytes(FS, copies) if level == "bytes" else diff_batches(FS, copies, EVERYTHING))


def keyed(offset: int, **values: bytes | None) -> bytes:
    return batch_v2(offset, [NaiveRecord(i, 0, k.encode(), v) for i, (k, v) in enumerate(values.items())])


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two copies of a log of ten batches of two records."""
    write_segment(tmp_path / "a" / "t-0", 0, *(batch(2 * i, 2) for i in range(10)))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    return tmp_path / "a" / "t-0", tmp_path / "b" / "t-0"


def flip(log: Path, number: int, at: int = 70) -> int:
    """Flips a bit of the n-th of ten equal batches; returns where."""
    data = bytearray((log / NAME).read_bytes())
    place = number * (len(data) // 10) + at
    data[place] ^= 1
    (log / NAME).write_bytes(data)
    return place


@pytest.mark.parametrize("level", ["bytes", "batches", "view"])
def test_copies_do_not_differ(pair: tuple[Path, Path], level: str) -> None:
    assert compared(level, *pair) == []


def test_checksums_tell_which_copy_is_right(pair: tuple[Path, Path]) -> None:
    place = flip(pair[1], 4)
    (found,) = compared("batches", *pair)
    assert (found.kind, found.first_offset, found.last_offset) == ("missing", 8, 9)
    assert (found.has, found.right) == ((True, False), (0,))
    (found,) = compared("bytes", *pair)
    assert (found.kind, found.position, found.count, found.right) == ("differs", place, 1, (0,))


def test_damage_to_a_size_is_damage_too(pair: tuple[Path, Path]) -> None:
    flip(pair[0], 4, 9)
    (found,) = compared("batches", *pair)
    assert (found.first_offset, found.last_offset, found.right) == (8, 9, (1,))


def test_of_three_copies_two_are_right(pair: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(pair[0], tmp_path / "c" / "t-0")
    flip(tmp_path / "c" / "t-0", 0)
    (found,) = compared("batches", *pair, tmp_path / "c" / "t-0")
    assert (found.has, found.right) == ((True, True, False), (0, 1))


def test_damage_in_every_copy_is_reported(pair: tuple[Path, Path]) -> None:
    for log in pair:
        flip(log, 4)
    (found,) = compared("batches", *pair)
    assert (found.kind, found.first_offset, found.last_offset, found.right) == ("damaged", 8, 9, ())


def test_whole_batches_that_differ_tell_nothing(tmp_path: Path) -> None:
    write_segment(tmp_path / "a" / "t-0", 0, batch(0, 2), batch(2, 2))
    write_segment(tmp_path / "b" / "t-0", 0, batch(0, 2), batch(2, 2, value=b"other"))
    (found,) = compared("batches", tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    assert (found.kind, found.first_offset, found.right) == ("differs", 2, None)
    assert "crc" in found.message


def test_where_segments_were_rolled_is_no_difference_of_batches(tmp_path: Path) -> None:
    whole, rolled = tmp_path / "a" / "t-0", tmp_path / "b" / "t-0"
    write_segment(whole, 0, batch(0), batch(1), batch(2))
    write_segment(rolled, 0, batch(0))
    write_segment(rolled, 1, batch(1), batch(2))
    assert compared("batches", whole, rolled) == compared("view", whole, rolled) == []
    assert [found.kind for found in compared("bytes", whole, rolled)] == ["differs", "missing"]


def test_neighbouring_differences_are_one_row(pair: tuple[Path, Path]) -> None:
    path = pair[1] / NAME
    data = path.read_bytes()
    path.write_bytes(data[: 6 * len(data) // 10])
    (found,) = compared("batches", *pair)
    assert (found.first_offset, found.last_offset, found.count, found.right) == (12, 19, 4, None)


def test_the_view_is_what_compaction_must_keep(tmp_path: Path) -> None:
    write_segment(tmp_path / "a" / "t-0", 0, keyed(0, a=b"1", b=b"1"), keyed(2, a=b"2", c=b"1"), keyed(4, c=None))
    write_segment(tmp_path / "b" / "t-0", 0, batch_v2(1, [NaiveRecord(0, 0, b"b", b"1")]), keyed(2, a=b"2"))
    logs = tmp_path / "a" / "t-0", tmp_path / "b" / "t-0"
    assert compared("view", *logs) == []
    assert compared("batches", *logs) != []


def test_a_lost_key_and_an_old_value(tmp_path: Path) -> None:
    write_segment(tmp_path / "a" / "t-0", 0, keyed(0, a=b"1", b=b"1"), keyed(2, a=b"2"))
    write_segment(tmp_path / "b" / "t-0", 0, keyed(0, a=b"1"))
    lost, old = compared("view", tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    assert (lost.kind, lost.key, lost.offsets, lost.has) == ("missing", b"b", (1, None), (True, False))
    assert (old.kind, old.key, old.offsets) == ("differs", b"a", (2, 0))
    assert compared("view", tmp_path / "a" / "t-0", tmp_path / "b" / "t-0", selection=Selection(end_offset=1)) == []


def test_aborted_and_open_records_are_not_in_the_view(tmp_path: Path) -> None:
    a, b = tmp_path / "a" / "t-0", tmp_path / "b" / "t-0"
    write_segment(a, 0, transactional(0, 7, 0), marker(1, 7, commit=False), transactional(2, 8, 0))
    write_segment(b, 0, marker(1, 7, commit=False))
    assert compared("view", a, b) == []
    write_segment(a, 3, marker(3, 8, commit=True))
    (found,) = compared("view", a, b)
    assert (found.key, found.offsets) == (b"k", (2, None))


@pytest.mark.parametrize("memory_bytes", [1 << 30, 4096])
def test_any_number_of_passes_finds_the_same(tmp_path: Path, memory_bytes: int) -> None:
    rng = random.Random(3)
    views: list[dict[str, bytes]] = []
    for name in ("a", "b"):
        batches, view = [], {}
        for offset in range(0, 600, 3):
            values = {f"k{rng.randrange(90)}": b"%d" % rng.randrange(2) for _ in range(9)}
            values = dict(list(values.items())[:3])
            view.update(values)
            batches.append(keyed(offset, **values))
        write_segment(tmp_path / name / "t-0", 0, *batches)
        views.append(view)
    wanted = {key for key in views[0].keys() | views[1].keys() if views[0].get(key) != views[1].get(key)}
    found = compared("view", tmp_path / "a" / "t-0", tmp_path / "b" / "t-0", memory_bytes=memory_bytes)
    assert {(one.key or b"").decode() for one in found} == wanted
    assert len(found) == len(wanted) > 10
