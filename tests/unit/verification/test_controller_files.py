"""`verify` on a controller's own files: its vote, the snapshots of its log, and `bootstrap.checkpoint`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seglog.configuration.metadata_log import newest_snapshot
from seglog.scan.listing import resolve_paths
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.local import LocalFileSystem
from seglog.verification.codes import Severity
from seglog.verification.verify import Level, Verification, VerifyOptions
from tests.support.broken.wounded_starts import EVERY_FILE, METADATA, SNAPSHOT_OFFSET, made, snapshot_name, sound
from tests.support.manual_clock import ManualClock

VOTE = f"{METADATA}/quorum-state"
SNAPSHOT = f"{METADATA}/{snapshot_name(SNAPSHOT_OFFSET, 1)}"
BOOTSTRAP = "bootstrap.checkpoint"
DAMAGE = [name for name in EVERY_FILE if name != "missing"]


def found(logs: Path) -> list[tuple[str, str, str, Severity]]:
    """Partition, file, code and severity of each warning and error."""
    fs = LocalFileSystem()
    rows = Verification(fs, resolve_paths(fs, [logs]), VerifyOptions(level=Level.INDEX), ManualClock())
    return [(row.partition, row.file, row.code, row.severity) for row in rows if row.severity is not Severity.INFO]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return made(sound("snapshot"), tmp_path)[0]


def test_sound_files_of_a_controller_are_good(logs: Path) -> None:
    assert newest_snapshot(LocalFileSystem(), logs / METADATA, None) is not None
    assert not found(logs)


@pytest.mark.parametrize("named", ["", METADATA, f"{METADATA}/{snapshot_name(0, 0)}"])
def test_nothing_is_wrong_with_the_voters_of_a_dynamic_quorum(named: str, tmp_path: Path) -> None:
    (logs,) = made(sound("dynamic"), tmp_path)
    rows = Verification(
        LocalFileSystem(), resolve_paths(LocalFileSystem(), [logs / named]), VerifyOptions(), ManualClock()
    )
    assert not [row for row in rows if row.file.endswith(".checkpoint")]


@pytest.mark.parametrize("wound", DAMAGE)
@pytest.mark.parametrize(
    ("file", "code"),
    [
        (VOTE, "CHECKPOINT_CORRUPT"),
        (SNAPSHOT, "METADATA_SNAPSHOT_CORRUPT"),
        (BOOTSTRAP, "METADATA_SNAPSHOT_CORRUPT"),
    ],
)
def test_a_wounded_file_of_a_controller_is_an_error(logs: Path, file: str, code: str, wound: str) -> None:
    EVERY_FILE[wound](logs / file)
    partition = METADATA if "/" in file else ""
    assert found(logs) == [(partition, Path(file).name, code, Severity.ERROR)]


def test_a_snapshot_that_lost_its_last_batches_is_an_error(logs: Path) -> None:
    path = logs / SNAPSHOT
    positions = [int(at) for chunk in SegmentScan(LocalFileSystem(), path) for at in chunk.batches["position"]]
    os.truncate(path, positions[-1])
    assert found(logs) == [(METADATA, path.name, "METADATA_SNAPSHOT_CORRUPT", Severity.ERROR)]
