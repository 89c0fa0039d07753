"""Runs plain functions in Spark's tasks: values go out and come back, and errors come back as seglog's own.

Values travel as pickled binaries in Arrow batches (`mapInArrow`), which works over Spark Connect as well. A SeglogError
in a task is handed back as a value, because a retry would end the same way; any other error makes Spark retry.

With its value, a task sends what it has requested of object stores, which the driver counts as its own. Requests of
failed attempts are not counted.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import pickle
import re
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from seglog import errors
from seglog.errors import IncompleteError, SeglogError, UnsupportedError
from seglog.storage import files
from seglog.storage.filesystem import FileSystem
from seglog_ask.table.plan.files import files_of
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.schema import Field
from seglog_ask.table.plan.splits import Split
from seglog_stores.remote import traffic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from seglog_ask.table.values.spark_values import SparkValues

Item = TypeVar("Item")
Result = TypeVar("Result")
Watch = Callable[[int, int], None]  # tasks done, tasks in all

_logger = logging.getLogger("seglog.spark.tasks")

_POLL_SECONDS = 0.2
_TASKS_A_CORE = 8  # so that cores that finish early find work
_MESSAGES_BYTES = 16 << 20  # of messages that make an Arrow batch
_OPENING_BYTES = 1 << 20  # the cost of opening a partition, in bytes read
_LEAST_TASK_BYTES, _MOST_TASK_BYTES = 32 << 20, 1 << 30
_MANY_OBJECTS = 2000
_QUERY_ID = "sql.streaming.queryId"  # Spark: StreamExecution.QUERY_ID_KEY
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '(seglog(?=_)|\w+)")
_SEGLOG_ERROR = re.compile(r"seglog\.errors\.(\w+): (.*)")
_OS_ERROR = re.compile(r"\w+: \[Errno (\d+)\] (.+?): '(.*)'$")
_ERROR = re.compile(r"(?!org\.|java\.|scala\.|py4j\.)[\w.]*(Error|Exception|Exit|Interrupt)\b: ")


def run_tasks(
    spark: SparkSession,
    items: Sequence[Item],
    body: Callable[[Item], Any],
    watch: Watch | None = None,
    *,
    sizes: Sequence[int] | None = None,
) -> list[Any]:
    """Returns `body(item)` for each item, in the items' order.

    Each item has a task of its own; with `sizes` (bytes of each), small neighbours share one. Raises the first
    SeglogError of an item. `body` and items are pickled; objects that the items of a task share are pickled once.
    `watch` is told how many tasks are done.
    """
    shares = [range(i, i + 1) for i in range(len(items))] if sizes is None else shared(sizes, cores_of(spark))
    work = [[items[i] for i in share] for share in shares]
    found = try_tasks(spark, work, partial(_each, body), watch)
    for outcome in found:
        if isinstance(outcome, SeglogError):
            raise outcome
    results = [result for one in found for result in one]
    for result in results:
        if isinstance(result, SeglogError):
            raise result
    return results


def task_bytes(sizes: Sequence[int], cores: int) -> int:
    """Returns how many bytes a task should read, so that each core gets several tasks."""
    total = sum(sizes) + len(sizes) * _OPENING_BYTES
    return min(max(total // (_TASKS_A_CORE * max(1, cores)), _LEAST_TASK_BYTES), _MOST_TASK_BYTES)


def shared(sizes: Sequence[int], cores: int) -> list[range]:
    """Returns runs of neighbours that share a task, each of at most `task_bytes` or one item."""
    most = task_bytes(sizes, cores)
    shares, begin, held = [], 0, 0
    for i, size in enumerate(sizes):
        weight = size + _OPENING_BYTES
        if i > begin and held + weight > most:
            shares.append(range(begin, i))
            begin, held = i, 0
        held += weight
    return [*shares, range(begin, len(sizes))] if sizes else []


def _each(body: Callable[[Item], Any], items: Sequence[Item]) -> list[Any]:
    return [_attempted(body, item) for item in items]


def try_tasks(
    spark: SparkSession, items: Sequence[Item], body: Callable[[Item], Any], watch: Watch | None = None
) -> list[Any]:
    """Returns `body(item)` for each item, with a task for each. A SeglogError that a task raises is its result."""
    if not items:
        return []

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for number, item in blobs_of(batches):
            before = traffic.OF_PROCESS.figures
            result = _attempted(body, pickle.loads(item))
            asked = tuple(now - then for now, then in zip(traffic.OF_PROCESS.figures, before, strict=True))
            yield rows([(number, packed((result, asked)))])

    found = collected(distributed(spark, [packed(item) for item in items]).mapInArrow(work, ROW), watch)
    if len(found) != len(items):
        raise IncompleteError(f"{len(items) - len(found)} of {len(items)} tasks returned no result")
    for _, asked in found.values():
        traffic.OF_PROCESS.count(*asked)
    return [found[number][0] for number in range(len(items))]


def _attempted(body: Callable[[Item], Any], item: Item) -> Any:
    try:
        return body(item)
    except SeglogError as error:
        return error


# --- rows -----------------------------------------------------------------------------------------------------

ROW = "target int, blob binary"


def packed(value: object) -> bytes:
    """Pickles a value for a binary column."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def rows(messages: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
    """Returns messages as an Arrow batch with the columns ROW."""
    import pyarrow as pa

    targets = pa.array([target for target, _ in messages], pa.int32())
    blobs = pa.array([blob for _, blob in messages], pa.binary())
    return pa.RecordBatch.from_arrays([targets, blobs], ["target", "blob"])


