"""Giant partitions are verified in parts, by several tasks; the report is that of one machine, damage included."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from seglog.scan.listing import resolve_paths
from seglog.storage.filesystem import FileSystem
from seglog.verification.verify import Level, Verification, VerifyOptions, VerifySummary
from seglog_ask.spark import jobs, tasks
from seglog_stores.tiers.view import see_tiers
from tests.support.fixtures import KAFKA
from tests.support.log_files import FS
from tests.support.manual_clock import ManualClock
from tests.support.tiers import tier_segments, write_aiven

SPARK: Any = None
OPTIONS = VerifyOptions(level=Level.SEMANTIC, jobs=1)
DIRECTORIES = sorted({path.parent.parent for path in KAFKA.rglob("*.log")})


@pytest.fixture(autouse=True)
def tasks_run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tasks of each run, in this process with pickled inputs and outputs. A task's share is 3 KB."""
    counted: list[int] = []

    def run(
        _spark: object, items: Sequence[Any], body: Callable[[Any], Any], _watch: object = None, **_: object
    ) -> list[Any]:
        counted.append(len(items))
        there, work = pickle.loads(pickle.dumps((body, list(items))))
        return [pickle.loads(pickle.dumps(there(item))) for item in work]

    monkeypatch.setattr(jobs, "run_tasks", run)
    monkeypatch.setattr(jobs, "run_tasks", run)
    monkeypatch.setattr(jobs, "cores_of", lambda _: 1000)
    monkeypatch.setattr(jobs, "GIANT_BYTES", 3000)
    monkeypatch.setattr(jobs, "PART_BYTES", 3000)
    monkeypatch.setattr(tasks, "_LEAST_TASK_BYTES", 3000)
    monkeypatch.setattr(tasks, "_OPENING_BYTES", 0)
    monkeypatch.setattr(tasks, "_TASKS_A_CORE", 8)
    return counted


def alone(fs: FileSystem, path: Path) -> tuple[tuple[Any, ...], VerifySummary]:
    verification = Verification(fs, resolve_paths(fs, [path]), OPTIONS, ManualClock(1_700_000_000_000))
    return tuple(verification), verification.summary


def in_tasks(fs: FileSystem, path: Path, seen: FileSystem | None = None) -> tuple[tuple[Any, ...], VerifySummary]:
    report = jobs.verify(SPARK, resolve_paths(fs, [path]), OPTIONS, seen=seen)
    return report.findings, report.summary


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: str(path.relative_to(KAFKA)))
def test_all_that_brokers_wrote_is_verified_in_parts_as_on_one_machine(directory: Path, tasks_run: list[int]) -> None:
    assert in_tasks(FS, directory) == alone(FS, directory)
    assert len(tasks_run) == 2 and tasks_run[0] > len(list(directory.rglob("*.log"))) // 2


@pytest.mark.parametrize("place", [0.1, 0.5, 0.98])
def test_damage_of_a_part_is_found_as_on_one_machine(tmp_path: Path, place: float, tasks_run: list[int]) -> None:
    shutil.copytree(KAFKA / "4.3.0" / "clean", tmp_path / "logs")
    for log in (tmp_path / "logs").glob("*/*.log"):
        data = bytearray(log.read_bytes())
        if len(data) > 9000:
            data[int(len(data) * place)] ^= 0xFF
            log.write_bytes(data)
    found = in_tasks(FS, tmp_path / "logs")
    assert found == alone(FS, tmp_path / "logs")
    assert found[1].damaged and len(tasks_run) == 2
    log = max((tmp_path / "logs").glob("*/*.log"), key=lambda path: path.stat().st_size)
    assert in_tasks(FS, log) == alone(FS, log)
    assert tasks_run[2] > 2  # one file, in parts


def test_partitions_that_keep_all_cores_at_work_are_not_cut(
    tasks_run: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "cores_of", lambda _: 2)
    directory = KAFKA / "4.3.0" / "clean"
    assert in_tasks(FS, directory) == alone(FS, directory)
    assert len(tasks_run) == 1
    assert in_tasks(FS, directory / "payments-0") == alone(FS, directory / "payments-0")
    assert len(tasks_run) == 3


def test_verification_beside_a_broker_does_not_cut_logs_into_parts(tasks_run: list[int]) -> None:
    directory = KAFKA / "4.3.0" / "clean"
    report = jobs.verify(SPARK, resolve_paths(FS, [directory]), VerifyOptions(Level.CRC, live=True, jobs=1))
    assert report.summary.batches and len(tasks_run) == 1


def test_a_partition_of_a_tier_is_verified_in_parts(tmp_path: Path, tasks_run: list[int]) -> None:
    path = write_aiven(tmp_path, "payments", 0, tier_segments(KAFKA / "4.3.0" / "clean" / "payments-0"))
    fs, (shown,) = see_tiers(FS, [path])
    assert in_tasks(fs, shown, fs) == alone(fs, shown)
    assert len(tasks_run) == 2 and tasks_run[0] > 5
