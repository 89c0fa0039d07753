"""Runs whose log directory is gone, places for runs on a disk that fails, and their names."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.repairs.undo.apply import settle_pending
from seglog.repairs.undo.quarantine import PENDING_FILE, new_run, quarantine_of
from seglog.storage.local import LocalFileSystem
from tests.support.fixtures import fixture_copy
from tests.support.log_files import FS
from tests.unit.repairs.undo.test_quarantine import CLOCK, NAME, cut_short, data, files

__all__ = ["data"]


def test_a_marker_that_names_the_run_of_a_missing_log_directory_is_not_obeyed(data: Path, tmp_path: Path) -> None:
    other = fixture_copy(NAME, tmp_path / "other")
    cut_short(data)
    (data / PENDING_FILE).rename(other / PENDING_FILE)
    data.rename(data.with_name("moved away"))
    before = files(other)
    with pytest.raises(RefusedError, match=f"a run in {data}; remove it"):
        settle_pending(FS, other)
    assert files(other) == before


def test_an_error_of_the_disk_while_a_place_is_tried_leaves_no_folder(data: Path) -> None:
    class Failing(LocalFileSystem):
        def rename(self, source: Path, target: Path) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(source))

    before = files(data)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        new_run(Failing(), CLOCK, data)
    assert list(quarantine_of(FS, data).iterdir()) == []
    assert files(data) == before


def test_the_names_of_runs_sort_as_the_runs_do_within_a_second(data: Path) -> None:
    folders = [new_run(FS, CLOCK, data, data.parent / "quarantine") for _ in range(20)]
    assert folders == sorted(folders) and len(set(folders)) == 20