def distributed(spark: SparkSession, blobs: Sequence[bytes]) -> DataFrame:
    """Returns rows (number, blob) with the columns ROW, one per partition: a task is only sent its own blob."""
    import pyarrow as pa
    from pyspark.sql.functions import col

    table = pa.Table.from_batches([rows(list(enumerate(blobs)))])
    return spark.createDataFrame(table).repartitionById(len(blobs), col("target"))


def blobs_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, memoryview]]:
    """Yields (target, blob) for the rows of Arrow batches with the columns ROW, without a copy."""
    for batch in batches:
        for target, blob in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            yield target, memoryview(blob.as_buffer())


def in_batches(messages: Iterator[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
    """Yields messages as Arrow batches of about `_MESSAGES_BYTES`."""
    waiting: list[tuple[int, bytes]] = []
    held = 0
    for message in messages:
        waiting.append(message)
        held += len(message[1])
        if held >= _MESSAGES_BYTES:
            yield rows(waiting)
            waiting, held = [], 0
    if waiting:
        yield rows(waiting)


def collected(frame: DataFrame, watch: Watch | None) -> dict[int, Any]:
    """Returns the unpickled values of a frame with the columns ROW, by target."""
    with watched(frame.sparkSession, watch), remote_errors():
        table = frame.toArrow()
    return {target: pickle.loads(blob) for target, blob in zip(*(c.to_pylist() for c in table.columns), strict=True)}


# --- inside a task --------------------------------------------------------------------------------------------


def settle() -> None:
    """Begins a task: hides everything loaded before it from the garbage collector.

    PySpark's daemon collects after every task. With pyarrow and pandas loaded that takes 50 ms a task; frozen, it takes
    0. What a worker's first task loads (mainly kernels) is frozen by its second one.
    """
    if len(gc.get_objects()) > _MANY_OBJECTS:  # those not frozen yet
        gc.collect()
        gc.freeze()


def read_split(
    split: Split | None, projection: Sequence[Field], options: ReadOptions, values: SparkValues | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a split. Spark makes one partition without a split of no splits at all."""
    from seglog_ask.table.engines.arrow import split_batches

    settle()
    if split is not None:
        decoded = () if values is None else values.outputs
        yield from split_batches(files_of(options.store), split, projection, options, decoded)


def attempt_id() -> int:
    """Returns the number of this task attempt, unique within the application; 0 outside a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


def query_id() -> str | None:
    """Returns the id of this task's streaming query, as in its checkpoint's metadata; None without one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty(_QUERY_ID)
    return None if found is None else str(uuid.UUID(found))


def local_directory() -> Path:
    """Returns a directory on this executor's own disk that Spark empties when it ends (spark.local.dir)."""
    places = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")
    return Path(places[attempt_id() % len(places)])


def remove_task_files(fs: FileSystem, directory: Path) -> None:
    """Removes a directory of tasks.

    An attempt that Spark has not stopped yet may still write there. What it adds meanwhile stays, and is logged.
    """
    try:
        files.remove_tree(fs, directory)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        _logger.warning("%s: a task still writes there; remove it later", directory)


def cores_of(spark: SparkSession) -> int:
    """Returns how many tasks run at once, as far as the session knows; 2 over Connect."""
    from pyspark.sql.utils import is_remote

    return 2 if is_remote() else int(spark.sparkContext.defaultParallelism)


# --- errors and progress --------------------------------------------------------------------------------------


@contextmanager
def remote_errors() -> Iterator[None]:
    """Turns Spark's error for a task that used up its attempts into the task's own error, or into one sentence."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _cause(str(error)) from error


def _cause(report: str) -> SeglogError | OSError:
    """Returns the error in Spark's report that ended the task, if it is seglog's or the file system's."""
    sentence = last_sentence(report)
    missing = _MISSING_MODULE.search(report)
    if missing:
        return UnsupportedError(
            f"an executor has no {missing[1]}: install seglog[spark] there, or ship an environment (core/SPARK.md)"
        )
    if ours := _SEGLOG_ERROR.match(sentence):
        kind = getattr(errors, ours[1], SeglogError)
        return cast(SeglogError, kind.__new__(kind, ours[2]))
    if of_file := _OS_ERROR.match(sentence):
        return OSError(int(of_file[1]), of_file[2], of_file[3])
    return IncompleteError(f"a Spark job failed: {sentence}")


def last_sentence(report: str) -> str:
    """Returns the message at the end of the Python traceback in Spark's report, else the report's first line."""
    lines = [line.strip() for line in report.splitlines() if line.strip()]
    messages = [line for line in lines if _ERROR.match(line)]
    return messages[-1] if messages else lines[0] if lines else "no reason was given"


@contextmanager
def watched(spark: SparkSession, watch: Watch | None) -> Iterator[None]:
    """Calls `watch` regularly with the progress of Spark's tasks; never over Connect."""
    from pyspark.sql.utils import is_remote

    if watch is None or is_remote():
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_poll, args=(spark, watch, stop), name="seglog-spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _poll(spark: SparkSession, watch: Watch, stop: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}
    while not stop.wait(_POLL_SECONDS):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                seen[stage] = (info.numCompletedTasks, info.numTasks)
        active = set(tracker.getActiveStageIds())
        done = sum(total if stage not in active else part for stage, (part, total) in seen.items())
        watch(done, sum(total for _, total in seen.values()))
