"""How fast Spark cleans: `python -m tests.benchmarks.spark_clean FOLDER [--millions 4] [--directories 4] [--runs 3]`.

Makes logs of keyed 100-byte values in FOLDER and cleans copies of them, best of `--runs` in a warm session after one
run to warm up:

    seglog clean       the single-node cleaner, one thread, in this process
    shuffle            one partition over all tasks
    directories        so many directories, a task each

Rates are records of the log a second, over everything from opening the logs to the last rename.

    python -m tests.benchmarks.spark_clean FOLDER --growth [--growth-gb 1,2,4,8] [--check] [--runs 3]

cleans one partition of each size by shuffle instead, and prints as well: bytes a record that went through the shuffle
(Spark's own count, of the fastest run, after Spark's lz4) and the peak resident memory of the largest Python worker, of
the driver's Python and of the JVM (Linux alone; memory.py). `--check` compares every `.log` with what `seglog clean`
makes of the same log. FOLDER needs room for three times the largest size. With `--runs 1` a size is measured with cold
workers: Spark has ended those that were idle while the log was made.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seglog.configuration.keys import LogConfig
from seglog.model import TopicPartition
from seglog.operations.workspace import by_log_directory
from tests.benchmarks.keyed_logs import RECORD_BYTES, append_keyed, open_directory
from tests.benchmarks.memory import MemoryMeter, Peaks

SEGMENT_BYTES = 64 << 20
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES)


def fill(path: Path, directories: int, records: int) -> None:
    """A log directory whose partitions have `records` in all, over 40 % as many keys; nothing in active segments."""
    if path.exists():
        return
    path.mkdir(parents=True)
    (path / "meta.properties").write_text("version=1\ncluster.id=benchmark\nnode.id=1\n")
    share = records // directories
    with open_directory(path, CONFIG) as directory:
        for number in range(directories):
            log = directory.log(TopicPartition("giant" if directories == 1 else "many", number), create=True)
            append_keyed(log, share, max(share * 2 // 5, 1), seed=number)
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
        from seglog.configuration.settings import load_settings
        from seglog.storage.local import LocalFileSystem

        settings = load_settings(LocalFileSystem(), environment={}, working_directory=Path("/"))
        return settings.resolve(topic, chosen={"cleanup.policy": "compact", "segment.bytes": SEGMENT_BYTES})

    def __call__(self, topic):
        return self.resolve(topic).log


def on_spark(spark, path: Path, plan: str, reducers: int = 0) -> float:
    from seglog.cleaner.round import CleanerOptions
    from seglog.operations.clean import Cleaned, directories_of
    from seglog.operations.workspace import Workspace
    from seglog.scan.listing import resolve_paths
    from seglog.storage.local import LocalFileSystem
    from seglog_ask.spark.cleaning import Placement, clean

    names = sorted(p for p in path.iterdir() if p.is_dir())
    targets = resolve_paths(LocalFileSystem(), names)
    begun = time.perf_counter()
    placement = Placement(plan, reducers=reducers)
    directories = directories_of(LocalFileSystem(), by_log_directory(targets), lambda _: Topics(), CleanerOptions())
    outcomes = list(clean(spark, Workspace(), directories, placement))
    seconds = time.perf_counter() - begun
    assert all(isinstance(outcome, Cleaned) for outcome in outcomes), outcomes
    return seconds


def alone(path: Path) -> float:
    from seglog.cleaner.cleaner import clean_log
    from seglog.cleaner.round import CleanerOptions
    from seglog.clock import SystemClock

    begun = time.perf_counter()
    with open_directory(path, CONFIG) as directory:
        for log in directory.load_all():
            clean_log(log, CleanerOptions(), SystemClock())
    return time.perf_counter() - begun


def best(runs: int, source: Path, work: Callable[[Path], float]) -> float:
    times = []
    for _ in range(runs + 1):
        target = copied(source, source.with_name(source.name + "-copy"))
        times.append(work(target))
    shutil.rmtree(target)
    return min(times[1:])


# --- growth ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grown:
    """The fastest run over one size. `memory` is of all its runs."""

    seconds: float
    shuffled_bytes: int
    memory: Peaks


def shuffled_bytes(spark, since: int) -> tuple[int, int]:
    """(bytes that stages later than `since` wrote for others, the newest stage), as Spark counted them."""
    context = spark.sparkContext
    no_quantiles = context._gateway.new_array(context._gateway.jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(None, False, False, no_quantiles, None)
    found = [stages.apply(i) for i in range(stages.size())]
    written = sum(stage.shuffleWriteBytes() for stage in found if stage.stageId() > since)
    return written, max((stage.stageId() for stage in found), default=-1)


def grown(spark, source: Path, runs: int, check: bool) -> Grown:
    """Cleans copies by shuffle; with `check`, AssertionError unless the last one is what `seglog clean` makes."""
    target, found = source.with_name(source.name + "-copy"), []
    _, stage = shuffled_bytes(spark, -1)
    with MemoryMeter() as meter:
        for _ in range(runs):
            seconds = on_spark(spark, copied(source, target), "shuffle")
            written, stage = shuffled_bytes(spark, stage)
            found.append((seconds, written))
    if check:
        expected = copied(source, source.with_name(source.name + "-expected"))
        alone(expected)
        compare_logs(expected, target)
        shutil.rmtree(expected)
    shutil.rmtree(target)
    return Grown(*min(found), meter.peaks)


def compare_logs(expected: Path, found: Path) -> None:
    """AssertionError unless both have the same `.log` files, byte for byte."""
    names = [sorted(str(file.relative_to(path)) for file in path.rglob("*.log")) for path in (expected, found)]
    assert names[0] == names[1], names
    _, different, unreadable = filecmp.cmpfiles(expected, found, names[0], shallow=False)
    assert not different and not unreadable, (different, unreadable)


def growth(spark, folder: Path, sizes_gb: list[float], runs: int, check: bool) -> None:
    """A line a size."""
    warm = folder / "warm"
    fill(warm, 1, int(0.25e9 / RECORD_BYTES))
    best(1, warm, lambda path: on_spark(spark, path, "shuffle"))
    shutil.rmtree(warm)
    for size_gb in sizes_gb:
        source, records = folder / f"grown-{size_gb:g}", int(size_gb * 1e9 / RECORD_BYTES)
        fill(source, 1, records)
        found = grown(spark, source, runs, check)
        report(f"shuffle, {size_gb:g} GB", records, source, found.seconds)
        mib = [f"{peak / (1 << 20):.0f}" for peak in (found.memory.worker, found.memory.driver, found.memory.jvm)]
        equal = "; equal to seglog clean" if check else ""
        sys.stdout.write(
            f"    {found.shuffled_bytes / records:.1f} B a record shuffled; MiB at most: worker {mib[0]},"
            f" driver {mib[1]}, JVM {mib[2]}{equal}\n"
        )
        sys.stdout.flush()
        shutil.rmtree(source)


def speeds(spark, folder: Path, records: int, directories: int, runs: int) -> None:
    """The three ways over the same number of records."""
    one, many = folder / "one", folder / "many"
    fill(one, 1, records)
    fill(many, directories, records)
    report("seglog clean, one partition", records, one, best(runs, one, alone))
    report("shuffle, one partition", records, one, best(runs, one, lambda path: on_spark(spark, path, "shuffle")))
    seconds = best(runs, many, lambda path: on_spark(spark, path, "directory"))
    report(f"{directories} directories", records, many, seconds)


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
    parser.add_argument("--growth-gb", default="1,2,4,8", help="sizes of --growth in GB")
    parser.add_argument("--check", action="store_true", help="with --growth: compare with seglog clean")
    arguments = parser.parse_args()
    from seglog_ask.spark.session import session

    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g"}
    spark = session("seglog-benchmark", arguments.master, quiet)
    spark.sparkContext.setLogLevel("ERROR")
    if arguments.growth:
        sizes = [float(size) for size in arguments.growth_gb.split(",")]
        growth(spark, arguments.folder, sizes, arguments.runs, arguments.check)
    else:
        speeds(spark, arguments.folder, int(arguments.millions * 1e6), arguments.directories, arguments.runs)
    spark.stop()


if __name__ == "__main__":
    main()
