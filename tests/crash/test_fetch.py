"""A fetch that is cut at any change: no partition, or a whole one; and run again, a whole one."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog_stores.operations.fetch import fetch
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.log_files import FS, batch, files_of, write_segment


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "t-0"
    write_segment(directory, 0, batch(0, 3), batch(3, 3))
    write_segment(directory, 6, batch(6, 3))
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    return directory


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A partition of a log directory in memory; its lock is one of the machine's."""
    (tmp_path / "fetched").mkdir()
    return tmp_path / "fetched" / "t-0"


def empty(target: Path) -> CrashFileSystem:
    """A machine with an empty log directory."""
    fs = CrashFileSystem()
    fs.make_directory(target.parent, parents=True)
    fs.sync_all()
    return fs


def contents(fs: CrashFileSystem, directory: Path) -> dict[str, bytes] | None:
    if fs.status(directory) is None:
        return None
    return {name: fs.read_bytes(directory / name) for name in fs.list(directory)}


def test_a_fetch_cut_at_every_change_continues_and_completes(source: Path, target: Path) -> None:
    whole, fs = files_of(source), empty(target)
    first = fs.mutations
    fetch(FS, source, fs, target)
    assert contents(fs, target) == whole and fs.list(target.parent) == ["t-0"]
    kept = 0
    for cut in range(fs.mutations - first):
        cutting = empty(target)
        cutting.cut_at(cut, fraction=0.5)
        with pytest.raises(PowerCut):
            fetch(FS, source, cutting, target)
        survivor = cutting.survivor(seed=cut)
        at = f"cut at {cut}: {cutting.trace[-1]}"
        found = contents(survivor, target)
        assert found in (None, whole), at
        kept += fetch(FS, source, survivor, target).kept > 0
        assert contents(survivor, target) == whole, at
        assert survivor.list(target.parent) == ["t-0"], at
    assert kept > 10


def test_forty_cuts_in_a_row_end_in_a_complete_partition(source: Path, target: Path) -> None:
    fs, cuts = empty(target), 0
    for cuts in range(40):
        fs.cut_at(8 + cuts % 5, fraction=0.5)
        try:
            fetch(FS, source, fs, target)
        except PowerCut:
            assert contents(fs.survivor(seed=cuts), target) in (None, files_of(source))
            fs = fs.survivor(seed=cuts)
            continue
        break
    assert cuts >= 4 and contents(fs, target) == files_of(source)
