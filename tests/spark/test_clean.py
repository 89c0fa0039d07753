"""Cleaning on Spark gives the files of `seglog clean` by every plan; failed tasks and damage do no harm."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seglog.cleaner.round import CleanerOptions
from seglog.errors import CorruptRecordError, UnsupportedError
from seglog.operations import clean as requested
from seglog.operations.workspace import Workspace
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.cleaning import Placement, clean, shuffled
from seglog_ask.spark.cleaning_round import RoundSpec, finish_round
from tests.support.compacted_directories import Topics, broker_directory, cleanings
from tests.support.compacted_directories import clean as clean_here
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS
from tests.unit.spark.test_cleaning_stages import files, filled, spec_of, transactional

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

FS = LocalFileSystem()
CLOCK = ManualClock(START_MS + 100_000)
TOPICS = Topics(cleanup_policy="compact", segment_bytes=2000)


def tree(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def cleaned_alike(
    spark: SparkSession, source: Path, names: list[str], tmp_path: Path, placement: Placement, **options: object
) -> None:
    """Cleans two copies, one on Spark, and compares all files afterwards."""
    single, spread = tmp_path / "single", tmp_path / "spread"
    shutil.copytree(source, single)
    shutil.copytree(source, spread)
    chosen = CleanerOptions(**options)  # type: ignore[arg-type]
    expected = clean_here(FS, [single / name for name in names], TOPICS, CLOCK, chosen)
    work = cleanings(FS, [spread / name for name in names], TOPICS, chosen)
    outcomes = list(clean(spark, Workspace(FS, CLOCK), work, placement))
    assert tree(spread) == tree(single)
    assert sorted(map(told, outcomes), key=str) == sorted(map(told, expected), key=str)
    assert any(isinstance(outcome, requested.Cleaned) for outcome in outcomes)


def told(outcome: requested.Outcome) -> tuple[object, ...]:
    """Returns the facts of an outcome."""
    if isinstance(outcome, requested.Cleaned):
        result = outcome.result
        return (
            str(result.topic_partition),
            result.first_dirty_offset,
            result.end_offset,
            result.segments_after,
            outcome.active_bytes,
        )
    assert isinstance(outcome, requested.Skipped), outcome
    return (outcome.directory.name, outcome.reason)


def test_many_directories_a_task_each_give_the_files_of_seglog_clean(spark: SparkSession, tmp_path: Path) -> None:
    contents = {f"orders-{n}": (3 + n % 3, 20 + n) for n in range(6)}
    path = broker_directory(tmp_path / "logs", contents, segment_bytes=2000)
    cleaned_alike(spark, path, list(contents), tmp_path, Placement("directory"), roll=True)


@pytest.mark.parametrize("hash_mask", [-1, 0])
def test_one_partition_over_all_tasks_gives_the_files_of_seglog_clean(
    spark: SparkSession, tmp_path: Path, hash_mask: int
) -> None:
    path = broker_directory(tmp_path / "logs", {"giant-0": (6, 90), "giant-1": (5, 70)}, segment_bytes=2000)
    placement = Placement("shuffle", reducers=3)
    cleaned_alike(spark, path, ["giant-0", "giant-1"], tmp_path, placement, roll=True, hash_mask=hash_mask)


def test_reducers_without_memory_spill_and_give_the_files_of_seglog_clean(spark: SparkSession, tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"giant-0": (6, 90)}, segment_bytes=2000)
    placement = Placement("shuffle", reducers=2, reducer_memory_bytes=1)
    cleaned_alike(spark, path, ["giant-0"], tmp_path, placement, roll=True)
    local = Path(spark.conf.get("spark.local.dir"))
    assert local.is_dir()
    assert list(local.rglob("seglog-merge-*")) == []


def test_transactions_cross_tasks(spark: SparkSession, tmp_path: Path) -> None:
    log = transactional(tmp_path / "source")
    log.close()
    cleaned_alike(spark, tmp_path / "source", ["t-0"], tmp_path, Placement("shuffle"), roll=True)


def test_damage_is_named_and_the_directory_is_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    log = filled(tmp_path, 1000, 100)
    log.roll()
    spec: RoundSpec = spec_of(log, START_MS, None)
    path = log.segments.snapshot()[1].path
    data = bytearray(path.read_bytes())
    data[300] ^= 0xFF
    before = path.stat()
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    contents = files(log)
    with pytest.raises(CorruptRecordError, match=f"{path.name}: position"):
        finish_round(log, spec, shuffled(spark, spec, 2), CLOCK)
    assert files(log) == contents


@pytest.mark.parametrize("roll", [False, True])
def test_a_log_directory_is_cleaned_by_the_rules_of_seglog_clean(
    spark: SparkSession, tmp_path: Path, roll: bool
) -> None:
    path = broker_directory(tmp_path / "logs", {"a-0": (4, 90), "b-0": (3, 70), "idle-0": (0, 5)}, segment_bytes=2000)
    cleaned_alike(spark, path, ["", "idle-0"], tmp_path, Placement("shuffle"), roll=roll)
    again = tmp_path / "again"
    again.mkdir()
    cleaned_alike(spark, tmp_path / "spread", ["idle-0", "a-0"], again, Placement("shuffle"))


def test_a_plan_that_cannot_be_is_refused_before_anything_is_opened(spark: SparkSession, tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"a-0": (4, 90)}, segment_bytes=2000)
    before = tree(path)
    options = CleanerOptions(roll=True, expire=True)
    with pytest.raises(UnsupportedError, match="--expire"):
        next(clean(spark, Workspace(FS, CLOCK), cleanings(FS, [path], TOPICS, options), Placement("shuffle")))
    assert tree(path) == before
