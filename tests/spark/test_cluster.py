"""A cluster whose workers share nothing with the driver: logs in an object store give the same results as files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.clock import SystemClock
from seglog.locations import parse_location
from seglog.look.inspect.statistics import log_statistics
from seglog.scan.listing import list_partition, resolve_paths
from seglog.storage.local import LocalFileSystem
from seglog.verification.verify import Level, Verification, VerifyOptions
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.engines.arrow import record_batches
from seglog_ask.table.plan.files import files_of
from seglog_ask.table.plan.schema import default_projection
from seglog_ask.table.plan.splits import plan_splits
from seglog_stores.operations.fetch import fetch
from seglog_stores.remote.settings import StoreSettings
from seglog_stores.tiers.view import see_tiers
from tests.support.command_line import keep_partitions
from tests.support.fixtures import fixture_copy
from tests.support.object_server import object_server
from tests.support.requirements import require_java

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("customers-0", "customers-1", "customers-uncleaned-0", "orders-zstd-0", "payments-0")
OUTPUT = "s3://bkt/cleaned"
WRITTEN = "s3://bkt/written"
FS = LocalFileSystem()


def of_files(logs: Path) -> dict[str, Any]:
    """Returns the results of `spark_cluster.results`, by the functions of one machine."""
    targets = resolve_paths(FS, [logs])
    verified = Verification(FS, targets, VerifyOptions(level=Level.SEMANTIC, jobs=1), SystemClock())
    findings = sorted(map(repr, verified))
    committed = [row for row in rows_of(logs, isolationLevel="read_committed") if row[3] is not None]
    newest = {(topic, partition, key): row for row in committed for topic, partition, _, key, _ in [row]}
    return {
        "rows": sorted(map(repr, rows_of(logs))),
        "findings": findings,
        "summary": repr(verified.summary),
        "statistics": [repr(log_statistics(FS, list_partition(FS, logs / name))) for name in KEPT],
        "latest": sorted(repr(row) for row in newest.values() if row[4] is not None),
    }


def rows_of(logs: Path, **given: str) -> list[tuple[Any, ...]]:
    options = parse_read_options({"path": str(logs), **given})
    projection = default_projection("records", ("topic", "partition", "offset", "key", "value"), False)
    found: list[tuple[Any, ...]] = []
    for split in plan_splits(FS, options):
        for batch in record_batches(FS, split, projection, options):
            columns = [column.to_pylist() for column in batch.columns]
            found += zip(*columns, strict=True)
    return found


def records_in(partition: Path) -> list[tuple[Any, ...]]:
    """Returns every record of a partition. Bytes of two rounds differ, as tombstones carry the time of the round."""
    with seglog.open_log(partition) as log:
        return [(one.offset, one.timestamp, one.key, one.value) for one in log.records()]


def fetch_committed(settings: StoreSettings, url: str, home: Path) -> Path:
    """The partition directory that `fetch` makes of a committed partition."""
    fs, (seen,) = see_tiers(files_of(settings), [parse_location(url)])
    fetch(fs, seen, FS, home / "fetched" / seen.name)
    return home / "fetched" / seen.name


def test_workers_that_see_no_file_of_the_driver_give_what_one_machine_gives(tmp_path: Path) -> None:
    require_java()
    logs = fixture_copy("4.3.0/clean", tmp_path)
    keep_partitions(logs, KEPT)
    for path in logs.iterdir():
        if path.is_file():
            path.unlink()  # the checkpoints: what they say of a partition is not the subject
    (tmp_path / "driver").mkdir()
    with object_server() as store:
        for path in logs.rglob("*-*/*"):
            store.objects[f"bkt/kafka/{path.relative_to(logs)}"] = path.read_bytes()
        expected = of_files(logs)
        (cleaned,) = seglog.clean(logs / "customers-uncleaned-0", policy="compact", roll=True)
        assert isinstance(cleaned, seglog.Cleaned) and cleaned.changes
        kept = records_in(logs / "customers-uncleaned-0")
        shutil.rmtree(logs)
        request = {
            "url": "s3://bkt/kafka",
            "options": store.environment,
            "home": str(tmp_path / "spark"),
            "output": OUTPUT,
            "written": WRITTEN,
        }
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment |= {"PYTHONPATH": os.pathsep.join([str(ROOT / "core"), str(ROOT)])}
        ended = subprocess.run(
            [sys.executable, "-m", "tests.support.spark_cluster"],
            input=json.dumps(request),
            cwd=tmp_path / "driver",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert ended.returncode == 0, ended.stderr[-4000:]
        settings = StoreSettings.of(store.environment)
        fetched = fetch_committed(settings, f"{OUTPUT}/customers-uncleaned-0", tmp_path)
        written = [fetch_committed(settings, f"{WRITTEN}/numbers-{n}", tmp_path) for n in range(2)]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert records_in(fetched) == kept
    for number, directory in enumerate(written):
        values = [(offset, value) for offset, _, _, value in records_in(directory)]
        assert [offset for offset, _ in values] == list(range(100))
        assert sorted(value for _, value in values) == sorted(2 * [b"%d" % n for n in range(number, 100, 2)])
    directories = {place for place, _ in found["places"]}
    assert len(directories) == 2 and all(str(tmp_path / "spark" / "work") in place for place in directories)
    assert [variables for _, variables in found["places"]] == [[], []]
    for name, value in expected.items():
        assert json.loads(json.dumps(found[name]).replace(request["url"], str(logs))) == value, name
    for secret in store.environment.values():
        assert secret not in ended.stderr
