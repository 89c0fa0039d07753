"""How the work of Spark's tasks in an object store grows with size and partitions, in requests, bytes and their price.

    python -m tests.benchmarks.object_requests [--mebibytes 32,64,128,256] [--partitions 1,8,32]

Logs of 126-byte records lie in a store on loopback, in segments of 16 MiB. A query over all columns is planned and
read, the partitions are verified at the deepest level and cleaned into new objects, by the plain functions that Spark's
tasks run, one after the other in this process; each begins with an empty cache. What is counted does not depend on the
machine; how long it takes means nothing here. Prices are the defaults of `remote.price.*`.
"""

from __future__ import annotations

import argparse
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import seglog
from seglog.cleaner.round import CleanerOptions
from seglog.configuration.keys import LogConfig
from seglog.configuration.prices import Prices
from seglog.errors import SeglogError
from seglog.locations import parse_location
from seglog.operations.clean import directories_of
from seglog.operations.workspace import Sources, Workspace, by_log_directory
from seglog.scan.listing import resolve_paths
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.cleaning_objects import Destination, clean_into
from seglog_ask.spark.cleaning_round import RoundSpec, SegmentCopy, TaskOutcome
from seglog_ask.spark.cleaning_stages import rewrite_round
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.engines.arrow import record_batches
from seglog_ask.table.plan.files import files_of
from seglog_ask.table.plan.schema import default_projection
from seglog_ask.table.plan.splits import plan_splits
from seglog_stores.remote.settings import StoreSettings
from seglog_stores.remote.traffic import OF_PROCESS, Traffic
from seglog_stores.tiers.view import see_tiers
from tests.benchmarks.keyed_logs import RECORD_BYTES, append_keyed, open_directory
from tests.support.object_server import ObjectServer, object_server

SEGMENT_BYTES = 16 << 20
KEY_SHARE = 0.4


@dataclass(frozen=True)
class Here:
    """Spark's tasks in this process; what goes in and out is pickled."""

    disk: Path

    def rewrite(self, specs: Sequence[RoundSpec]) -> list[list[TaskOutcome | SeglogError]]:
        """A task a partition."""
        return [[sent(rewrite_round(LocalFileSystem(), sent(spec), 0, self.disk))] for spec in specs]

    def run(self, items: Sequence[SegmentCopy], body: Callable[[SegmentCopy], Any]) -> list[Any]:
        """A task an item."""
        return [sent(body(sent(item))) for item in items]


def sent(value: Any) -> Any:
    """As it arrives in a task."""
    return pickle.loads(pickle.dumps(value))


def put_logs(server: ObjectServer, base: Path, mebibytes: int, partitions: int) -> str:
    """A log directory of that size in all, put into the store; its URL."""
    directory = base / f"logs-{mebibytes}-{partitions}"
    directory.mkdir()
    records = (mebibytes << 20) // RECORD_BYTES // partitions
    with open_directory(directory, LogConfig(segment_bytes=SEGMENT_BYTES)) as owner:
        for number in range(partitions):
            log = owner.log(seglog.TopicPartition("orders", number), create=True)
            append_keyed(log, records, max(1, int(records * KEY_SHARE)), seed=number)
    for path in directory.rglob("*"):
        if path.is_file():
            server.objects[f"bkt/{directory.name}/{path.relative_to(directory)}"] = path.read_bytes()
    return f"s3://bkt/{directory.name}"


def read_all(url: str, store: dict[str, str]) -> None:
    """A plan on the driver, and every split in a task."""
    options = parse_read_options({"path": url, **store})
    projection = default_projection("records", None, False)
    for split in sent(plan_splits(files_of(options.store), options)):
        for _ in record_batches(files_of(options.store), split, projection, options):
            pass


def verify_all(url: str, store: dict[str, str]) -> None:
    """Every partition, at the deepest level."""
    found = seglog.verify(url, fs=files_of(StoreSettings.of(store)))
    assert not [each for each in found if each.severity.value == "error"]


def clean_all(url: str, store: dict[str, str], disk: Path) -> None:
    """All partitions into a prefix of their own."""
    to = Destination([parse_location(url)], parse_location(f"{url}-cleaned"), StoreSettings.of(store))
    fs, shown = see_tiers(files_of(to.store), to.sources)
    work = Workspace(fs)
    topics = work.settings(Path("/"), Sources({"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}))
    directories = directories_of(
        fs, by_log_directory(resolve_paths(fs, shown)), lambda _: topics, CleanerOptions(roll=True)
    )
    clean_into(Here(disk), to, work, shown, directories)


@contextmanager
def counted() -> Iterator[Traffic]:
    """What is asked meanwhile."""
    found, whole = Traffic(), OF_PROCESS
    before = (whole.listings, whole.heads, whole.gets, whole.bytes_read, whole.puts)
    yield found
    after = (whole.listings, whole.heads, whole.gets, whole.bytes_read, whole.puts)
    found.count(*(now - then for now, then in zip(after, before, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", default="32,64,128,256")
    parser.add_argument("--partitions", default="1,8,32")
    given = parser.parse_args()
    sizes, counts = ([int(one) for one in text.split(",")] for text in (given.mebibytes, given.partitions))
    cases = [(size, counts[0]) for size in sizes] + [(sizes[-1], count) for count in counts[1:]]
    table = Table("MiB", "partitions", "work", "listings", "reads", "puts", "MB read", "dollars", "dollars per TB")
    with tempfile.TemporaryDirectory() as text, object_server() as server:
        base, number = Path(text), 0
        os.environ.update(server.environment)
        for mebibytes, partitions in cases:
            url = put_logs(server, base, mebibytes, partitions)
            works: dict[str, Callable[[dict[str, str]], None]] = {
                "read": lambda store, url=url: read_all(url, store),  # type: ignore[misc]
                "verify": lambda store, url=url: verify_all(url, store),  # type: ignore[misc]
                "clean": lambda store, url=url: clean_all(url, store, base),  # type: ignore[misc]
            }
            for name, work in works.items():
                number += 1  # other settings are other files, with a cache of their own
                with counted() as asked:
                    work({**server.environment, "SEGLOG_REMOTE_TIMEOUT": f"{100 + number}s"})
                cost = asked.cost(Prices())
                counts_of = (asked.listings, asked.heads + asked.gets, asked.puts, asked.bytes_read // 1_000_000)
                per_tb = cost / (mebibytes << 20) * 1e12
                table.add_row(
                    str(mebibytes), str(partitions), name, *map(str, counts_of), f"{cost:.6f}", f"{per_tb:.2f}"
                )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
