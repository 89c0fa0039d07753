"""Logs in an object store on loopback: verifying them against reading alone, and listing many partitions.

    python -m tests.benchmarks.object_stores [--mebibytes 1024] [--partitions 10000] [--runs 5] [--server quick|moto]

The server is a process of its own: `quick` keeps all objects in memory (tests/support/object_server.py), moto is a real
implementation of S3 that is slower. A partition of uncompressed records is verified at the deepest level, and its logs
are read by obstore alone, by turns: each log as one stream, and in ranges of 4 MiB under 8 threads, as seglog asks for
them. The best of the runs counts on every side. Then the directories of a broker with many partitions of three
segments each are listed as whoever plans a job over them would. Only the ratios of one run mean anything.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import seglog
from seglog.configuration.keys import LogConfig
from seglog.locations import parse_location
from seglog.scan.listing import list_log_directory, list_partition
from seglog_stores.remote.filesystem import RemoteFileSystem
from tests.benchmarks.keyed_logs import RECORD_BYTES, append_keyed, open_directory
from tests.support.object_server import object_server
from tests.support.s3_server import BUCKET, make_bucket, put_directory, s3_server, store_of

TOPIC_PARTITION = seglog.TopicPartition("orders", 0)
SEGMENT_BYTES = 128 << 20
RANGE_BYTES, THREADS = 4 << 20, 8
VERIFY_LIMIT, PLAN_LIMIT_SECONDS, KEYS_PER_LISTING = 1.5, 10.0, 1000


@dataclass(frozen=True)
class Listed:
    """What the listing of many partitions took."""

    partitions: int
    keys: int
    requests: int
    seconds: float


def make_log(directory: Path, mebibytes: int) -> Path:
    """A log directory with one partition of about that size, closed as a broker closes it."""
    config = LogConfig(segment_bytes=SEGMENT_BYTES)
    directory.mkdir()
    with open_directory(directory, config) as owner:
        append_keyed(owner.log(TOPIC_PARTITION, create=True), (mebibytes << 20) // RECORD_BYTES, 1 << 30)
    return directory / str(TOPIC_PARTITION)


def keys_of_partitions(count: int) -> Iterator[str]:
    """The keys of a log directory with partitions of three segments each."""
    for number in range(count):
        directory = f"wide/topic-{number // 100}-{number % 100}"
        for base in (0, 1000, 2000):
            for suffix in ("log", "index", "timeindex"):
                yield f"{directory}/{base:020d}.{suffix}"
        yield from (f"{directory}/{name}" for name in ("leader-epoch-checkpoint", "partition.metadata"))
    yield from (f"wide/{name}" for name in ("meta.properties", "recovery-point-offset-checkpoint"))


def serve_quickly(directory: Path, partitions: int, link: Connection) -> None:
    """The process of the quick server: says where it listens, and ends when `link` does."""
    with object_server() as server:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                server.objects[f"{BUCKET}/{directory.name}/{path.relative_to(directory)}"] = path.read_bytes()
        server.objects.update((f"{BUCKET}/{key}", b"") for key in keys_of_partitions(partitions))
        link.send(server.environment)
        link.recv()


@contextmanager
def quick_server(directory: Path, partitions: int) -> Iterator[dict[str, str]]:
    """The environment of its clients."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve_quickly, args=(directory, partitions, there))
    process.start()
    try:
        yield here.recv()
        here.send(None)
    finally:
        process.join(10)
        process.kill()


@contextmanager
def moto_server(directory: Path, partitions: int) -> Iterator[dict[str, str]]:
    """As `quick_server`."""
    with s3_server(directory.parent / "moto.log") as environment:
        make_bucket(environment)
        put_directory(environment, directory)
        store = store_of(environment)
        import obstore

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda key: obstore.put(store, key, b""), keys_of_partitions(partitions)))
        yield environment


def read_as_streams(store: Any, logs: list[tuple[str, int]]) -> None:
    """Each log from its first byte to its last, one after the other."""
    import obstore

    for key, size in logs:
        assert sum(map(len, obstore.get(store, key).stream(min_chunk_size=RANGE_BYTES))) == size


