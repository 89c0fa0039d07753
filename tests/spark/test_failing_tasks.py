"""Every task fails once, where Spark tries again: the results are the same, and no attempt leaves a file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from seglog.cleaner.round import CleanerOptions
from seglog.model import TopicPartition
from seglog_stores.operations.fetch import fetch
from seglog_stores.tiers.manifests import orphans, read_committed
from seglog_stores.tiers.view import see_tiers
from tests.spark.test_write import findings
from tests.support.compacted_directories import broker_directory, clean, opened
from tests.support.failing_tasks import CLOCK, FS, TOPICS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).resolve().parents[2]


def entries(path: Path) -> dict[str, bytes | None]:
    """Contents of every file below a directory, and None for every directory."""
    return {str(p.relative_to(path)): None if p.is_dir() else p.read_bytes() for p in sorted(path.rglob("*"))}


def records(path: Path, name: str) -> list[tuple[int | None, bytes | None, bytes | None]]:
    topic, _, partition = name.rpartition("-")
    with opened(path, writable=False) as directory:
        log = directory.log(TopicPartition(topic, int(partition)))
        return [(record.offset, record.key, record.value) for record in log.records()]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the program works on, before it ran; `single` is a copy of `logs`, cleaned by one process."""
    path = tmp_path_factory.mktemp("failing")
    broker_directory(path / "logs", {"giant-0": (6, 90), "small-0": (3, 20)}, segment_bytes=2000)
    broker_directory(path / "read", {"r-0": (3, 20), "r-1": (3, 20)}, segment_bytes=2000)
    shutil.copytree(path / "logs", path / "single")
    paths = [path / "single" / name for name in ("giant-0", "small-0")]
    clean(FS, paths, TOPICS, CLOCK, CleanerOptions(roll=True))
    return path


@pytest.fixture(scope="module")
def told(home: Path) -> dict[str, object]:
    """What the program says, having run."""
    environment = os.environ | {
        "SPARK_CONF_DIR": str(Path(__file__).parent / "spark-conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "core"), str(ROOT)]),
    }
    command = [sys.executable, "-m", "tests.support.failing_tasks", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=home, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_tasks_of_every_stage_failed_and_the_jobs_succeeded(home: Path, told: dict[str, object]) -> None:
    failed = Counter(path.name.rpartition("-")[0] for path in (home / "failed").iterdir())
    assert failed.keys() == {"index", "merge", "rewrite", "whole", "read", "export", "write"}
    assert min(failed[stage] for stage in ("index", "merge", "rewrite", "read", "write")) >= 2
    assert told["cleaned"] == ["Cleaned", "Cleaned"]


def test_cleaned_partitions_are_those_of_one_process_and_nothing_else_is_there(
    home: Path, told: dict[str, object]
) -> None:
    assert told["cleaned"]
    assert entries(home / "logs") == entries(home / "single")


def test_killed_reducers_leave_what_they_spilled_to_spark_which_removes_it(home: Path, told: dict[str, object]) -> None:
    assert told["spilled"] == 3
    assert list((home / "local").iterdir()) == []


def test_rows_come_once_and_go_once(home: Path, told: dict[str, object]) -> None:
    expected = {name: records(home / "read", name) for name in ("r-0", "r-1")}
    count = sum(map(len, expected.values()))
    assert (told["read"], told["exported"]) == (count, count)
    assert {name: records(home / "written", name) for name in expected} == expected
    assert findings(home / "written") == []
    assert [path.name for path in home.iterdir() if path.name.startswith((".seglog", "_"))] == []
    assert [path.name for path in (home / "lake").rglob("*") if path.name.startswith("_")] == []


def test_rows_below_a_prefix_come_once_and_nothing_that_was_staged_is_left(home: Path, told: dict[str, object]) -> None:
    assert told["read"]
    for name in ("r-0", "r-1"):
        fs, (seen,) = see_tiers(FS, [home / "prefix" / name])
        fetch(fs, seen, FS, home / "fetched" / name)
        assert records(home / "fetched", name) == records(home / "read", name)
    logs = read_committed(FS, home / "prefix")
    assert logs is not None and logs.manifest.number == 1
    assert [remark for remark in orphans(FS, logs) if remark.path is None or list(remark.path.iterdir())] == []
