"""What lies in a log directory that a broker goes on without stops no start, and is told of as a danger."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seglog.verification.codes import Severity
from tests.support.broken.wounded_starts import METADATA, PARTITION, half, made, sound
from tests.unit.rescue.doctor.test_doctor import diagnose

UNIDENTIFIED, FAILED = "meta.properties", "recovery-point-offset-checkpoint"


def directories(root: Path, damaged: str, wound: str) -> list[Path]:
    logs, other = made(sound("two"), root)
    half(other / damaged)
    if wound == "lost+found":
        (other / wound).mkdir()
    else:
        shutil.copytree(logs / wound, other / wound)
    return [logs, other]


@pytest.mark.parametrize("damaged", [UNIDENTIFIED, FAILED])
@pytest.mark.parametrize("wound", ["lost+found", PARTITION, METADATA])
def test_blockers_in_a_directory_that_is_offline_are_dangers(damaged: str, wound: str, tmp_path: Path) -> None:
    rows = diagnose(*directories(tmp_path, damaged, wound))
    met = [row for row in rows if row.gravity is Severity.BLOCKER]
    not_met = [row for row in rows if row.file == wound and row.broker.startswith("Does not meet it")]
    if damaged == FAILED and wound == METADATA:  # a broker looks for a second metadata log before it loads anything
        assert [row.code for row in met] == ["CHECKPOINT_UNREADABLE", "DUPLICATE_PARTITION"] and not not_met
    else:
        assert len(met) == 1 and met[0].file == damaged and met[0].offline
        assert [row.gravity for row in not_met] == [Severity.DANGER]


@pytest.mark.parametrize("damaged", [UNIDENTIFIED, FAILED])
def test_a_partition_in_the_first_directory_too_is_the_one_that_is_loaded(damaged: str, tmp_path: Path) -> None:
    logs, other = directories(tmp_path, damaged, PARTITION)
    duplicates = [row for row in diagnose(other, logs) if row.code == "DUPLICATE_PARTITION"]
    assert [row.gravity for row in duplicates] == [Severity.DANGER]


def test_a_blocker_beside_the_only_metadata_log_stays_one(tmp_path: Path) -> None:
    logs, other = made(sound("two"), tmp_path)
    half(logs / FAILED)
    (logs / "lost+found").mkdir()
    rows = [row for row in diagnose(logs, other) if row.file == "lost+found"]
    assert [row.gravity for row in rows] == [Severity.BLOCKER]