def read_in_ranges(store: Any, logs: list[tuple[str, int]]) -> None:
    """All logs in ranges, several at a time."""
    import obstore

    ranges = [
        (key, start, min(size, start + RANGE_BYTES)) for key, size in logs for start in range(0, size, RANGE_BYTES)
    ]
    with ThreadPoolExecutor(THREADS) as pool:
        read = pool.map(lambda one: len(obstore.get_range(store, one[0], start=one[1], end=one[2])), ranges)
        assert sum(read) == sum(size for _, size in logs)


def verified(url: str) -> None:
    """All of it, with nothing in a cache. AssertionError when something is wrong with it."""
    verification = seglog.verify(url, fs=RemoteFileSystem())
    assert not [finding for finding in verification if finding.severity.value == "error"]


def list_partitions(url: str) -> Listed:
    """Every segment of every partition below a log directory."""
    fs = RemoteFileSystem()
    begun = time.perf_counter()
    keys = partitions = 0
    for found in list_log_directory(fs, parse_location(url)).live:
        listing = list_partition(fs, found.path)
        assert len(listing.segments) == 3
        keys += 11
        partitions += 1
    return Listed(partitions, keys + 2, fs.traffic.requests, time.perf_counter() - begun)


@dataclass(frozen=True, order=True)
class Taken:
    """What a run took: `seconds` of the clock, `busy` of this process's threads: the server is another one."""

    seconds: float
    busy: float


def best_of(runs: int, sides: dict[str, Callable[[], None]]) -> dict[str, Taken]:
    """The quickest run of each side; the sides take turns."""
    taken: dict[str, list[Taken]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, work in sides.items():
            begun, busy = time.perf_counter(), time.process_time()
            work()
            taken[name].append(Taken(time.perf_counter() - begun, time.process_time() - busy))
    return {name: min(each) for name, each in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--server", choices=("quick", "moto"), default="quick")
    given = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as base:
        partition = make_log(Path(base) / "logs", given.mebibytes)
        logs = [(f"logs/{partition.name}/{path.name}", path.stat().st_size) for path in sorted(partition.glob("*.log"))]
        server = quick_server if given.server == "quick" else moto_server
        with server(partition.parent, given.partitions) as environment:
            os.environ.update(environment)
            store, url = store_of(environment), f"s3://{BUCKET}/logs/{partition.name}"
            least = best_of(
                given.runs,
                {
                    "obstore, streams": lambda: read_as_streams(store, logs),
                    "obstore, ranges": lambda: read_in_ranges(store, logs),
                    "seglog verify": lambda: verified(url),
                    "seglog verify, local": lambda: list(seglog.verify(partition)).clear(),
                },
            )
            listed = list_partitions(f"s3://{BUCKET}/wide")
    show(console, sum(size for _, size in logs), least, listed)
    alone = _alone(least).seconds
    most = listed.keys // KEYS_PER_LISTING + 1
    met = least["seglog verify"].seconds <= VERIFY_LIMIT * alone and listed.requests <= most + 1
    sys.exit(0 if met and listed.seconds < PLAN_LIMIT_SECONDS else 1)


def _alone(least: dict[str, Taken]) -> Taken:
    return min(least["obstore, streams"], least["obstore, ranges"])


def show(console: Console, size: int, least: dict[str, Taken], listed: Listed) -> None:
    """The ratios, and what they may be."""
    table = Table("", "seconds", "MB/s", "of reading alone", "CPU seconds", "of reading alone")
    alone = _alone(least)
    for name, each in least.items():
        rate, ratio = f"{size / each.seconds / 1e6:.0f}", f"{each.seconds / alone.seconds:.2f}"
        table.add_row(name, f"{each.seconds:.2f}", rate, ratio, f"{each.busy:.2f}", f"{each.busy / alone.busy:.2f}")
    console.print(table)
    console.print(
        f"{listed.partitions} partitions, {listed.keys} keys: {listed.requests} requests,"
        f" {listed.keys / listed.requests:.0f} keys each,"
        f" {listed.seconds:.2f} s (wanted: below {PLAN_LIMIT_SECONDS:.0f})"
    )


if __name__ == "__main__":
    main()
