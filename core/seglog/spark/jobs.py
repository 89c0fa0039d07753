"""Jobs over many logs: verify, statistics, export, the latest values, replicas compared.

Each is the one-machine function, spread: a task a partition, or for several small ones (of an export, for a split), the
same result objects. What needs more than one partition at once, such as a log directory's checkpoints, the driver does.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seglog.dump.selection import EVERYTHING, Selection
from seglog.errors import NotALogError, RefusedError
from seglog.evidence.surroundings import read_surroundings
from seglog.format.filenames import PartitionState, parse_topic_partition
from seglog.inspect.diff import Difference, diff_batches, diff_bytes
from seglog.inspect.diff_view import COMMITTED, ViewOptions, diff_view
from seglog.kernels.hashing import SEED_WORDS
from seglog.log.read_loader import viewed_copies
from seglog.model import NO_TIMESTAMP, Isolation, TopicPartition
from seglog.remote.settings import NO_SETTINGS, StoreSettings
from seglog.scan.listing import Target, TargetKind, list_log_directory
from seglog.scan.view import is_held
from seglog.spark.cleaning_blobs import object_blob, opened
from seglog.spark.cleaning_merge import MergeSpace
from seglog.spark.cleaning_swap import remove_tree
from seglog.spark.files import files_of, sent_along
from seglog.spark.measuring import PartitionStatistics as PartitionStatistics
from seglog.spark.measuring import statistics as statistics
from seglog.spark.options import ReadOptions, parse_read_options
from seglog.spark.schema import ddl, default_projection
from seglog.spark.splits import Split, plan_splits
from seglog.spark.tasks import (
    ROW,
    Watch,
    attempt_id,
    blobs_of,
    cores_of,
    distributed,
    in_batches,
    local_directory,
    run_tasks,
    settle,
)
from seglog.spark.tiered import Shown, shown_at, size_of, task_files
from seglog.spark.verifying import Verified, VerifyReport, counted, known_of_giants, summed, verified
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog.tiers.segments import Remark
from seglog.verification.files import verify_log_directory
from seglog.verification.verify import Level, VerifyOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from seglog.spark.latest import LatestPlan

DiffLevel = Literal["bytes", "batches", "view"]


# --- verify ---------------------------------------------------------------------------------------------------


def verify(
    spark: SparkSession,
    targets: Sequence[Target],
    options: VerifyOptions,
    watch: Watch | None = None,
    *,
    store: StoreSettings = NO_SETTINGS,
    seen: FileSystem | None = None,
) -> VerifyReport:
    """`verification.verify` of every partition, in tasks, a giant one in several; checkpoints of log directories on the
    driver.

    `seen`, through which the targets were found, shows those that lie in a tier.
    """
    store = sent_along(store, [target.path for target in targets])
    fs = seen or files_of(store)
    directories = [target.path for target in targets if target.kind is TargetKind.LOG_DIRECTORY]
    around = {path: read_surroundings(fs, path) for path in directories}  # before the logs
    work = [one for target in targets for one in _verifiable(fs, target)]
    alone = replace(options, jobs=1)
    sizes = [size_of(fs, target.path) for target in work]
    items = [(target, shown_at(fs, [target.path])) for target in work]
    known = known_of_giants(spark, fs, items, sizes, alone, store, watch)
    sizes = [0 if each else size for each, size in zip(known, sizes, strict=True)]  # what is known is not read again
    body = partial(verified, alone, store)
    found_by_task: list[Verified] = run_tasks(
        spark, [(*item, each) for item, each in zip(items, known, strict=True)], body, watch, sizes=sizes
    )
    reports = [one.report for one in found_by_task]
    extents = {path: _extents(found_by_task, path) for path in directories}
    if options.level >= Level.INDEX:
        for path in directories:
            live = options.live or is_held(path)
            listing = list_log_directory(fs, path)
            found = tuple(verify_log_directory(fs, listing, around[path], extents[path], live=live))
            reports.append(VerifyReport(found, counted(found)))
    findings = (found for report in reports for found in report.findings)
    remarks = (remark for report in reports for remark in report.remarks)
    return VerifyReport(tuple(findings), summed(report.summary for report in reports), tuple(remarks))


def _verifiable(fs: FileSystem, target: Target) -> list[Target]:
    if target.kind is not TargetKind.LOG_DIRECTORY:
        return [target]
    live = list_log_directory(fs, target.path).partitions
    return [Target(one.path, TargetKind.PARTITION) for one in live if one.state is not PartitionState.DELETED]


def _extents(found: Iterable[Verified], directory: Path) -> dict[TopicPartition, tuple[int, int]]:
    """How far the logs of a log directory reach."""
    every = ((path, extent) for one in found for path, extent in one.extents.items() if path.parent == directory)
    named = ((parse_topic_partition(path.name), extent) for path, extent in every)
    return {key: extent for key, extent in named if key is not None}


# --- diff -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionDiff:
    """The differences between copies of a partition; `copies` are their directories."""

    partition: str
    copies: tuple[str, ...]
    differences: tuple[Difference, ...]
    remarks: tuple[Remark, ...]


def diff(
    spark: SparkSession,
    copies: Sequence[Path],
    level: DiffLevel = "batches",
    *,
    selection: Selection | None = None,
    watch: Watch | None = None,
    store: StoreSettings = NO_SETTINGS,
    seen: FileSystem | None = None,
) -> list[PartitionDiff]:
    """`inspect.diff` of copies of a partition, or of each partition of log directories, in tasks.

    Without a `selection`, all batches are compared, or the view of committed records. `seen` shows copies that lie in a
    tier.
    """
    wanted = selection or (COMMITTED if level == "view" else EVERYTHING)
    store = sent_along(store, copies)
    fs = seen or files_of(store)
    work = [(name, paths, shown_at(fs, paths)) for name, paths in _matched(fs, copies)]
    sizes = [sum(size_of(fs, path) for path in paths) for _, paths, _ in work]
    return run_tasks(spark, work, partial(_differences, level, wanted, store), watch, sizes=sizes)


def _matched(fs: FileSystem, copies: Sequence[Path]) -> list[tuple[str, tuple[Path, ...]]]:
    """(name, its place in each copy) of the partitions to compare."""
    names: set[str] = set()
    alone = True
    for copy in copies:
        status = fs.status(copy)
        if status is None or not status.is_directory:
            raise NotALogError(copy, "no such directory")
        live = [str(one.topic_partition) for one in list_log_directory(fs, copy).live]
        if live:
            alone = False
            names.update(live)
    if alone:
        return [(copies[0].resolve().name, tuple(copies))]
    return [(name, tuple(copy / name for copy in copies)) for name in sorted(names)]


def _differences(
    level: DiffLevel,
    selection: Selection,
    store: StoreSettings,
    work: tuple[str, tuple[Path, ...], tuple[Shown, ...]],
) -> PartitionDiff:
    name, paths, shown = work
    remarks: list[Remark] = []
    fs = task_files(store, shown, remarks.append)
    has = tuple(fs.status(path) is not None for path in paths)
    if not all(has):
        found = [Difference(level, "missing", has, "not every copy has the partition")]
    else:
        with viewed_copies(fs, paths) as (viewed, listings):
            if level == "bytes":
                found = list(diff_bytes(viewed, listings))
            elif level == "batches":
                found = list(diff_batches(viewed, listings, selection))
            else:
                found = list(diff_view(viewed, listings, ViewOptions(selection=selection)))
    return PartitionDiff(name, tuple(str(path) for path in paths), tuple(found), tuple(remarks))


# --- latest ---------------------------------------------------------------------------------------------------


def latest(spark: SparkSession, paths: Sequence[Path], options: dict[str, str] | None = None) -> DataFrame:
    """The live value of each key: key, value, topic, partition, offset, timestamp of its last record.

    Keys whose last record is a tombstone are not there. Committed records alone count, unless `options` (those of the
    data source) say otherwise. Like every DataFrame of seglog it is a snapshot: of what lies there now.
    """
    from pyspark.sql.functions import col

    from seglog.spark.latest import plan_latest

    given = {"paths": json.dumps([str(path) for path in paths]), "isolationLevel": "read_committed", **(options or {})}
    read = _read_options(given)
    splits = plan_splits(files_of(read.store), read)
    plan, work = plan_latest(splits, read, cores_of(spark), os.urandom(8 * SEED_WORDS))
    schema = ddl(plan.projection)
    if not splits:
        return spark.createDataFrame([], schema)
    shares = distributed(spark, [object_blob(one) for one in work])
    if not plan.reducers:
        return shares.mapInArrow(partial(_live_of_split, plan), schema)
    keys = shares.mapInArrow(partial(_keys_of_splits, plan), ROW)
    newest = keys.repartitionById(plan.reducers, col("target")).mapInArrow(partial(_newest_of_keys, plan), ROW)
    both = newest.unionAll(shares).repartitionById(len(splits), col("target"))
    return both.mapInArrow(partial(_live_of_split, plan), schema)


def _keys_of_splits(plan: LatestPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from seglog.spark.latest import SplitShares, index_split

    settle()
    for _, blob in blobs_of(batches):
        work: SplitShares = opened(blob)
        yield from in_batches(index_split(files_of(plan.options.store), plan, work))


def _newest_of_keys(plan: LatestPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from seglog.spark.latest import merge_shares

    settle()
    yield from in_batches(merge_shares(plan, (blob for _, blob in blobs_of(batches)), _space()))


def _live_of_split(plan: LatestPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from seglog.spark.latest import live_rows

    settle()
    blobs = [blob for _, blob in blobs_of(batches)]
    if blobs:
        yield from live_rows(files_of(plan.options.store), plan, blobs, _space())


def _read_options(given: dict[str, str]) -> ReadOptions:
    """The options of a read, with all that tasks must know of object stores."""
    read = parse_read_options(given)
    return replace(read, store=sent_along(read.store, read.paths))


def _space() -> MergeSpace:
    return MergeSpace(LocalFileSystem(), local_directory())


# --- export ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What was written below the output: files, rows, bytes."""

    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Exported:
    """A file of a task: where it lies, and its name below the output."""

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
    """Records as Parquet below `output`, as `topic=…/date=…` (UTC; `date=none` without a timestamp).

    Tasks write with pyarrow, which is faster than rows through the JVM; files appear under their names when all
    are whole. `options` are those of the data source; `selection` chooses records by offset, time and key, and by its
    isolation. RefusedError when `output` exists and holds anything.
    """
    fs = LocalFileSystem()
    require_empty(fs, output)
    if fs.status(output) is None:
        fs.make_directory(output, parents=True)
    given = {"paths": json.dumps([str(path) for path in paths]), "includeHeaders": "true", **(options or {})}
    if selection.is_committed:
        given["isolationLevel"] = Isolation.READ_COMMITTED.label
    read = _read_options(given)
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
        remove_tree(fs, staging)
    return ExportSummary(len(files), sum(file.rows for file in files), sum(file.bytes for file in files))


def require_empty(fs: FileSystem, output: Path) -> None:
    """RefusedError unless `output` is missing or a directory with nothing in it."""
    status = fs.status(output)
    if status is not None and not status.is_directory:
        raise RefusedError(f"{output}: it is no directory")
    if status is not None and fs.list(output):
        raise RefusedError(f"{output}: it holds something already; write into an empty directory")


def _exported(
    staging: str, options: ReadOptions, compression: str, selection: Selection, work: tuple[int, Split]
) -> list[_Exported]:
    """Writes a split's records, a file for each topic and day."""
    import pyarrow.parquet as pq

    from seglog.spark.arrow import record_batches

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
    """The rows of the records view that a selection takes by offset, time and key."""
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
    if selection.key is not None:
        conditions.append(pc.fill_null(pc.equal(batch.column("key"), pa.scalar(selection.key, pa.binary())), False))
    for condition in conditions[1:]:
        conditions[0] = pc.and_(conditions[0], condition)
    return batch.filter(conditions[0]) if conditions else batch


def _by_day(batch: pa.RecordBatch) -> list[tuple[tuple[str, str], pa.RecordBatch]]:
    """The rows of each (topic, day); a batch is of one topic. The column `topic` goes into the path."""
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
