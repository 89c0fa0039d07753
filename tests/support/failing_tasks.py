"""A program: Spark jobs whose tasks fail at their first attempt, in a session of its own with four attempts a task.

    python -m tests.support.failing_tasks HOME

HOME/logs holds `giant-0` (cleaned with the shuffle) and `small-0` (cleaned in one task); HOME/read is read, exported
to HOME/lake, and written from there to HOME/written. Every first attempt does its work and then fails, so that all it
could leave behind is there: it raises, or its worker's process ends at once. HOME/failed gets an empty file for each,
by stage and task. Prints a line of JSON: what the jobs brought, and how many directories of spilled keys there were.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from seglog.cleaner.round import CleanerOptions
from seglog.operations.workspace import Workspace
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark import cleaning, exporting
from seglog_ask.spark.session import session
from seglog_ask.spark.source import SeglogDataSource, SeglogReader, SeglogWriter
from seglog_stores.formats.tier_names import COMMITTED
from tests.support.compacted_directories import Topics, cleanings
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS

if TYPE_CHECKING:
    import pyarrow as pa

FS = LocalFileSystem()
CLOCK = ManualClock(START_MS + 100_000)
TOPICS = Topics(cleanup_policy="compact", segment_bytes=2000)


class OnPurpose(Exception):
    """The failure of a first attempt."""


class FirstAttempt:
    """Fails the first attempt of each task, once its work is done; `kill` ends the worker's process."""

    def __init__(self, stage: str, home: Path, kill: bool = False) -> None:
        self.stage, self.home, self.kill = stage, home, kill

    def end(self) -> None:
        """What a task calls after its work."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() > 0:
            return
        (self.home / "failed" / f"{self.stage}-{context.partitionId()}").touch()
        if self.kill:
            os._exit(1)
        raise OnPurpose(f"{self.stage}: failed on purpose")

    def after(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, and then the end."""
        yield from batches
        self.end()

    def after_output(self, work: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """The generator function, failing after all that it yields."""
        return lambda *arguments: self.after(work(*arguments))

    def after_input(self, work: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """The generator function, failing when all batches, its last argument, have come in."""
        return lambda *arguments: work(*arguments[:-1], self.after(arguments[-1]))

    def after_result(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The function, failing when it has its result."""

        def failing(*arguments: object) -> object:
            result = work(*arguments)
            self.end()
            return result

        return failing


class FailingReader(SeglogReader):
    """Its tasks fail once their rows have gone out."""

    first: FirstAttempt

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.first.after(super().read(partition))


class FailingWriter(SeglogWriter):
    """Its tasks fail once their rows are staged."""

    first: FirstAttempt

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(iterator)
        self.first.end()
        return message


class FailingSource(SeglogDataSource):
    """`seglog` with tasks that fail."""

    home: Path

    def reader(self, schema: StructType) -> SeglogReader:
        reader = super().reader(schema)
        reader.__class__, reader.first = FailingReader, FirstAttempt("read", self.home)  # type: ignore[attr-defined]
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> SeglogWriter:
        writer = super().writer(schema, overwrite)
        writer.__class__, writer.first = FailingWriter, FirstAttempt("write", self.home)  # type: ignore[attr-defined]
        return writer  # type: ignore[return-value]


def make_tasks_fail(home: Path) -> None:
    """Puts a failing task into the place of each that jobs run."""
    cleaning._index = FirstAttempt("index", home).after_output(cleaning._index)  # type: ignore[assignment]
    cleaning._merge = FirstAttempt("merge", home, kill=True).after_input(cleaning._merge)  # type: ignore[assignment]
    cleaning._rewrite = FirstAttempt("rewrite", home, kill=True).after_output(cleaning._rewrite)  # type: ignore[assignment]
    cleaning._whole = FirstAttempt("whole", home).after_result(cleaning._whole)  # type: ignore[assignment]
    exporting._exported = FirstAttempt("export", home).after_result(exporting._exported)  # type: ignore[assignment]


def main(home: Path) -> None:
    """Runs the jobs and prints what they brought."""
    (home / "failed").mkdir()
    make_tasks_fail(home)
    local = home / "local"
    settings = {
        "spark.ui.enabled": "false",
        "spark.local.dir": str(local),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = session("failing tasks", "local[2,4]", settings)
    FailingSource.home = home
    spark.dataSource.register(FailingSource)
    outcomes = []
    for name, placement in (
        ("giant-0", cleaning.Placement("shuffle", reducers=3, reducer_memory_bytes=1)),
        ("small-0", cleaning.Placement("directory")),
    ):
        work = cleanings(FS, [home / "logs" / name], TOPICS, CleanerOptions(roll=True))
        cleaned = cleaning.clean(spark, Workspace(FS, CLOCK), work, placement)
        outcomes += [type(outcome).__name__ for outcome in cleaned]
    count = spark.read.format("seglog").option("maxPartitionBytes", "2000").load(str(home / "read")).count()
    exported = exporting.export(spark, [home / "read"], home / "lake").rows
    # out of Parquet, as a task that also read would have failed before it wrote
    rows = spark.read.parquet(str(home / "lake")).drop("date").repartitionById(2, "partition")
    rows = rows.sortWithinPartitions("partition", "offset")
    rows.write.format("seglog").mode("append").save(str(home / "written"))
    (home / "prefix" / COMMITTED).mkdir(parents=True)
    rows.write.format("seglog").mode("append").save(str(home / "prefix"))
    spilled = len(list(local.rglob("seglog-merge-*")))
    spark.stop()
    told = {"cleaned": outcomes, "read": count, "exported": exported, "spilled": spilled}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
