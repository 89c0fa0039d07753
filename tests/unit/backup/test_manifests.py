"""A manifest that was cut, or has text that no file can have, is refused; `test_hostile_repositories.py` has the other
changes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seglog.errors import CorruptTierError
from seglog.format.snapshot_manifest import Snapshot, format_snapshot, parse_snapshot
from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import machine_files
from seglog_rescue.operations.backup import BackupRequest, backup
from tests.support.command_line import clean_logs
from tests.support.manual_clock import ManualClock


def stored(logs: Path, place: Path) -> Snapshot:
    """The snapshot of a run."""
    clock = ManualClock(1_700_000_000_000)
    return backup(LocalFileSystem(), machine_files(), clock, BackupRequest([logs], place)).snapshot


@pytest.mark.parametrize("end", [0, 1, -1, -40, -200])
def test_a_cut_manifest_is_refused(tmp_path: Path, end: int) -> None:
    snapshot = stored(clean_logs(tmp_path), tmp_path / "backup")
    with pytest.raises(CorruptTierError):
        parse_snapshot(format_snapshot(snapshot)[:end], "manifest", snapshot.id)


def of_path(snapshot: Snapshot, path: str) -> bytes:
    """The manifest of a log directory with another path."""
    (directory,) = snapshot.directories
    return format_snapshot(replace(snapshot, directories=(replace(directory, path=path),)))


def test_text_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    """JSON can escape half of a surrogate pair; a path that is not UTF-8 has other halves (PEP 383)."""
    snapshot = stored(clean_logs(tmp_path), tmp_path / "backup")
    with pytest.raises(CorruptTierError, match=r"path: \"\\ud800\" has a lone surrogate"):
        parse_snapshot(of_path(snapshot, "\ud800"), "manifest", snapshot.id)
    (directory,) = parse_snapshot(of_path(snapshot, "/logs-\udcff"), "manifest", snapshot.id).directories
    assert directory.path == "/logs-\udcff"
