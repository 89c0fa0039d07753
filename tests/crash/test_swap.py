"""Replacing segments, stopped at every change of the file system: old or new, never a mixture.

The process dies between two calls here; what it called before is on disk. Lost and reordered writes are for
the crash file system.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.format.filenames import FileState
from seglog.log.loader import LoadOptions, load_log
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments
from seglog.log.swap import (
    Replacement,
    Settled,
    replace_segments,
    runs_of_neighbours,
    settle_leftovers,
    split_overflowed,
)
from seglog.storage.filesystem import File, FileSystem, OpenMode
from seglog.storage.local import LocalFileSystem
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.log_files import FS, batch, write_segment

CLOCK = FixedClock(5000)


class Died(Exception):
    """The process is gone."""


class MortalFileSystem(LocalFileSystem):
    """Dies at the `life`-th change of a name."""

    def __init__(self, life: int) -> None:
        self.life = life

    def _live(self) -> None:
        if self.life == 0:
            raise Died
        self.life -= 1

    def open(self, path: Path, mode: OpenMode) -> File:  # type: ignore[override]
        if mode in ("create", "create_new"):
            self._live()
        return super().open(path, mode)

    def rename(self, source: Path, target: Path) -> None:
        self._live()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._live()
        super().remove(path)


def prepared(directory: Path) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Segments 0, 20, 40 and 60; output that merges 0 with 20 and 40 with nothing; before and after."""
    for base in (0, 20, 40, 60):
        write_segment(directory, base, batch(base, 10), batch(base + 10, 10), index_interval_bytes=0)
        (directory / f"{base:020d}.snapshot").write_bytes(bytes.fromhex("000148674bc700000000"))
    old = contents(directory)
    write_segment(directory, 0, batch(0, 10, value=b"new"), batch(30, 10, value=b"new"), state=FileState.CLEANED)
    write_segment(directory, 40, batch(50, 10, value=b"new"), state=FileState.CLEANED)
    merged = batch(0, 10, value=b"new") + batch(30, 10, value=b"new")
    return old, {0: merged, 40: batch(50, 10, value=b"new"), 60: old[60]}


def prepared_swapped(fs: FileSystem, directory: Path) -> None:
    live = [LogSegment(fs, directory, base) for base in (0, 20, 40, 60)]
    new = [LogSegment(fs, directory, base, state=FileState.CLEANED) for base in (0, 40)]
    replace_segments(LogSegments(live), [Replacement(new, live[:3])], ProducerStateManager(fs, directory))


def came_to_its_end(swap: Callable[[FileSystem, Path], object], directory: Path, life: int) -> bool:
    """Whether the swap was done before its process died at the `life`-th change."""
    try:
        swap(MortalFileSystem(life), directory)
    except Died:
        return False
    return True


def killed_everywhere(
    source: Path, swap: Callable[[FileSystem, Path], None], old: dict[int, bytes], new: dict[int, bytes]
) -> Iterator[tuple[Path, Settled]]:
    """Copies of `source`, in each of which the swap died at another change and was settled, until one came to its end.

    Each holds the old segments or the new ones, and both happen.
    """
    outcomes, life, finished = set(), 0, False
    while not finished:
        directory = source.with_name(f"after {life} changes")
        shutil.copytree(source, directory)
        finished = came_to_its_end(swap, directory, life)
        settled = settle_leftovers(FS, directory)
        found = contents(directory)
        assert found in (old, new), f"{directory.name}: {sorted(found)}"
        outcomes.add(found == new)
        yield directory, settled
        life += 1
    assert outcomes == {True, False}


def neighbours(directory: Path) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Segments 0 to 100, of which each pair becomes one, the last pair two, and the end goes; before and after."""
    for base in range(0, 120, 20):
        write_segment(directory, base, batch(base, 10), batch(base + 10, 10), index_interval_bytes=0)
    old = contents(directory)
    new = {base: batch(base, 10, value=b"new") for base in (0, 40, 80, 100)}
    for base, data in new.items():
        write_segment(directory, base, data, state=FileState.CLEANED)
    return old, new


def neighbours_swapped(fs: FileSystem, directory: Path) -> None:
    live = [LogSegment(fs, directory, base) for base in range(0, 120, 20)]
    made = {base: LogSegment(fs, directory, base, state=FileState.CLEANED) for base in (0, 40, 80, 100)}
    run = [Replacement([made[0]], live[:2]), Replacement([made[40]], live[2:4])]
    run.append(Replacement([made[80], made[100]], live[4:]))
    replace_segments(LogSegments(live), run, ProducerStateManager(fs, directory))


def cut_everywhere(
    directory: Path, swap: Callable[[FileSystem, Path], None], old: dict[int, bytes], new: dict[int, bytes]
) -> CrashFileSystem:
    """Swaps with the power cut at each change, until one swap comes to its end: over that one's file system."""
    outcomes, mutation = set(), 0
    while True:
        fs, finished = CrashFileSystem.of(directory), False
        fs.cut_at(mutation)
        with suppress(PowerCut):
            swap(fs, directory)
            finished = True
        for seed in range(4):
            survivor = fs.survivor(seed)
            settle_leftovers(survivor, directory)
            files = survivor.contents(directory)
            found = {int(name[:20]): data for name, data in files.items() if name.endswith(".log")}
            assert found in (old, new), f"after {mutation} changes, seed {seed}: {sorted(files)}"
            outcomes.add(found == new)
        if finished:
            assert outcomes == {True, False}
            return fs
        mutation += 1


