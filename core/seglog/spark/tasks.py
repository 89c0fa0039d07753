"""Running plain functions in Spark's tasks: values there, values back, and what went wrong as seglog's own errors.

With its value a task sends what it has asked of object stores, which counts on the driver as its own. What an attempt
asked that failed is not counted.

Values travel as pickled binaries in Arrow batches (`mapInArrow`), which works over Spark Connect as well. A SeglogError
in a task is handed back as a value, because trying again would end the same; any other error makes Spark try again.
"""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any, TypeVar

from seglog.errors import IncompleteError, SeglogError, UnsupportedError
from seglog.remote.routing import traffic
from seglog.spark.cleaning_spec import TaskOutcome, failed, packed, revived

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")
Watch = Callable[[int, int], None]  # tasks done, tasks in all

_POLL_SECONDS = 0.2
_TASKS_A_CORE = 8  # so that cores that are done early find work
_MESSAGES_BYTES = 16 << 20  # of messages that make an Arrow batch
_OPENING_BYTES = 1 << 20  # what opening a partition costs, as bytes read meanwhile
_LEAST_TASK_BYTES, _MOST_TASK_BYTES = 32 << 20, 1 << 30
_QUERY_ID = "sql.streaming.queryId"  # Spark: StreamExecution.QUERY_ID_KEY
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
_OURS = re.compile(r"seglog\.errors\.(\w+): (.*)")
_OF_FILES = re.compile(r"\w+: \[Errno (\d+)\] (.+?): '(.*)'$")
_ERROR = re.compile(r"(?!org\.|java\.|scala\.|py4j\.)[\w.]*(Error|Exception|Exit|Interrupt)\b: ")


def run_tasks(
    spark: SparkSession,
    items: Sequence[Item],
    body: Callable[[Item], Any],
    watch: Watch | None = None,
    *,
    sizes: Sequence[int] | None = None,
) -> list[Any]:
    """`body(item)` for each item; the results in the items' order. An item has a task of its own, but that by `sizes`
    (bytes of each) small neighbours share one.

    Raises the first SeglogError of an item. `body` and items are pickled, what the items of a task have in common once.
    `watch` hears how many tasks are done.
    """
    shares = [range(i, i + 1) for i in range(len(items))] if sizes is None else shared(sizes, cores_of(spark))
    work = [[items[i] for i in share] for share in shares]
    found = try_tasks(spark, work, partial(_each, body), watch)
    for outcome in found:
        if isinstance(outcome, TaskOutcome):
            outcome.raise_failure()
    results = [result for one in found for result in one]
    for result in results:
        if isinstance(result, TaskOutcome):
            result.raise_failure()
    return results


def task_bytes(sizes: Sequence[int], cores: int) -> int:
    """How many bytes a task should have, so that each core gets several."""
    total = sum(sizes) + len(sizes) * _OPENING_BYTES
    return min(max(total // (_TASKS_A_CORE * max(1, cores)), _LEAST_TASK_BYTES), _MOST_TASK_BYTES)


def shared(sizes: Sequence[int], cores: int) -> list[range]:
    """Neighbours that share a task: until it has its part of all there is, so that each core gets several tasks."""
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
    """`body(item)` for each item, a task each; the SeglogError of a task is its result, as a `TaskOutcome` with a
    failure.
    """
    if not items:
        return []

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for number, item in blobs_of(batches):
            before = traffic().figures
            result = _attempted(body, pickle.loads(item))
            asked = tuple(now - then for now, then in zip(traffic().figures, before, strict=True))
            yield rows([(number, packed((result, asked)))])

    found = collected(distributed(spark, [packed(item) for item in items]).mapInArrow(work, ROW), watch)
    if len(found) != len(items):
        raise IncompleteError(f"{len(items) - len(found)} of {len(items)} tasks brought no result")
    for _, asked in found.values():
        traffic().count(*asked)
    return [found[number][0] for number in range(len(items))]


def _attempted(body: Callable[[Item], Any], item: Item) -> Any:
    try:
        return body(item)
    except SeglogError as error:
        return failed(error)


# --- rows -----------------------------------------------------------------------------------------------------

ROW = "target int, blob binary"


def rows(messages: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
    """Messages as an Arrow batch with the columns ROW."""
    import pyarrow as pa

    targets = pa.array([target for target, _ in messages], pa.int32())
    blobs = pa.array([blob for _, blob in messages], pa.binary())
    return pa.RecordBatch.from_arrays([targets, blobs], ["target", "blob"])


def distributed(spark: SparkSession, blobs: Sequence[bytes]) -> DataFrame:
    """Rows (number, blob) with the columns ROW, each in a partition of its own: a task is sent its own blob alone."""
    import pyarrow as pa
    from pyspark.sql.functions import col

    table = pa.Table.from_batches([rows(list(enumerate(blobs)))])
    return spark.createDataFrame(table).repartitionById(len(blobs), col("target"))


def blobs_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, memoryview]]:
    """(target, blob) for the rows of Arrow batches with the columns ROW, without a copy."""
    for batch in batches:
        for target, blob in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            yield target, memoryview(blob.as_buffer())


def in_batches(messages: Iterator[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
    """Messages as Arrow batches of about `_MESSAGES_BYTES`."""
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
    """The pickled values of a frame with the columns ROW, by target."""
    with watched(frame.sparkSession, watch), remote_errors():
        table = frame.toArrow()
    return {target: pickle.loads(blob) for target, blob in zip(*(c.to_pylist() for c in table.columns), strict=True)}


def settle() -> None:
    """At the beginning of a task: see `worker.settle_worker`."""
    from seglog.spark.worker import settle_worker

    settle_worker()


def attempt_id() -> int:
    """The number of this attempt of a task, unique within the application; 0 outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


def query_id() -> str | None:
    """The id of the streaming query that this task runs for: that of its checkpoint's metadata; None without one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty(_QUERY_ID)
    return None if found is None else str(uuid.UUID(found))


def local_directory() -> Path:
    """A directory of this executor's own disk that Spark empties at its end (spark.local.dir)."""
    places = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")
    return Path(places[attempt_id() % len(places)])


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at once, as far as the session tells."""
    from pyspark.sql.utils import is_remote

    return 2 if is_remote() else int(spark.sparkContext.defaultParallelism)


# --- errors and progress --------------------------------------------------------------------------------------


@contextmanager
def remote_errors() -> Iterator[None]:
    """Makes the task's own error, or one sentence, of what Spark raises for a task that failed as often as it may."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _told(str(error)) from error


def _told(text: str) -> SeglogError | OSError:
    """What a report of Spark's says: the error that ended the task, where it is ours or the file system's."""
    sentence = last_sentence(text)
    missing = _MISSING.search(text)
    if missing:
        return UnsupportedError(
            f"an executor has no {missing[1]}: install seglog[spark] there, or ship an environment (core/SPARK.md)"
        )
    if ours := _OURS.match(sentence):
        return revived((ours[1], ours[2], {}))
    if of_file := _OF_FILES.match(sentence):
        return OSError(int(of_file[1]), of_file[2], of_file[3])
    return IncompleteError(f"a Spark job failed: {sentence}")


def last_sentence(text: str) -> str:
    """The message at the end of the Python traceback in Spark's report, else its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if _ERROR.match(line)]
    return told[-1] if told else lines[0] if lines else "no reason was given"


@contextmanager
def watched(spark: SparkSession, watch: Watch | None) -> Iterator[None]:
    """Tells `watch` every moment how far Spark's tasks are; over Connect it hears nothing."""
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
