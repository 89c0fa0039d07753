"""How fast the sink writes: `python -m tests.benchmarks.spark_write [--records 2000000] [--runs 3]`.

Rows out of a cached DataFrame (16-byte keys, 100-byte values, one partition of a topic a task) are written by turns to
a log directory, below a prefix on the same disk, and below a prefix of an S3 server on loopback (moto, a process of its
own, which takes its share of the cores). Best of the runs; MB/s are of encoded batches. The last line writes the same
rows out of tasks that share the partitions: then their payload passes the driver. Only the ratios of one run mean
anything.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.keyed_logs import RECORD_BYTES
from tests.support.s3_server import BUCKET, make_bucket, s3_server

PARTITIONS = 4


def rows_of(spark, records: int, *, shared: bool):
    """Rows of four partitions: each in one task, or (`shared`) each in all of them."""
    partition = f"id % {PARTITIONS}" if shared else f"id * {PARTITIONS} DIV {records}"
    rows = spark.range(0, records, 1, PARTITIONS).selectExpr(
        "'numbers' AS topic",
        f"cast({partition} AS int) AS partition",
        "cast(concat('key-', lpad(cast(id AS string), 12, '0')) AS binary) AS key",
        "cast(rpad(cast(id AS string), 100, 'shipped order ') AS binary) AS value",
    )
    rows = rows.cache()
    rows.count()
    return rows


def seconds_of(rows, target: str, options: dict[str, str]) -> float:
    """One write."""
    begun = time.perf_counter()
    rows.write.format("seglog").mode("append").options(**options).save(target)
    return time.perf_counter() - begun


def measured(spark, folder: Path, records: int, runs: int, environment: dict[str, str]) -> dict[str, float]:
    """The seconds of the fastest write of each kind; each goes to a place that is new."""
    alone, shared = rows_of(spark, records, shared=False), rows_of(spark, records, shared=True)

    def local(run: int) -> float:
        path = folder / f"logs-{run}"
        found = seconds_of(alone, str(path), {})
        shutil.rmtree(path)
        return found

    def prefix(rows, name: str) -> Callable[[int], float]:
        def once(run: int) -> float:
            path = folder / f"{name}-{run}"
            (path / "_seglog").mkdir(parents=True)
            found = seconds_of(rows, str(path), {})
            shutil.rmtree(path)
            return found

        return once

    ways = {
        "a log directory": local,
        "a prefix on disk": prefix(alone, "prefix"),
        "a prefix of S3 (moto, loopback)": lambda run: seconds_of(alone, f"s3://{BUCKET}/run-{run}", environment),
        "a prefix on disk, partitions shared": prefix(shared, "shared"),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(runs + 1):
        for name, way in ways.items():
            found[name].append(way(run))
    return {name: min(each[1:]) for name, each in found.items()}  # the first one warms up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    from seglog_ask.spark.session import session

    spark = session(
        "seglog-write", given.master, {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    )
    try:
        with tempfile.TemporaryDirectory(prefix="seglog-spark-write-") as name:
            folder = Path(name)
            with s3_server(folder / "moto.log") as environment:
                make_bucket(environment)
                found = measured(spark, folder, given.records, given.runs, environment)
    finally:
        spark.stop()
    size, first = given.records * RECORD_BYTES, next(iter(found.values()))
    for name, seconds in found.items():
        rate = f"{size / seconds / 1e6:6.0f} MB/s {given.records / seconds / 1e6:6.2f} M records/s"
        sys.stdout.write(f"{name:38} {seconds:7.2f} s {rate} {first / seconds:6.2f} of the log directory's\n")


if __name__ == "__main__":
    main()
