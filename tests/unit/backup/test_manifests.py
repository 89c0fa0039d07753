"""A manifest that was cut is refused; `test_hostile_repositories.py` has the other changes."""

from __future__ import annotations

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
