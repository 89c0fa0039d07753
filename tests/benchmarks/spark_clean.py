"""How fast Spark cleans: `python tests/benchmarks/spark_clean.py FOLDER [--millions 4] [--directories 4] [--runs 3]`.

Makes logs of keyed 100-byte values in FOLDER (which needs room for four times their size) and cleans copies of them,
best of `--runs` in a warm session after one run to warm up:

    seglog clean       the single-node cleaner, one thread, in this process
    shuffle            one partition over all tasks
    directories        so many directories, a task each

Rates are records of the log a second, over everything from opening the logs to the last rename. `--growth` repeats the
shuffle with 1, 2, 4 and 8 times a quarter of the records, and prints what went through the shuffle a record.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SEGMENT_BYTES = 64 << 20
VALUE = b"x" * 100
AT_ONCE = 50_000


def config():
    from seglog.config import LogConfig

    return LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES)


def opened(path: Path):
    from seglog.clock import SystemClock
    from seglog.log.directory import LogDirectory
    from seglog.storage.filesystem import LocalFileSystem

    fs = LocalFileSystem()
    return LogDirectory.open(path, fs=fs, clock=SystemClock(), config_of=lambda _: config(), writable=True)


def fill(path: Path, directories: int, records: int) -> None:
    """A log directory whose partitions have `records` in all, over 40 % as many keys; nothing in active segments."""
    from seglog.model import Record, TopicPartition

    if path.exists():
        return
    path.mkdir(parents=True)
    (path / "meta.properties").write_text("version=1\ncluster.id=benchmark\nnode.id=1\n")
    chance = np.random.default_rng(1)
    now = time.time_ns() // 1_000_000
    with opened(path) as directory:
        for number in range(directories):
            log = directory.log(TopicPartition("giant" if directories == 1 else "many", number), create=True)
            for _ in range(records // directories // AT_ONCE):
                keys = chance.integers(0, max(records // directories * 2 // 5, 1), AT_ONCE).tolist()
                log.append([Record(VALUE, b"key-%012d" % key, now) for key in keys], batch_records=500)
            log.roll()


def copied(source: Path, target: Path) -> Path:
    """The directory again; `.log` files, which a round replaces and never changes, as links."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=_link)
    return target


def _link(source: str, target: str) -> None:
    if source.endswith(".log"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


class Topics:
    def resolve(self, topic):
        from seglog.settings import load_settings
        from seglog.storage.filesystem import LocalFileSystem

        settings = load_settings(LocalFileSystem(), environment={}, working_directory=Path("/"))
        return settings.resolve(topic, chosen={"cleanup.policy": "compact", "segment.bytes": SEGMENT_BYTES})


def on_spark(spark, path: Path, plan: str, reducers: int = 0) -> float:
    from seglog.cleaner.options import CleanerOptions
    from seglog.cleaner.requested import Cleaned
    from seglog.clock import SystemClock
    from seglog.log.listing import resolve_paths
    from seglog.spark.cleaning import Placement, clean
    from seglog.storage.filesystem import LocalFileSystem

    names = sorted(p for p in path.iterdir() if p.is_dir())
    targets = resolve_paths(LocalFileSystem(), names)
    begun = time.perf_counter()
    placement = Placement(plan, reducers=reducers)
    outcomes = list(clean(spark, targets, lambda _: Topics(), SystemClock(), CleanerOptions(), placement=placement))
    seconds = time.perf_counter() - begun
    assert all(isinstance(outcome, Cleaned) for outcome in outcomes), outcomes
    return seconds


def alone(path: Path) -> float:
    from seglog.cleaner.cleaner import clean_log
    from seglog.cleaner.options import CleanerOptions
    from seglog.clock import SystemClock

    begun = time.perf_counter()
    with opened(path) as directory:
        for log in directory.load_all():
            clean_log(log, CleanerOptions(), SystemClock())
    return time.perf_counter() - begun


def best(runs: int, source: Path, work) -> float:
    times = []
    for _ in range(runs + 1):
        target = copied(source, source.with_name(source.name + "-copy"))
        times.append(work(target))
    shutil.rmtree(target)
    return min(times[1:])


def shuffled_bytes(path: Path, reducers: int = 4) -> int:
    """Bytes that the stages send each other for the one partition below `path`, counted without Spark."""
    from seglog.cleaner.options import CleanerOptions
    from seglog.cleaner.round import prepare_round
    from seglog.clock import SystemClock
    from seglog.spark.cleaning_spec import RoundSpec
    from seglog.spark.cleaning_stages import index_group
    from seglog.storage.filesystem import LocalFileSystem

    fs = LocalFileSystem()
    with opened(path) as directory:
        log = directory.load_all()[0]
        spec = RoundSpec.of(prepare_round(log, CleanerOptions(), SystemClock()), path / "none", bytes(32))
        groups = range(len(spec.groups))
        return sum(len(blob) for number in groups for _, blob in index_group(fs, spec, number, reducers))


def report(name: str, records: int, source: Path, seconds: float) -> None:
    size = sum(file.stat().st_size for file in source.rglob("*.log"))
    rates = f"{records / seconds / 1e6:8.2f} M records/s {size / seconds / 1e6:7.0f} MB/s"
    sys.stdout.write(f"{name:28} {records / 1e6:6.1f} M {size / 1e6:7.0f} MB {seconds:7.2f} s {rates}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--millions", type=float, default=4)
    parser.add_argument("--directories", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--growth", action="store_true")
    arguments = parser.parse_args()
    from seglog.spark.session import session

    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g"}
    spark = session("seglog-benchmark", arguments.master, quiet)
    spark.sparkContext.setLogLevel("ERROR")
    records = int(arguments.millions * 1e6)
    one, many = arguments.folder / "one", arguments.folder / "many"
    fill(one, 1, records)
    fill(many, arguments.directories, records)
    report("seglog clean, one partition", records, one, best(arguments.runs, one, alone))
    shuffle = best(arguments.runs, one, lambda path: on_spark(spark, path, "shuffle"))
    report("shuffle, one partition", records, one, shuffle)
    many_seconds = best(arguments.runs, many, lambda path: on_spark(spark, path, "directory"))
    report(f"{arguments.directories} directories", records, many, many_seconds)
    for factor in (1, 2, 4, 8) if arguments.growth else ():
        grown, count = arguments.folder / f"grown-{factor}", records * factor // 4
        fill(grown, 1, count)
        seconds = best(arguments.runs, grown, lambda path: on_spark(spark, path, "shuffle"))
        report(f"shuffle, {shuffled_bytes(grown) / count:.1f} B a record", count, grown, seconds)
        shutil.rmtree(grown)
    spark.stop()


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "core"), str(ROOT)]
    main()
