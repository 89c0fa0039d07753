"""The source reads committed logs like partition directories, and tasks find the objects."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.clock import FixedClock
from seglog.errors import ConfigError, IncompleteError, NotALogError
from seglog.storage.filesystem import FileSystem
from seglog.storage.routing import machine_files
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.engines.arrow import record_batches
from seglog_ask.table.plan.discovery import Finder
from seglog_ask.table.plan.schema import default_projection
from seglog_ask.table.plan.splits import plan_splits
from seglog_stores.tiers import manifests
from seglog_stores.tiers.publishing import commit
from tests.support.fixtures import clean_partition
from tests.support.log_files import FS
from tests.support.published import published

NAMES = ("customers-0", "payments-0")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in NAMES:
        clean_partition(name, tmp_path / "logs")
    return tmp_path / "logs"


@pytest.fixture
def prefix(logs: Path, tmp_path: Path) -> Path:
    prefix, store = tmp_path / "prefix", machine_files()
    partitions = [published(FS, store, prefix, logs / name) for name in NAMES]
    published(FS, store, prefix, logs / "payments-0")  # an attempt that nobody has committed
    shutil.copytree(prefix / "payments-0", prefix / "never-0")
    commit(store, prefix, None, partitions, FixedClock(1_700_000_000_000))
    return prefix


def rows(path: Path, **given: str) -> list[tuple[Any, ...]]:
    options = parse_read_options({"path": str(path), **given})
    projection = default_projection("records", ("topic", "partition", "offset", "key", "value"), False)
    found: list[tuple[Any, ...]] = []
    for split in plan_splits(FS, options):
        for batch in record_batches(FS, split, projection, options):
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return found


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"subscribe": "payments"},
        {"assign": '{"customers": [0]}'},
        {"isolationLevel": "read_committed"},
        {"startingOffsets": '{"payments": {"0": 200}}', "endingOffsets": '{"payments": {"0": 380}}'},
        {"where": "offset BETWEEN 100 AND 250"},
        {"maxPartitionBytes": "4096"},
    ],
    ids=str,
)
def test_a_prefix_gives_the_rows_of_the_log_directory(given: dict[str, str], logs: Path, prefix: Path) -> None:
    found = rows(prefix, **given)
    assert found == rows(logs, **given)
    assert found


@pytest.mark.parametrize("path", ["payments-0", f"payments-0/{0:020d}.log", "payments-*"])
def test_a_partition_a_file_and_a_glob_below_a_prefix_are_read(path: str, logs: Path, prefix: Path) -> None:
    assert rows(prefix / path) == rows(logs / path) != []


@pytest.mark.parametrize("path", ["", "payments-0", f"payments-0/{0:020d}.log", "payments-*"])
def test_a_plan_reads_a_manifest_once(path: str, prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    read_committed = manifests.read_committed

    def counted(fs: FileSystem, prefix: Path) -> manifests.CommittedLogs | None:
        read.append(prefix)
        return read_committed(fs, prefix)

    monkeypatch.setattr(manifests, "read_committed", counted)
    options = parse_read_options({"path": str(prefix / path)})
    assert plan_splits(FS, options)
    assert read == [prefix]
    finder = Finder(FS, options)
    assert finder.find() and finder.find()
    assert read == [prefix] * 3  # a search reads it anew: more may be committed


def test_what_was_never_committed_is_not_there(prefix: Path) -> None:
    with pytest.raises(ConfigError, match="never: no such partition"):
        rows(prefix, subscribe="never")


def test_a_prefix_in_which_nothing_was_committed_is_no_log(prefix: Path) -> None:
    shutil.rmtree(prefix / "_seglog")
    (prefix / "_seglog").mkdir()
    with pytest.raises(NotALogError, match="never committed"):
        rows(prefix)


def test_an_object_that_is_missing_ends_the_query(prefix: Path) -> None:
    named = {
        piece.path for split in plan_splits(FS, parse_read_options({"path": str(prefix)})) for piece in split.pieces
    }
    Path(sorted(path for path in named if "customers" in path)[0]).unlink()
    with pytest.raises(IncompleteError, match=r"is missing, which the manifest names .*failOnDataLoss=false"):
        rows(prefix)
    assert {row[0] for row in rows(prefix, failOnDataLoss="false")} == {"customers", "payments"}
    with pytest.raises(IncompleteError, match="on_corrupt='skip' goes on with what is there"):  # not Spark's option
        seglog.open_table(prefix)
