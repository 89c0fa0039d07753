"""Retention and recovery with the power cut at every change: no moment shows a log with a hole in it.

`SEGLOG_EFFORT=8` tries so many of the states that each cut can leave.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.log.segment import LogSegment
from seglog.operations.keeping import Keeper
from seglog.operations.recover import RecoveryOptions, recover
from seglog.operations.retain import RetentionRules, retain_targets
from seglog.repairs.undo.apply import settle_pending
from seglog.scan.listing import list_partition, resolve_paths
from seglog.scan.log_walk import is_whole
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from tests.support import effort
from tests.support.compacted_directories import Topics
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.log_files import batch, write_segment

pytestmark = pytest.mark.slow  # the power is cut at every change

CLOCK = FixedClock(50_000)
SEGMENTS = 4
CHANCES = effort.tries(1)
TOPICS = Topics(cleanup_policy="delete", retention_bytes=400)
Work = Callable[[FileSystem, Path], object]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    for base in range(0, 10 * SEGMENTS, 10):
        write_segment(folder / "t-0", base, batch(base, 5), batch(base + 5, 5), index_interval_bytes=0)
    (folder / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    return folder


def cut_anywhere(
    root: Path, work: Work, kind: type[CrashFileSystem] = CrashFileSystem
) -> list[tuple[str, CrashFileSystem]]:
    """What is left after `work` was cut at each of its changes, by several chances; the last one was not cut."""
    left: list[tuple[str, CrashFileSystem]] = []
    mutation = 0
    while True:
        fs = kind.of(root.parent)
        fs.cut_at(mutation)
        try:
            work(fs, root)
        except PowerCut:
            for seed in range(mutation, mutation + CHANCES):
                left.append((f"cut at {mutation}: {fs.trace[-1]}, seed {seed}", fs.survivor(seed)))
            mutation += 1
            continue
        fs.sync_all()
        return [*left, ("whole", fs)]


def bounds(fs: FileSystem, directory: Path) -> list[tuple[int, int, bool]]:
    """Base, end, and wholeness of each segment."""
    found = list_partition(fs, directory).segments
    return [
        (each.base_offset, LogSegment(fs, directory, each.base_offset).read_next_offset()[0], is_whole(fs, each.log))
        for each in found
    ]


def require_no_hole(fs: FileSystem, directory: Path, when: str) -> None:
    """Each segment ends where the next begins, or has damage, at which whatever reads the log stops."""
    for (_, end, whole), (base, _, _) in pairwise(bounds(fs, directory)):
        assert end == base or not whole, when


def retaining(fs: FileSystem, logs: Path) -> object:
    targets = resolve_paths(LocalFileSystem(), [logs / "t-0"])
    return list(retain_targets(fs, targets, lambda _: TOPICS, CLOCK, RetentionRules()))


def recovering(fs: FileSystem, logs: Path) -> object:
    settle_pending(fs, logs)
    (target,) = resolve_paths(LocalFileSystem(), [logs])
    return list(recover(fs, CLOCK, target, lambda _: LogConfig(), RecoveryOptions()))


def recovering_with_care(fs: FileSystem, logs: Path) -> object:
    settle_pending(fs, logs)
    (target,) = resolve_paths(LocalFileSystem(), [logs])
    keeper = Keeper(fs, CLOCK, lambda _: LogConfig(), "recover")
    return list(recover(fs, CLOCK, target, lambda _: LogConfig(), RecoveryOptions(keeper=keeper)))


def test_retention_cut_anywhere_leaves_the_end_of_the_log_without_a_hole(root: Path) -> None:
    *cut, (_, whole) = cut_anywhere(root, retaining)
    wanted = bounds(whole, root / "t-0")
    assert 1 < len(wanted) <= SEGMENTS - 2
    starts = set()
    for when, fs in cut:
        found = bounds(fs, root / "t-0")
        assert [base for base, _, _ in found] == list(range(found[0][0], 10 * SEGMENTS, 10)), when
        starts.add(found[0][0])
        retaining(fs, root)
        assert bounds(fs, root / "t-0") == wanted, when
    assert starts == set(range(0, wanted[0][0] + 1, 10))


class FullDisk(CrashFileSystem):
    """No byte is free, until so many live segments are left that some must have gone."""

    def free_bytes(self, path: Path) -> int:
        return 0 if len(list_partition(self, path / "t-0").segments) == SEGMENTS else 1 << 40


def test_retention_on_a_full_disk_cut_anywhere_leaves_the_end_of_the_log_without_a_hole(root: Path) -> None:
    (root / "meta.properties").write_text("version=1\n")
    expected = CrashFileSystem.of(root.parent)
    retaining(expected, root)
    wanted = bounds(expected, root / "t-0")
    *cut, (_, whole) = cut_anywhere(root, retaining, FullDisk)
    assert bounds(whole, root / "t-0") == wanted
    assert not any(name.endswith(".deleted") for name in whole.list(root / "t-0"))  # they went at once
    starts = set()
    for when, fs in cut:
        found = bounds(fs, root / "t-0")
        assert [base for base, _, _ in found] == list(range(found[0][0], 10 * SEGMENTS, 10)), when
        assert all(whole for _, _, whole in found), when
        starts.add(found[0][0])
        retaining(fs, root)
        assert bounds(fs, root / "t-0") == wanted, when
    assert starts == set(range(0, wanted[0][0] + 1, 10))


@pytest.mark.parametrize("work", [recovering, recovering_with_care])
def test_a_recovery_cut_anywhere_leaves_no_hole_and_the_next_one_ends_as_ever(root: Path, work: Work) -> None:
    damaged = root / "t-0" / f"{10:020d}.log"
    data = bytearray(damaged.read_bytes())
    data[-3] ^= 1
    damaged.write_bytes(data)
    *cut, (_, whole) = cut_anywhere(root, work)
    wanted = {name: data for name, data in whole.contents(root / "t-0").items() if not name.endswith(".deleted")}
    assert bounds(whole, root / "t-0") == [(0, 10, True), (10, 15, True)]
    states = set()
    for when, fs in cut:
        require_no_hole(fs, root / "t-0", when)
        states.add(tuple(bounds(fs, root / "t-0")))
        work(fs, root)
        left = {name: data for name, data in fs.contents(root / "t-0").items() if not name.endswith(".deleted")}
        assert left == wanted, when
    assert len(states) >= SEGMENTS - 1
