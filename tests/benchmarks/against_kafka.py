"""seglog against Kafka 4.3.0's own classes, in one run on the same files: prints a table of ratios.

    python -m tests.benchmarks.against_kafka [--records 1000000] [--work DIRECTORY] [--only clean,verify,…]

Needs Java 17+ and Maven, as the `kafka` tests do. Logs are made by Kafka (16-byte keys, 100-byte text values, batches
of 16 KiB) and kept in the work directory for the next run. In-process work is the best of several runs after a
warm-up on both sides, with the files in the page cache; whole commands are timed as processes. Nothing here is a
test: machines differ, so only the ratios of one run mean anything.

Beside each of seglog's times stands its floor, measured in the same run (`floors`): moving the bytes and the codecs
alone, without looking at a record; of several threads, that of one divided by their number; of whole processes, what
Python's start takes, with numpy where it is needed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import seglog
from seglog.cleaner.cleaner import clean_log
from seglog.cleaner.round import CleanerOptions
from seglog.clock import FixedClock, SystemClock
from seglog.format.decoder import decode_records
from seglog.scan.listing import list_partition, resolve_paths
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.local import LocalFileSystem
from seglog.verification.verify import Level, Verification, VerifyOptions
from tests.benchmarks import floors
from tests.support.kafka import KafkaHarness
from tests.support.kafka.jvm import find_java, kafka_classpath

FS = LocalFileSystem()
SEGMENT_BYTES = 100 << 20
CORES = len(os.sched_getaffinity(0))
NOTES = """\
decode: one thread on both sides, and both read the files within the time. Kafka's tools read a batch at a time, its
clients and its cleaner fill buffers of 1 MiB, as seglog does: the target is for the latter, which is like for like.
clean: both sides are durable. Kafka's doClean fsyncs the files of each segment that it has cleaned before it goes on,
and the directory once a group; it does not wait for its renames before that. seglog fsyncs the same files, in a thread
beside the work, and the directory three times for 16 groups. Each row tells of the fsyncs alone; no floor counts them.
The targets are those of 630 MB (--records 5000000). On an idle machine lz4 reaches 8.2 with two threads; not reached
are none 6.7 and 11.7, lz4 4.3, zstd 3.5 and 7.0, 1 KiB 2.3 and 3.4. Where one thread's time goes (profile, s): none,
of 0.65, reading everything twice 0.24, the map 0.19 (slots and keys are prefetched), filter 0.05, the keys' tables
0.05, checksums 0.04, writing 0.03, unlinking 0.03; lz4, of 1.2, decompressing twice 0.52, compressing 0.23, the map
0.17; zstd, of 2.2, decompressing twice 1.23 and compressing 0.57, which is more than the target leaves for all; 1
KiB, of 0.35, reading 0.19. Tried: chunks of 2, 1 and 0.5 MiB instead of 4: 8, 17 and 45 % slower; of 8 MiB: 9 %. Not
tried: files mapped instead of read, as one that is cut meanwhile would end the process; to keep what was decompressed
for the second pass, as memory.
append: a segment that is rolled is flushed, by seglog before it goes on, by a broker in its scheduler. The first row
counts that on both sides, the second one on seglog's alone."""


@dataclass(frozen=True)
class Measured:
    """One row: seconds of both sides for `amount` of `unit`; the target is a ratio, or None where there is none."""

    what: str
    kafka_seconds: float
    seglog_seconds: float
    amount: float
    unit: str
    target: float | None
    note: str = ""
    floor: float | None = None

    @property
    def ratio(self) -> float:
        return self.kafka_seconds / self.seglog_seconds


