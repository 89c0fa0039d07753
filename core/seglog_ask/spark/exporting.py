"""The export job: records as Parquet, written by the tasks."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.errors import RefusedError
from seglog.model import NO_TIMESTAMP, Isolation
from seglog.scan.selection import EVERYTHING, Selection
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.spark.tasks import Watch, attempt_id, remove_task_files, run_tasks
from seglog_ask.table.plan.files import files_of, sendable
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.schema import default_projection
from seglog_ask.table.plan.splits import Split, plan_splits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """How much was written below the output."""

    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Exported:
    """A file that a task wrote: where it is, and its name below the output."""

    staged: str
    name: str
    rows: int
    bytes: int


def export(
    spark: SparkSession,
    paths: Sequence[Path],
    output: Path,
    options: dict[str, str] | None = None,
    *,
    compression: str = "zstd",
    selection: Selection = EVERYTHING,
    watch: Watch | None = None,
) -> ExportSummary:
    """Writes records as Parquet below `output`, as `topic=…/date=…` (UTC; `date=none` without a timestamp).

    Tasks write with pyarrow, which is faster than passing rows through the JVM. Files get their names when all are
    complete. `options` are those of the data source; `selection` chooses records by offset, time and key, and by its
    isolation. Raises RefusedError unless `output` is missing or empty.
    """
    fs = LocalFileSystem()
    require_empty(fs, output)
    if fs.status(output) is None:
        fs.make_directory(output, parents=True)
    given = {"paths": json.dumps([str(path) for path in paths]), "includeHeaders": "true", **(options or {})}
    if selection.is_committed:
        given["isolationLevel"] = Isolation.READ_COMMITTED.label
    read = sendable(parse_read_options(given))
    staging = output / f"_staging-{uuid.uuid4().hex[:12]}"
    fs.make_directory(staging)
    try:
        splits = list(enumerate(plan_splits(files_of(read.store), read)))
        body = partial(_exported, str(staging), read, compression, selection)
        files: list[_Exported] = [file for found in run_tasks(spark, splits, body, watch) for file in found]
        for file in files:
            target = output / file.name
            if fs.status(target.parent) is None:
                fs.make_directory(target.parent, parents=True)
            fs.rename(Path(file.staged), target)
    finally:
        remove_task_files(fs, staging)
    return ExportSummary(len(files), sum(file.rows for file in files), sum(file.bytes for file in files))


def require_empty(fs: FileSystem, output: Path) -> None:
    """Raises RefusedError unless `output` is missing or an empty directory."""
    status = fs.status(output)
    if status is not None and not status.is_directory:
        raise RefusedError(f"{output}: it is not a directory")
    if status is not None and fs.list(output):
        raise RefusedError(f"{output}: it is not empty; write into an empty directory")


def _exported(
    staging: str, options: ReadOptions, compression: str, selection: Selection, work: tuple[int, Split]
) -> list[_Exported]:
    """In a task: writes a split's records, a file for each topic and day."""
    import pyarrow.parquet as pq

    from seglog_ask.table.engines.arrow import record_batches

    number, split = work
    fs, folder = LocalFileSystem(), Path(staging) / f"{number}-{attempt_id()}"
    source = files_of(options.store)
    fs.make_directory(folder)
    writers: dict[tuple[str, str], pq.ParquetWriter] = {}
    rows: dict[tuple[str, str], int] = defaultdict(int)
    projection = default_projection("records", options.columns, options.include_headers)
    try:
        for batch in record_batches(source, split, projection, options):
            for place, part in _by_day(batch if selection.everything else chosen_rows(batch, selection)):
                if place not in writers:
                    path = folder / f"{len(writers)}.parquet"
                    writers[place] = pq.ParquetWriter(path, part.schema, compression=compression)
                writers[place].write_batch(part)
                rows[place] += part.num_rows
    finally:
        for writer in writers.values():
            writer.close()
    found = []
    for i, (topic, day) in enumerate(writers):
        path = folder / f"{i}.parquet"
        with fs.open(path, "r+") as file:
            file.sync()
            size = file.size()
        name = f"topic={topic}/date={day}/part-{number:05d}.parquet"
        found.append(_Exported(str(path), name, rows[topic, day], size))
    return found


def chosen_rows(batch: pa.RecordBatch, selection: Selection) -> pa.RecordBatch:
    """Returns the rows of the view `records` that a selection chooses by offset, time and key."""
    import pyarrow as pa
    import pyarrow.compute as pc

    conditions = []
    times = pc.fill_null(
        pc.cast(pc.cast(batch.column("timestamp"), pa.timestamp("ms", "UTC")), pa.int64()), NO_TIMESTAMP
    )
    for values, first, end in (
        (batch.column("offset"), selection.first_offset, selection.end_offset),
        (times, selection.first_timestamp, selection.end_timestamp),
    ):
        conditions += [] if first is None else [pc.greater_equal(values, first)]
        conditions += [] if end is None else [pc.less(values, end)]
    if selection.keys is not None:
        conditions.append(pc.is_in(batch.column("key"), pa.array(list(selection.keys), pa.binary())))
    return batch.filter(reduce(pc.and_, conditions)) if conditions else batch


def _by_day(batch: pa.RecordBatch) -> list[tuple[tuple[str, str], pa.RecordBatch]]:
    """Returns the rows of each (topic, day) without the column `topic`, which becomes part of the path.

    A batch only has rows of one topic.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return []
    topic = batch.column("topic")[0].as_py()
    days = pc.fill_null(pc.strftime(batch.column("timestamp"), format="%Y-%m-%d"), "none").dictionary_encode()
    kept = batch.select([name for name in batch.schema.names if name != "topic"])
    if len(days.dictionary) == 1:
        return [((topic, days.dictionary[0].as_py()), kept)]
    return [
        ((topic, day.as_py()), kept.filter(pc.equal(days.indices, pa.scalar(i, days.indices.type))))
        for i, day in enumerate(days.dictionary)
    ]