def contents(directory: Path) -> dict[int, bytes]:
    return {int(path.name[:20]): path.read_bytes() for path in sorted(directory.glob("*.log"))}


def test_a_crash_anywhere_leaves_the_old_segments_or_the_new(tmp_path: Path) -> None:
    old, new = prepared(tmp_path / "source")
    lives = 0
    for directory, _ in killed_everywhere(tmp_path / "source", prepared_swapped, old, new):
        load_log(FS, directory, CLOCK, LoadOptions(clean_shutdown=False)).segments.close(True)
        assert not [path for path in directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
        lives += 1
    assert lives > 15


def test_a_crash_anywhere_leaves_all_neighbours_old_or_all_of_them_new(tmp_path: Path) -> None:
    old, new = neighbours(tmp_path / "source")
    for directory, settled in killed_everywhere(tmp_path / "source", neighbours_swapped, old, new):
        assert not settled.replaced, f"{directory.name}: taken for a loss"


def test_neighbours_wait_for_the_disk_together_and_a_power_cut_leaves_all_old_or_all_new(tmp_path: Path) -> None:
    old, new = neighbours(tmp_path)
    fs = cut_everywhere(tmp_path, neighbours_swapped, old, new)
    # names, twice for the replacement that is two segments, the others together, old ones, new ones
    assert sum(step.startswith("sync directory") for step in fs.trace) == 6


def test_replacements_with_a_segment_between_them_are_swapped_one_after_the_other(tmp_path: Path) -> None:
    live = [LogSegment(FS, tmp_path, base) for base in range(40)]
    replacements = [Replacement([], live[n : n + 1]) for n in range(40) if n != 5]
    runs = [[each.old[0].base_offset for each in run] for run in runs_of_neighbours(LogSegments(live), replacements)]
    assert runs == [list(range(5)), list(range(6, 22)), list(range(22, 38)), [38, 39]]


def test_a_crash_while_finishing_is_finished_the_next_time(tmp_path: Path) -> None:
    source = tmp_path / "source"
    old, new = prepared(source)
    outcomes: Counter[bool] = Counter()
    for life in range(9):
        swapping = tmp_path / f"s-{life}"
        shutil.copytree(source, swapping)
        assert not came_to_its_end(prepared_swapped, swapping, life)
        whole = tmp_path / f"w-{life}"
        shutil.copytree(swapping, whole)
        settle_leftovers(FS, whole)
        expected, again, finished = contents(whole), 0, False
        assert expected in (old, new)
        while not finished:
            directory = tmp_path / f"t-{life}-{again}"
            shutil.copytree(swapping, directory)
            finished = came_to_its_end(settle_leftovers, directory, again)
            if not finished:
                settle_leftovers(FS, directory)
                outcomes[expected == new] += 1
            assert contents(directory) == expected, f"after {life} changes, and {again} more"
            again += 1
    assert min(outcomes[False], outcomes[True]) > 3, outcomes


def test_replaced_files_are_durably_gone_before_others_take_their_names(tmp_path: Path) -> None:
    calls: list[str] = []

    class Recording(LocalFileSystem):
        def remove(self, path: Path) -> None:
            calls.append("remove")
            super().remove(path)

        def rename(self, source: Path, target: Path) -> None:
            calls.append("rename")
            super().rename(source, target)

        def sync_directory(self, path: Path) -> None:
            calls.append("sync")
            super().sync_directory(path)

    for base in (0, 20):
        write_segment(tmp_path, base, batch(base, 10), batch(base + 10, 10))
    write_segment(tmp_path, 0, batch(0, 10, value=b"new"), batch(30, 10, value=b"new"), state=FileState.SWAP)
    settle_leftovers(Recording(), tmp_path)
    assert [call for call, _ in groupby(calls)] == ["remove", "sync", "rename", "sync"]
    assert set(contents(tmp_path)) == {0}


@pytest.mark.parametrize("life", range(24))
def test_a_crash_while_splitting_loses_nothing(tmp_path: Path, life: int) -> None:
    parts = [batch(0, 10), batch(2**31 - 5, 10), batch(2**31 + 10, 10)]
    write_segment(tmp_path, 0, parts[0])
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(parts))
    fs = MortalFileSystem(life)
    segment = LogSegment(fs, tmp_path, 0)
    try:
        split_overflowed(LogSegments([segment]), segment)
    except Died:
        assert life < 21
    loaded = load_log(FS, tmp_path, CLOCK, LoadOptions(clean_shutdown=False))
    assert b"".join(contents(tmp_path).values()) == b"".join(parts)
    assert loaded.log_end_offset == 2**31 + 20


def test_a_power_cut_anywhere_leaves_the_old_segments_or_the_new(tmp_path: Path) -> None:
    old, new = prepared(tmp_path)
    cut_everywhere(tmp_path, prepared_swapped, old, new)
