"""Logs in an object store, with credentials only in options, give the rows and findings of the same files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PythonException

from seglog.locations import parse_location
from seglog.look.inspect.statistics import log_statistics
from seglog.scan.listing import list_partition, resolve_paths
from seglog.storage.local import LocalFileSystem
from seglog.verification.verify import Level, VerifyOptions
from seglog_ask.spark import jobs
from seglog_ask.table.plan.files import files_of
from seglog_ask.table.plan.schema import VIEWS
from seglog_cli.app import run
from seglog_stores.remote import routing
from seglog_stores.remote.settings import StoreSettings
from tests.support.object_server import SECRETS, ObjectServer, object_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

KEPT = ("customers-0", "customers-1", "orders-zstd-0", "payments-0")
ROOT = "s3://bkt/kafka"


@pytest.fixture(scope="module")
def store(logs: Path) -> Iterator[ObjectServer]:
    with object_server() as served:
        for name in KEPT:
            for path in (logs / name).iterdir():
                served.objects[f"bkt/kafka/{name}/{path.name}"] = path.read_bytes()
        yield served


@pytest.fixture
def remote(spark: SparkSession, store: ObjectServer) -> Callable[..., DataFrame]:
    """`remote(path, option=value)` → the DataFrame of what lies below the URL."""

    def load(path: str = ROOT, **options: str) -> DataFrame:
        return spark.read.format("seglog").options(**store.environment, **options).load(path)

    return load


def content(frame: DataFrame, *left_out: str) -> list[str]:
    """The rows as text, sorted; `left_out` are what an object store has otherwise."""
    rows = [row.asDict() for row in frame.collect()]
    return sorted(repr({name: value for name, value in row.items() if name not in left_out}) for row in rows)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_shows_what_it_shows_of_files(
    read: Callable[..., DataFrame], remote: Callable[..., DataFrame], logs: Path, view: str
) -> None:
    given = {"subscribePattern": "customers|orders-zstd|payments", "view": view, "isolationLevel": "read_committed"}
    assert content(remote(**given), "segment", "modified") == content(read(logs, **given), "segment", "modified")


def test_offsets_bound_a_read(read: Callable[..., DataFrame], remote: Callable[..., DataFrame], logs: Path) -> None:
    offsets = sorted(row.offset for row in read(logs / "orders-zstd-0").collect())
    first, after = offsets[len(offsets) // 3], offsets[len(offsets) // 2]
    bounds = {side: json.dumps({"orders-zstd": {"0": at}}) for side, at in (("starting", first), ("ending", after))}
    found = remote(f"{ROOT}/orders-zstd-0", **{f"{side}Offsets": text for side, text in bounds.items()}).collect()
    assert sorted(row.offset for row in found) == [at for at in offsets if first <= at < after] != []


def test_a_stream_reads_what_comes(spark: SparkSession, store: ObjectServer, logs: Path, tmp_path: Path) -> None:
    source = sorted((logs / "customers-1").glob("*.log"))
    served = {f"bkt/stream/customers-1/{path.name}": path.read_bytes() for path in source}
    store.objects.update(dict([*served.items()][:1]))
    options = {**store.environment, "startingOffsets": "earliest"}

    def seen() -> int:
        stream = spark.readStream.format("seglog").options(**options).load("s3://bkt/stream")
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        query.awaitTermination()
        return spark.read.parquet(str(tmp_path / "rows")).count()

    first = seen()
    store.objects.update(served)
    whole = sum(len(path) for path in [list_partition(LocalFileSystem(), logs / "customers-1").segments])
    assert whole > 1 and 0 < first < seen() == spark.read.format("seglog").load(str(logs / "customers-1")).count()


def test_jobs_give_what_they_give_of_files(spark: SparkSession, store: ObjectServer, logs: Path) -> None:
    settings = StoreSettings.of(store.environment)
    fs, local = files_of(settings), LocalFileSystem()
    options = VerifyOptions(level=Level.SEMANTIC, jobs=1)
    urls = [f"{ROOT}/{name}" for name in KEPT]
    targets = resolve_paths(fs, [parse_location(url) for url in urls])
    found = jobs.verify(spark, targets, options, store=settings)
    expected = jobs.verify(spark, resolve_paths(local, [logs / name for name in KEPT]), options)
    told = [repr(finding).replace(ROOT, str(logs)) for finding in found.findings]
    assert sorted(told) == sorted(map(repr, expected.findings)) and found.summary == expected.summary
    listings = [list_partition(fs, target.path) for target in targets]
    statistics = jobs.statistics(spark, listings, store=settings)
    assert [one.log.records for one in statistics] == [
        log_statistics(local, list_partition(local, logs / name)).records for name in KEPT
    ]


def test_commands_send_the_environments_credentials_along(
    spark: SparkSession,
    store: ObjectServer,
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)  # of this process alone: Spark's workers were started without
    monkeypatch.setattr(routing, "_shared", None)
    for command in ("verify --json", "stats --json", "latest --json --limit 5", "diff --json"):
        said = []
        for root in (str(logs), ROOT):
            paths = [f"{root}/customers-0", f"{root}/customers-1"]
            code = run(["spark", *command.split(), *paths])
            said.append((code, capsys.readouterr().out.replace(root, "ROOT")))
        assert said[0] == said[1], command
        assert json.loads(said[0][1].splitlines()[0])


def test_no_plan_and_no_error_shows_what_options_carry(
    spark: SparkSession, remote: Callable[..., DataFrame], store: ObjectServer, capfd: pytest.CaptureFixture[str]
) -> None:
    frame = remote(f"{ROOT}/customers-0")
    frame.explain("extended")
    shown = [capfd.readouterr().out, str(frame._jdf.queryExecution().toString())]
    name = min(key for key in store.objects if "payments-0" in key and key.endswith(".log"))
    whole = store.objects[name]
    store.objects[name] = whole[:100] + b"\xff" + whole[101:]
    try:
        with pytest.raises(PythonException, match="the checksum of the batch is wrong") as damaged:
            remote(f"{ROOT}/payments-0").count()
    finally:
        store.objects[name] = whole
    with pytest.raises(AnalysisException, match="nowhere: no such file or directory") as missing:
        remote("s3://bkt/nowhere").count()
    with pytest.raises(AnalysisException, match="did you mean AWS_SECRET_ACCESS_KEY") as misspelt:
        remote(aws_secret_acces_key=SECRETS["AWS_SECRET_ACCESS_KEY"]).count()
    shown += [str(error.value) for error in (damaged, missing, misspelt)]
    for secret in (SECRETS["AWS_ACCESS_KEY_ID"], SECRETS["AWS_SECRET_ACCESS_KEY"]):
        assert not [text for text in shown if secret in text]
