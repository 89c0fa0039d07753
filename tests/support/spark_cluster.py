"""A Spark cluster of two workers on this machine, and a test's jobs in it: `python -m tests.support.spark_cluster`.

It reads a request from standard input (JSON: `url`, `options`, `home`, `output`, where a cleaned
partition is committed, and `written`, where rows go) and prints one line of JSON: what each job gave,
and where the tasks ran. The workers are processes of their own, with a working directory each; they know of this
process what Spark sends them. `home` becomes a SPARK_HOME of links, as Spark makes the workers' directories below it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seglog.locations import parse_location
from seglog.scan.listing import list_partition, resolve_paths
from seglog.verification.verify import Level, VerifyOptions
from seglog_ask.spark import jobs
from seglog_ask.spark.latest import latest
from seglog_ask.spark.library import clean
from seglog_ask.table.plan.files import files_of
from seglog_stores.remote.settings import StoreSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
MASTER = "local-cluster[2,1,768]"  # workers, cores and MiB of each


def spark_home(place: Path) -> Path:
    """A SPARK_HOME: what the installed PySpark has, in a directory that may be written to."""
    import pyspark

    place.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (place / path.name).symlink_to(path)
    return place


def cluster(home: Path) -> SparkSession:
    """The session. Nothing of a store is in the environment of any process."""
    os.environ["SPARK_HOME"] = str(spark_home(home))
    os.environ["SPARK_CONF_DIR"] = str(HERE.parent / "spark" / "spark-conf")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from seglog_ask.spark.session import session

    return session(
        "seglog-cluster",
        MASTER,
        {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
            "spark.local.dir": str(home.parent / "local"),
            "spark.sql.session.timeZone": "UTC",
        },
    )


def places(spark: SparkSession) -> list[list[Any]]:
    """Where tasks run: working directory, and which variables of stores they see."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        import pyarrow

        for batch in batches:
            time.sleep(0.5)  # so that no worker has both tasks
            found = json.dumps([str(Path.cwd()), [name for name in os.environ if name.startswith("AWS_")]])
            yield pyarrow.RecordBatch.from_pydict({"found": [found] * batch.num_rows})

    rows = spark.range(2, numPartitions=2).mapInArrow(look, "found string").collect()
    return [json.loads(row.found) for row in rows]


def results(spark: SparkSession, url: str, options: dict[str, str]) -> dict[str, Any]:
    """What the jobs give, as `tests/spark/test_cluster.py` computes it of the files."""
    store = StoreSettings.of(options)
    fs = files_of(store)
    targets = resolve_paths(fs, [parse_location(url)])
    rows = spark.read.format("seglog").options(**options, includeHeaders="true").load(url).collect()
    verified = jobs.verify(spark, targets, VerifyOptions(level=Level.SEMANTIC, jobs=1), store=store)
    listings = [list_partition(fs, path) for path in sorted(fs_path(url, name) for name in fs.list(targets[0].path))]
    return {
        "rows": sorted(repr((row.topic, row.partition, row.offset, row.key, row.value)) for row in rows),
        "findings": sorted(repr(found) for found in verified.findings),
        "summary": repr(verified.summary),
        "statistics": [repr(one.log) for one in jobs.statistics(spark, listings, store=store)],
        "latest": sorted(
            repr((row.topic, row.partition, row.offset, row.key, row.value))
            for row in latest(spark, [parse_location(url)], options).collect()
        ),
    }


def fs_path(url: str, name: str) -> Path:
    """A partition below the URL."""
    return parse_location(f"{url}/{name}")


def write(spark: SparkSession, url: str, options: dict[str, str]) -> None:
    """Appends a hundred rows out of four tasks to two partitions of a topic."""
    rows = spark.range(0, 100, 1, 4).selectExpr("cast(id AS string) AS value", "cast(id % 2 AS int) AS partition")
    rows.write.format("seglog").mode("append").options(**options).option("topic", "numbers").save(url)


def main() -> None:
    """One request, one answer."""
    request = json.loads(sys.stdin.read())
    spark = cluster(Path(request["home"]))
    try:
        found = {"places": places(spark), **results(spark, request["url"], request["options"])}
        clean(
            spark,
            f"{request['url']}/customers-uncleaned-0",
            policy="compact",
            roll=True,
            output=request["output"],
            store=request["options"],
        )
        for _ in range(2):
            write(spark, request["written"], request["options"])
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
