"""Giant partitions are measured in stretches, by several tasks; the statistics are those of one machine."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from seglog.clock import FixedClock
from seglog.look.inspect import statistics
from seglog.look.inspect.statistics import LogStatistics, view_statistics
from seglog.scan.listing import list_log_directory, list_partition
from seglog.scan.small_log import SmallLog
from seglog.storage.filesystem import FileSystem
from seglog.storage.routing import machine_files
from seglog_ask.spark import jobs
from seglog_ask.spark.jobs import PartitionStatistics
from seglog_ask.spark.stretches import MeasuredStretch
from seglog_stores.formats.tier_keys import PrivateKey
from seglog_stores.tiers.publishing import commit
from seglog_stores.tiers.segments import KeyPairs
from seglog_stores.tiers.tiered_partition import TierOptions
from seglog_stores.tiers.view import see_tiers
from tests.support.fixtures import KAFKA, clean_partition
from tests.support.log_files import FS
from tests.support.published import published
from tests.support.tiers import SEALED, private_pem, tier_segments, write_aiven

SPARK: Any = None
DIRECTORIES = sorted({path.parent.parent for path in KAFKA.rglob("*.log") if "0.7" not in str(path)})
PAYMENTS = KAFKA / "4.3.0" / "clean" / "payments-0"


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The items of each run of tasks, which run in this process with pickled inputs and outputs. A stretch has 3 KB."""
    kept: list[list[Any]] = []

    def run(
        _spark: object, items: Sequence[Any], body: Callable[[Any], Any], _watch: object = None, **_: object
    ) -> list[Any]:
        there, work = pickle.loads(pickle.dumps((body, list(items))))
        kept.append(work)
        return [pickle.loads(pickle.dumps(there(item))) for item in work]

    monkeypatch.setattr(jobs, "run_tasks", run)
    monkeypatch.setattr(jobs, "cores_of", lambda _: 1000)
    monkeypatch.setattr(jobs, "GIANT_BYTES", 3000)
    monkeypatch.setattr(statistics, "_STRETCH_BYTES", 3000)
    return kept


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The logs read, in order: each by a walk, or those of a small log at once."""
    kept: list[Path] = []
    walk, read = statistics.LogWalk, statistics.small_log_at_rest

    def counted(fs: FileSystem, path: Path) -> statistics.LogWalk:
        kept.append(path)
        return walk(fs, path)

    def counted_at_once(fs: FileSystem, directory: Path) -> SmallLog | None:
        found = read(fs, directory)
        kept.extend([] if found is None else [segment.log for segment in found.listing.segments])
        return found

    monkeypatch.setattr(statistics, "LogWalk", counted)
    monkeypatch.setattr(statistics, "small_log_at_rest", counted_at_once)
    return kept


def in_tasks(fs: FileSystem, directories: Sequence[Path], seen: FileSystem | None = None) -> list[LogStatistics]:
    found: list[PartitionStatistics] = jobs.statistics(
        SPARK, [list_partition(fs, one) for one in directories], seen=seen
    )
    return [one.log for one in found]


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: str(path.relative_to(KAFKA)))
def test_all_that_brokers_wrote_is_measured_in_stretches_as_on_one_machine(
    directory: Path, runs: list[list[Any]], walked: list[Path]
) -> None:
    partitions = [one.path for one in list_log_directory(FS, directory).live]
    found = in_tasks(FS, partitions)
    read, _ = walked.copy(), walked.clear()
    assert found == [view_statistics(FS, one) for one in partitions]
    assert sorted(read) == sorted(walked)  # each log is read once
    giants = [one for one in partitions if list_partition(FS, one).size > 3000]
    assert len(runs) == 1 + bool(giants)


def test_damaged_giants_and_one_that_a_task_cannot_read_are_measured_as_on_one_machine(
    tmp_path: Path, runs: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(KAFKA / "4.3.0" / "clean", tmp_path / "logs")
    for log in (tmp_path / "logs").glob("*/*.log"):
        data = bytearray(log.read_bytes())
        data[len(data) // 2 : len(data) // 2 + 1] = b"\xa5" if data else b""
        log.write_bytes(data)
    partitions = [one.path for one in list_log_directory(FS, tmp_path / "logs").live]
    expected = [view_statistics(FS, one) for one in partitions]
    assert any(one.damaged_bytes for one in expected)
    assert in_tasks(FS, partitions) == expected
    assert len(runs) == 2
    measure = jobs.measure_stretch

    def refused(fs: FileSystem, logs: statistics.Stretch) -> MeasuredStretch | None:
        if logs[0].name.startswith("0" * 20):
            raise PermissionError(13, "Permission denied", str(logs[0]))
        return measure(fs, logs)

    monkeypatch.setattr(jobs, "measure_stretch", refused)
    assert in_tasks(FS, partitions) == expected


def test_partitions_that_keep_all_cores_at_work_are_not_cut(
    runs: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "cores_of", lambda _: 2)
    partitions = [one.path for one in list_log_directory(FS, PAYMENTS.parent).live]
    assert in_tasks(FS, partitions) == [view_statistics(FS, one) for one in partitions]
    assert [len(items) for items in runs] == [len(partitions)]
    assert in_tasks(FS, [PAYMENTS]) == [view_statistics(FS, PAYMENTS)]
    assert len(runs) == 3


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_giant_of_a_tier_is_measured_in_stretches(tmp_path: Path, runs: list[list[Any]], encrypted: bool) -> None:
    path = write_aiven(tmp_path, "payments", 0, tier_segments(PAYMENTS), *([SEALED] if encrypted else []))
    options = TierOptions(keys=KeyPairs({"key1": PrivateKey.parse(private_pem(), "key.pem")}))
    fs, (shown,) = see_tiers(FS, [path], options)
    found = in_tasks(fs, [shown], fs)
    assert found == [view_statistics(fs, shown)]
    assert len(runs) == 2 and len(runs[0]) > 1 and found[0].records


def test_a_committed_giant_is_measured_in_stretches(tmp_path: Path, runs: list[list[Any]]) -> None:
    clean_partition("payments-0", tmp_path / "logs")
    made = published(FS, machine_files(), tmp_path / "prefix", tmp_path / "logs" / "payments-0")
    commit(machine_files(), tmp_path / "prefix", None, [made], FixedClock(1_700_000_000_000))
    fs, (shown,) = see_tiers(FS, [tmp_path / "prefix" / "payments-0"])
    found = in_tasks(fs, [shown], fs)
    assert found == [view_statistics(fs, shown)]
    assert len(runs) == 2 and len(runs[0]) > 1 and found[0].records
