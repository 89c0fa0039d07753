"""Writing: a table's rows come back out of the log, and half-written data is never visible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seglog.clock import SystemClock
from seglog.scan.listing import resolve_paths
from seglog.storage.local import LocalFileSystem
from seglog.verification.verify import Level, Verification, VerifyOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

FS = LocalFileSystem()
ROWS = """
    select cast(concat('key-', id % 7) as binary) key,
           case when id % 11 = 0 then null else cast(concat('value-', id) as binary) end value,
           'orders' topic, cast(id % 2 as int) partition, id * 3 offset,
           timestamp_millis(1700000000000 + id) timestamp
    from range(0, 400)
"""


def findings(path: Path) -> list[str]:
    options = VerifyOptions(level=Level.SEMANTIC)
    found = Verification(FS, resolve_paths(FS, [path]), options, SystemClock())
    return [str(one) for one in found if one.severity.value != "info"]


def test_rows_come_back_with_their_offsets_and_the_verifier_accepts_the_log(
    spark: SparkSession, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    path = tmp_path / "logs"
    rows = spark.sql(ROWS).repartitionById(2, "partition").sortWithinPartitions("partition", "offset")
    rows.write.format("seglog").mode("append").option("compression", "zstd").save(str(path))
    back = read(path, columns="key,value,topic,partition,offset,timestamp")
    assert {tuple(row) for row in back.collect()} == {tuple(row) for row in spark.sql(ROWS).collect()}
    assert findings(path) == []
    assert sorted(p.name for p in path.iterdir() if p.is_dir()) == ["orders-0", "orders-1"]


def test_rows_without_offsets_continue_after_the_log(
    spark: SparkSession, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    path = tmp_path / "logs"
    rows = spark.sql("select cast(id as string) value from range(0, 50)").coalesce(1)
    for _ in range(2):
        rows.write.format("seglog").mode("append").option("topic", "plain").save(str(path))
    back = read(path).selectExpr("offset", "cast(value as string) value").orderBy("offset").collect()
    assert [(row.offset, row.value) for row in back] == [(n, str(n % 50)) for n in range(100)]
    assert findings(path) == []


def test_headers_go_and_come_back(spark: SparkSession, read: Callable[..., DataFrame], tmp_path: Path) -> None:
    rows = spark.sql(
        "select 'v' value, 't' topic, array(named_struct('key', 'a', 'value', cast('1' as binary))) headers"
    )
    rows.write.format("seglog").mode("append").save(str(tmp_path / "logs"))
    found = read(tmp_path / "logs", includeHeaders=True).select("headers").collect()[0].headers
    assert [(header.key, bytes(header.value)) for header in found] == [("a", b"1")]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select 'k' key, 't' topic", "column 'value' is missing"),
        ("select 'v' value", "set the option topic"),
        ("select 'v' value, 't' topic, 1.5D offset", "column 'offset' must be bigint"),
        ("select 'v' value, 't' topic, explode(array(5L, 4L)) offset", "row 1 of the task: offset 4 comes after"),
        ("select 'v' value, 'a/b' topic", "row 0 of the task"),
        ("select 'v' value, 't' topic, 1 colour", "no column 'colour'"),
    ],
)
def test_what_cannot_be_written_is_named_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, query: str, message: str
) -> None:
    path = tmp_path / "logs"
    with pytest.raises(Exception, match=message):
        spark.sql(query).coalesce(1).write.format("seglog").mode("append").save(str(path))
    left = [p.name for p in path.iterdir()] if path.exists() else []
    assert left == []


def test_overwrite_is_refused_and_leaves_what_is_there(
    spark: SparkSession, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    rows = spark.sql("select 'v' value, 't' topic")
    rows.write.format("seglog").mode("append").save(str(tmp_path / "logs"))
    with pytest.raises(Exception, match="never replaces a log"):
        rows.write.format("seglog").mode("overwrite").save(str(tmp_path / "logs"))
    assert read(tmp_path / "logs").count() == 1


def test_a_stream_appends_each_batch_once_over_restarts(
    spark: SparkSession, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    source, target, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"

    def run() -> None:
        rows = spark.readStream.format("seglog").option("startingOffsets", "earliest").load(str(source))
        query = rows.select("key", "value", "topic", "partition").writeStream.format("seglog")
        query = query.option("checkpointLocation", str(checkpoint)).option("path", str(target))
        query.trigger(availableNow=True).start().awaitTermination()

    def more() -> None:
        spark.sql(ROWS).drop("offset").write.format("seglog").mode("append").save(str(source))

    more()
    run()
    run()
    more()
    run()
    # a crash between the append and Spark's own note of it: the batch comes again
    latest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    for path in (latest, latest.with_name(f".{latest.name}.crc")):
        path.unlink(missing_ok=True)
    run()
    assert read(target).count() == 800
    assert findings(target) == []
    assert sorted(p.name for p in target.iterdir() if p.is_dir()) == ["orders-0", "orders-1"]