def best(work: Callable[[], float], runs: int = 5, warmups: int = 1) -> float:
    """The least seconds of `runs`; `work` returns what it measured."""
    for _ in range(warmups):
        work()
    return min(work() for _ in range(runs))


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Comparison:
    """The logs, the JVM, and a method a row group."""

    def __init__(self, work: Path, records: int, runs: int) -> None:
        self.work, self.records, self.runs = work, records, runs
        self.kafka = KafkaHarness("3g", measuring=True)

    def log(self, codec: str, records: int | None = None, value_size: int = 100, keys: int | None = None) -> Path:
        """A partition directory with all of it in sealed segments; `keys` None: five records a key."""
        count = records or self.records
        topic = f"{codec}-{count}-{value_size}{f'-{keys}' if keys else ''}"
        if not (self.work / f"{topic}-0").exists():
            self.kafka.generate(
                self.work, topic=topic, records=count, value_size=value_size, codec=codec, seed=1, batch_bytes=16384,
                batch_records=1 << 20, segment_bytes=SEGMENT_BYTES, roll_at_end=True,
                key_space=keys or max(count // 5, 1),
            )  # fmt: skip
        directory = self.work / f"{topic}-0"
        for path in directory.iterdir():  # into the page cache
            path.read_bytes()
        return directory

    def size(self, directory: Path) -> int:
        return sum(path.stat().st_size for path in directory.glob("*.log"))

    # --- rows ---------------------------------------------------------------------------------------------------

    def decode(self) -> Iterator[Measured]:
        """All records into columns, one thread; Kafka iterates over them. Both read the files, Kafka in two ways."""
        for codec, target in (("none", 2.0), ("lz4", None), ("zstd", None)):
            directory = self.log(codec)
            ours = best(lambda d=directory: timed(lambda: self._decode(d)), self.runs)
            floor, amount = floors.reading(directory) + floors.opening(directory), self.records / 1e6
            for what, wanted, note in (
                ("records_file", None, "Kafka: FileRecords, a batch a read"),
                ("records_memory", target, "Kafka: buffers of 1 MiB"),
            ):
                theirs = min(self.kafka.measure(directory, what))
                yield Measured(f"decode {codec}", theirs, ours, amount, "M records", wanted, note, floor)

    def _decode(self, directory: Path) -> int:
        count = 0
        for segment in list_partition(FS, directory).segments:
            for chunk in SegmentScan(FS, segment.log):
                count += sum(len(part) for part in decode_records(chunk.data, chunk.batches, chunk.position))
        assert count == self.records, f"{count} of {self.records} records decoded"
        return count

    def verify(self) -> Iterator[Measured]:
        """Headers and checksums with all cores, and every record's structure with one."""
        for codec in ("none", "lz4", "zstd"):
            directory = self.log(codec)
            theirs = min(min(self.kafka.measure(directory, what)) for what in ("verify_file", "verify_memory"))
            ours = best(lambda d=directory: timed(lambda: self._verify(d, Level.CRC, CORES)), self.runs)
            size = self.size(directory) / 1e6
            floor = floors.reading(directory) / CORES
            yield Measured(f"verify crc {codec}", theirs, ours, size, "MB", 1.3, f"{CORES} cores", floor)
        directory = self.log("none")
        theirs = min(min(self.kafka.measure(directory, what)) for what in ("records_file", "records_memory"))
        ours = best(lambda: timed(lambda: self._verify(directory, Level.RECORD, 1)), self.runs)
        note, floor = "one thread; target 3.5 GB/s", floors.reading(directory)
        yield Measured("verify record none", theirs, ours, self.size(directory) / 1e6, "MB", None, note, floor)

    def _verify(self, directory: Path, level: Level, jobs: int) -> None:
        options = VerifyOptions(level=level, jobs=jobs)
        verification = Verification(FS, resolve_paths(FS, [directory]), options, SystemClock())
        assert not list(verification)

    def append(self) -> Iterator[Measured]:
        """Prebuilt columns against prebuilt batches: seglog also builds, encodes and checksums the batches."""
        directory = self.log("none")
        columns = []
        for segment in list_partition(FS, directory).segments:
            for chunk in SegmentScan(FS, segment.log, chunk_bytes=1 << 30):
                columns += decode_records(chunk.data, chunk.batches, chunk.position)

        def once() -> float:
            target = self.work / "bench-0"
            shutil.rmtree(target, ignore_errors=True)
            config = {"segment.bytes": SEGMENT_BYTES, "message.timestamp.after.max.ms": 2**63 - 1}
            with seglog.open_log(target, create=True, config=config) as log:
                seconds = timed(lambda: [log.append(part) for part in columns])
                assert log.log_end_offset == self.records
            shutil.rmtree(target)
            return seconds

        ours, floor = best(once, self.runs), floors.writing(directory, self.work / "floor")
        for flushed, target, note in (
            (True, 1.2, "rolled segments flushed"),
            (False, None, "Kafka's flush not counted"),
        ):
            options = {"work": self.work / "bench-0", "segment_bytes": SEGMENT_BYTES, "flushed": flushed}
            theirs = min(self.kafka.measure(directory, "append", **options))
            yield Measured("append columns", theirs, ours, self.records / 1e6, "M records", target, note, floor)

    def clean(self) -> Iterator[Measured]:
        """One round, durable; one thread, then all cores. A fifth of the records stays, or of few keys next to none."""
        logs = (
            ("none", self.log("none"), 0.2, 8.0, 12.0),
            ("lz4", self.log("lz4"), 0.2, 5.0, 8.0),
            ("zstd", self.log("zstd"), 0.2, 4.5, 8.0),
            ("1 KiB", self.log("none", self.records * 12 // 100, 1024), 0.2, 2.5, 4.0),
            ("few keys", self.log("none", keys=1000), 1000 / self.records, None, None),
        )
        for name, directory, stays, one, all_cores in logs:
            options = {"work": self.work / "bench-0", "segment_bytes": SEGMENT_BYTES}
            theirs = min(self.kafka.measure(directory, "clean", **options))
            size, floor = self.size(directory) / 1e6, floors.cleaning(directory, stays)
            synced = floors.syncing(directory, stays, self.work / "floor-0")
            for jobs, target in ((1, one), (CORES, all_cores)):
                ours = best(lambda d=directory, j=jobs: self._clean(d, j), self.runs)
                note = f"{jobs} thread{'s' * (jobs > 1)}; fsync {synced:.3f} s"
                yield Measured(f"clean {name}", theirs, ours, size, "MB", target, note, floor / jobs)

    def _clean(self, directory: Path, jobs: int) -> float:
        target = self.work / "bench-0"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for path in directory.iterdir():
            if path.suffix == ".log":
                (target / path.name).hardlink_to(path)
            else:
                shutil.copy2(path, target / path.name)
        now = max(int(path.stat().st_mtime * 1000) for path in directory.glob("*.log"))
        config = {"segment.bytes": SEGMENT_BYTES, "cleanup.policy": "compact", "file.delete.delay.ms": 0}
        clock = FixedClock(now)
        with seglog.open_log(target, writable=True, config=config, clock=clock) as log:
            seconds = timed(lambda: clean_log(log, CleanerOptions(jobs=jobs), clock))
        shutil.rmtree(target)
        return seconds

    def dump(self) -> Iterator[Measured]:
        """All records as text, whole processes, output thrown away."""
        directory = self.log("none")
        logs = sorted(directory.glob("*.log"))
        names = ",".join(map(str, logs))
        tool = [str(find_java()), "-Xmx1g", "-cp", kafka_classpath(), "org.apache.kafka.tools.DumpLogSegments"]
        theirs = best(lambda: process([*tool, "--files", names, "--print-data-log"]), 3)
        ours = min(process([*command(), "dump", "--records", str(directory)]) for _ in range(4))
        size, note = self.size(directory) / 1e6, "whole process; 12 x from 600 MB on (--records 5000000)"
        floor = floors.reading(directory) + floors.starting("import numpy")
        yield Measured("dump --records", theirs, ours, size, "MB", 12.0 if size >= 600 else 8.0, note, floor)

    def start(self) -> Iterator[Measured]:
        """How soon a command is there; the other side is the JVM's start with kafka-dump-log's help."""
        tool = [str(find_java()), "-Xmx1g", "-cp", kafka_classpath(), "org.apache.kafka.tools.DumpLogSegments"]
        small = self.log("none", 800)
        files = ["--files", str(min(small.glob("*.log")))]
        ours = min(process([*command(), "--help"]) for _ in range(6))
        theirs, floor = best(lambda: process([*tool, "--help"]), 3), floors.starting("pass")
        yield Measured("seglog --help", theirs, ours, 1, "runs", None, "target 0.15 s", floor)
        ours = min(process([*command(), "dump", "--records", str(small)]) for _ in range(6))
        theirs = best(lambda: process([*tool, *files, "--print-data-log"]), 3)
        floor = floors.starting("import numpy")
        yield Measured("dump of 100 KB", theirs, ours, 1, "runs", None, "target 0.35 s", floor)


def command() -> list[str]:
    """The command line of this environment."""
    return [str(Path(sys.executable).with_name("seglog"))]


def process(arguments: list[str]) -> float:
    """Seconds of a whole process whose output goes nowhere."""
    return timed(lambda: subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False))


GROUPS = ("decode", "verify", "append", "clean", "dump", "start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "seglog-benchmark")
    parser.add_argument("--only", default=",".join(GROUPS), help=f"some of {','.join(GROUPS)}")
    arguments = parser.parse_args()
    table = Table(
        "work", "Kafka s", "seglog s", "floor s", "Kafka /s", "seglog /s", "ratio", "target", "", title="against Kafka"
    )
    comparison = Comparison(arguments.work, arguments.records, arguments.runs)
    try:
        for group in arguments.only.split(","):
            for row in getattr(comparison, group)():
                target = "" if row.target is None else f"{row.target:g} x"
                table.add_row(
                    row.what,
                    f"{row.kafka_seconds:.3f}",
                    f"{row.seglog_seconds:.3f}",
                    "" if row.floor is None else f"{row.floor:.3f}",
                    f"{row.amount / row.kafka_seconds:.4g} {row.unit}",
                    f"{row.amount / row.seglog_seconds:.4g} {row.unit}",
                    f"{row.ratio:.2f} x",
                    target,
                    row.note,
                )
                sys.stderr.write(f"{row.what}: {row.ratio:.2f} x\n")
    finally:
        comparison.kafka.close()
    Console(width=150).print(table, NOTES, sep="\n")


if __name__ == "__main__":
    main()
