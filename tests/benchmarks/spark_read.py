"""How fast the data source reads: `python -m tests.benchmarks.spark_read [PARTITION…] [--runs 5] [--master local[2]]`.

For each partition directory: the engine alone in one process (no Spark), then queries in a warm session, best of
`--runs`, with checksums on. Rows and bytes a second are of the whole query, planning and job start included.

The last rows need no directory: a log of 100 segments of 1,000 records each, a task each (so little data takes no time,
and what is seen is what 100 tasks cost); and the plan of a directory of 10,000 segments, in processor seconds of the
process that plans. Both have goals: SMALL_SPLITS_SECONDS and PLAN_SECONDS.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from seglog.configuration.keys import LogConfig
from seglog.model import TopicPartition
from tests.benchmarks.keyed_logs import append_keyed, open_directory
from tests.benchmarks.many_partitions import SEGMENTS, directory_of

WARM_UPS = 3  # the JVM compiles what it ran often
SMALL_SPLITS = 100
SMALL_SPLIT_RECORDS = 1000
SMALL_SPLITS_SECONDS = 2.0
PLANNED_SEGMENTS, PLAN_SECONDS = 10_000, 2.0


def best(runs: int, work: Callable[[], int]) -> tuple[float, int]:
    """(seconds of the fastest of `runs` runs after those to warm up, what `work` returned)."""
    for _ in range(WARM_UPS):
        rows = work()
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        rows = work()
        times.append(time.perf_counter() - begun)
    return min(times), rows


def engine_alone(path: Path) -> Callable[[], int]:
    """Counts the rows of the Arrow batches in this process."""
    from seglog.storage.local import LocalFileSystem
    from seglog_ask.spark.read_options import parse_read_options
    from seglog_ask.table.engines.arrow import split_batches
    from seglog_ask.table.plan.schema import default_projection
    from seglog_ask.table.plan.splits import plan_splits

    fs, options = LocalFileSystem(), parse_read_options({"path": str(path)})
    projection = default_projection("records", None, False)

    def count() -> int:
        splits = plan_splits(fs, options)
        return sum(len(batch) for split in splits for batch in split_batches(fs, split, projection, options))

    return count


def queries(spark, path: Path) -> dict[str, Callable[[], int]]:
    """The measured queries by name; each returns the rows it went over."""

    def load(**options: str):
        return spark.read.format("seglog").options(**options).load(str(path))

    def noop() -> int:
        load(includeHeaders="true").write.format("noop").mode("overwrite").save()
        return 0

    segments = sum(file.stat().st_size for file in path.glob("*.log"))
    return {
        "count, 7 columns": lambda: load().count(),
        "count, 7 columns, no checksums": lambda: load(verifyCrc="false").count(),
        "count, 8 columns (headers)": lambda: load(includeHeaders="true").count(),
        "count, offset alone": lambda: load(columns="offset").count(),
        "sum(length(value))": lambda: load(columns="value").selectExpr("sum(length(value))").count(),
        "noop write, 8 columns": noop,
        "100 splits": lambda: load(maxPartitionBytes=str(segments // 100)).count(),
        "view batches": lambda: load(view="batches").count(),
    }


def small_splits(spark, folder: Path, runs: int) -> float:
    """Seconds of a count over a log of SMALL_SPLITS segments, each a split of its own."""
    with open_directory(folder, LogConfig()) as directory:
        log = directory.log(TopicPartition("small", 0), create=True)
        for number in range(SMALL_SPLITS):
            append_keyed(log, SMALL_SPLIT_RECORDS, SMALL_SPLIT_RECORDS, seed=number)
            if number < SMALL_SPLITS - 1:
                log.roll()
    largest = max(file.stat().st_size for file in folder.rglob("*.log"))

    def load():
        # room for one segment, and not for two
        return spark.read.format("seglog").option("maxPartitionBytes", str(largest)).load(str(folder / "small-0"))

    assert load().rdd.getNumPartitions() == SMALL_SPLITS
    seconds, rows = best(runs, lambda: load().count())
    assert rows == SMALL_SPLITS * SMALL_SPLIT_RECORDS, rows
    return seconds


def planning(folder: Path, **options: str) -> float:
    """Processor seconds of the plan of a log directory of PLANNED_SEGMENTS small segments."""
    from seglog_ask.spark.read_options import parse_read_options
    from seglog_ask.table.plan.files import files_of
    from seglog_ask.table.plan.splits import plan_splits

    partitions = PLANNED_SEGMENTS // SEGMENTS
    logs = folder / str(partitions)
    if not logs.exists():
        directory_of(folder, partitions)
    begun = time.process_time()
    parsed = parse_read_options({"path": str(logs), **options})
    splits = plan_splits(files_of(parsed.store), parsed)
    seconds = time.process_time() - begun
    assert sum(len(split.pieces) for split in splits) >= partitions
    return seconds


def told(what: str, seconds: float, goal: float) -> None:
    sys.stdout.write(f"{what}: {seconds:.2f} s; target {goal:g} s {'reached' if seconds <= goal else 'MISSED'}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    from seglog_ask.spark.session import session

    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g"}
    spark = session("seglog-benchmark", arguments.master, quiet)
    spark.sparkContext.setLogLevel("ERROR")
    sys.stdout.write(f"{'log':14} {'query':32} {'s':>7} {'M rows/s':>9} {'MB/s':>7}\n")
    for path in arguments.paths:
        size = sum(file.stat().st_size for file in path.glob("*.log"))
        seconds, rows = best(arguments.runs, engine_alone(path))
        measured = [("engine alone, one process", seconds)]
        for name, query in queries(spark, path).items():
            measured.append((name, best(arguments.runs, query)[0]))
        for name, seconds in measured:
            rate, bandwidth = rows / seconds / 1e6, size / seconds / 1e6
            sys.stdout.write(f"{path.name:14} {name:32} {seconds:7.2f} {rate:9.2f} {bandwidth:7.0f}\n")
    with tempfile.TemporaryDirectory() as folder:
        seconds = small_splits(spark, Path(folder), arguments.runs)
        told(f"{SMALL_SPLITS} small splits", seconds, SMALL_SPLITS_SECONDS)
        told(f"planning {PLANNED_SEGMENTS:,} segments", planning(Path(folder)), PLAN_SECONDS)
        by_time = planning(Path(folder), startingTimestamp="1700000000000")
        told(f"planning {PLANNED_SEGMENTS:,} segments from a time on", by_time, PLAN_SECONDS)
    spark.stop()


if __name__ == "__main__":
    main()
