"""How fast the data source reads: `python tests/benchmarks/spark_read.py PARTITION… [--runs 5] [--master local[2]]`.

For each partition directory: the engine alone in one process (no Spark), then queries in a warm session, best of
`--runs`, with checksums on. Rows and bytes a second are of the whole query, planning and job start included.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


WARM_UPS = 3  # the JVM compiles what it ran often


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
    from seglog.spark.options import parse_read_options
    from seglog.spark.schema import default_projection
    from seglog.spark.splits import plan_splits
    from seglog.spark.views import split_batches
    from seglog.storage.filesystem import LocalFileSystem

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    from seglog.spark.session import session

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
    spark.stop()


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "core"), str(ROOT)]
    main()
