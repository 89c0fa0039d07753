"""Rows below a prefix of an object store: batch jobs and streams, written, read again and fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seglog.clock import FixedClock
from seglog.locations import parse_location
from seglog.scan.listing import resolve_paths
from seglog.storage.local import LocalFileSystem
from seglog.verification.verify import Level, Verification, VerifyOptions
from seglog_ask.table.plan.files import files_of
from seglog_stores.operations.fetch import fetch
from seglog_stores.remote.settings import StoreSettings
from seglog_stores.tiers.manifests import CommittedLogs, orphans, read_committed
from seglog_stores.tiers.view import see_tiers
from tests.support.object_server import SECRETS, ObjectServer, object_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

FS = LocalFileSystem()
URL = "s3://bkt/lake"


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with object_server() as served:
        yield served


@pytest.fixture
def load(spark: SparkSession, server: ObjectServer) -> Callable[..., DataFrame]:
    def loading(path: str = URL, **options: str) -> DataFrame:
        return spark.read.format("seglog").options(**server.environment, **options).load(path)

    return loading


def save(rows: DataFrame, server: ObjectServer, **options: str) -> None:
    rows.write.format("seglog").mode("append").options(**server.environment, **options).save(URL)


def committed(server: ObjectServer) -> CommittedLogs | None:
    return read_committed(files_of(StoreSettings.of(server.environment)), parse_location(URL))


def fetched(server: ObjectServer, name: str, home: Path) -> Path:
    """Fetches a committed partition, and checks that the verifier has no findings."""
    store, target = files_of(StoreSettings.of(server.environment)), home / "fetched" / name
    fs, (seen,) = see_tiers(store, [parse_location(f"{URL}/{name}")])
    fetch(fs, seen, FS, target)
    checked = Verification(FS, resolve_paths(FS, [target]), VerifyOptions(level=Level.SEMANTIC, jobs=1), FixedClock(0))
    assert [one for one in checked if one.severity.value != "info"] == []
    return target


def orders(spark: SparkSession, count: int) -> DataFrame:
    """Returns rows of two partitions, in as many tasks as Spark chooses."""
    return spark.sql(
        f"""select cast(concat('key-', id % 7) as binary) key, cast(concat('value-', id) as binary) value,
            'orders' topic, cast(id % 2 as int) partition from range(0, {count}, 1, 3)"""
    )


def test_a_batch_job_writes_rows_that_come_back_and_can_be_fetched(
    spark: SparkSession, server: ObjectServer, load: Callable[..., DataFrame], tmp_path: Path
) -> None:
    for _ in range(2):
        save(orders(spark, 400), server, compression="zstd")
    back = load().selectExpr("key", "value", "topic", "partition")
    assert sorted(map(tuple, back.collect())) == sorted(2 * list(map(tuple, orders(spark, 400).collect())))
    offsets = [row.offset for row in load().where("partition = 1").select("offset").collect()]
    assert sorted(offsets) == list(range(400))
    assert fetched(server, "orders-0", tmp_path).is_dir()
    logs = committed(server)
    assert logs is not None
    store = files_of(StoreSettings.of(server.environment))
    assert not [one for one in orphans(store, logs) if "/staged/" in str(one.path)]


def test_what_cannot_be_written_is_named_and_nothing_is_committed(spark: SparkSession, server: ObjectServer) -> None:
    with pytest.raises(Exception, match="row 1 of the task: offset 4 comes after"):
        save(spark.sql("select 'v' value, 't' topic, explode(array(5L, 4L)) offset").coalesce(1), server)
    assert not [name for name in server.objects if "/staged/" not in name]
    for secret in (SECRETS["AWS_ACCESS_KEY_ID"], SECRETS["AWS_SECRET_ACCESS_KEY"]):
        with pytest.raises(Exception, match="no such option: colour") as refused:
            save(orders(spark, 1), server, colour="red")
        assert secret not in str(refused.value)


def test_a_stream_appends_each_batch_once_over_restarts_and_another_one_reads_what_comes(
    spark: SparkSession, server: ObjectServer, load: Callable[..., DataFrame], tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"

    def sink() -> None:
        rows = spark.readStream.format("seglog").option("startingOffsets", "earliest").load(str(source))
        query = rows.select("key", "value", "topic", "partition").writeStream.format("seglog")
        query = query.options(**server.environment).option("checkpointLocation", str(checkpoint)).option("path", URL)
        query.trigger(availableNow=True).start().awaitTermination()

    def read_on() -> int:
        options = {**server.environment, "startingOffsets": "earliest"}
        rows = spark.readStream.format("seglog").options(**options).load(URL)
        query = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "reader"))
        query.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination()
        return spark.read.parquet(str(tmp_path / "rows")).count()

    expected = 0
    for count in (30, 50, 20):
        orders(spark, count).write.format("seglog").mode("append").save(str(source))
        sink()
        sink()
        expected += count
        assert read_on() == expected == load().count()
    # a crash between the commit and Spark's own note of it: the batch comes again
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    sink()
    logs = committed(server)
    assert logs is not None and logs.manifest.number == 3
    rows = spark.read.parquet(str(tmp_path / "rows")).select("partition", "offset").distinct()
    assert rows.count() == expected == load().count()


def test_rows_go_into_a_local_prefix_where_logs_were_committed(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "prefix" / "_seglog").mkdir(parents=True)
    for _ in range(2):
        orders(spark, 20).write.format("seglog").mode("append").save(str(tmp_path / "prefix"))
    assert spark.read.format("seglog").load(str(tmp_path / "prefix")).count() == 40
    assert not (tmp_path / "prefix" / ".lock").exists()


def test_a_web_server_takes_no_rows(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="rows go to s3://, gs://, az:// or a directory"):
        orders(spark, 1).write.format("seglog").mode("append").save("https://127.0.0.1:1/logs")
