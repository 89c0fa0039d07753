"""Spark's error for a failed task becomes the task's own error if that is known, else one sentence."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.errors import PySparkException

from seglog.errors import CorruptRecordError, IncompleteError, SeglogError, UnsupportedError
from seglog.locations import parse_location
from seglog.scan.listing import Target, TargetKind
from seglog_ask.spark.tasks import local_directory, remote_errors, run_tasks, shared
from seglog_stores.remote.traffic import OF_PROCESS

REPORT = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
{}

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
Caused by: java.lang.Exception: more
"""


def raised(report: str) -> SeglogError | OSError:
    with pytest.raises((SeglogError, OSError)) as caught, remote_errors():
        raise PySparkException(report)
    return caught.value


def test_an_error_of_seglog_comes_back_as_itself() -> None:
    error = raised(REPORT.format("seglog.errors.CorruptRecordError: /a/0.log: position 7: the checksum is wrong"))
    assert type(error) is CorruptRecordError
    assert str(error) == "/a/0.log: position 7: the checksum is wrong"


def test_an_error_of_the_file_system_keeps_its_number_and_file() -> None:
    error = raised(REPORT.format("PermissionError: [Errno 13] Permission denied: '/a/0.log'"))
    assert isinstance(error, PermissionError)
    assert (error.errno, error.filename) == (errno.EACCES, "/a/0.log")


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (REPORT.format("ValueError: no such thing"), "ValueError: no such thing"),
        ("Executor lost: out of memory\n\tat org.apache.Spark", "Executor lost: out of memory"),
        ("", "no reason was given"),
    ],
)
def test_anything_else_is_one_sentence(report: str, sentence: str) -> None:
    error = raised(report)
    assert type(error) is IncompleteError
    assert str(error) == f"a Spark job failed: {sentence}"


@pytest.mark.parametrize(
    ("module", "package"), [("seglog", "seglog"), ("seglog_ask.spark.tasks", "seglog"), ("numpy", "numpy")]
)
def test_an_executor_without_a_package_is_told_what_to_install(module: str, package: str) -> None:
    error = raised(REPORT.format(f"ModuleNotFoundError: No module named '{module}'"))
    assert type(error) is UnsupportedError
    assert str(error).startswith(f"an executor has no {package}: install seglog[spark] there")


def test_files_of_a_task_go_to_one_of_sparks_own_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/disk1/blocks,/disk2/blocks")
    assert str(local_directory()) in ("/disk1/blocks", "/disk2/blocks")


class NoSpark:
    """Replaces a session: keeps the rows, and runs functions over them as Spark's tasks do."""

    def __init__(self) -> None:
        self.sent: dict[int, int] = {}  # bytes, by task
        self.sparkSession = self.sparkContext = self
        self.defaultParallelism = 4

    def createDataFrame(self, table: pa.Table) -> NoSpark:
        self._rows = table
        return self

    def repartitionById(self, count: int, _: object) -> NoSpark:
        assert count == self._rows.num_rows
        return self

    def mapInArrow(self, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> NoSpark:
        found = []
        for number, batch in enumerate(self._rows.to_batches(max_chunksize=1)):
            code = cloudpickle.dumps(function)
            self.sent[number] = len(code) + batch.nbytes
            found += list(pickle.loads(code)(iter([batch])))
        self._rows = pa.Table.from_batches(found)
        return self

    def toArrow(self) -> pa.Table:
        return self._rows


def test_a_task_is_sent_its_own_item_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.functions.col", str)
    sizes = {}
    for count in (2, 200):
        spark = NoSpark()
        items = [bytes([number]) * 10_000 for number in range(count)]
        assert run_tasks(spark, items, _length_and_first) == [(10_000, number) for number in range(count)]  # type: ignore[arg-type]
        sizes[count] = max(spark.sent.values())
    assert sizes[200] < sizes[2] + 100 < 20_000


def _length_and_first(item: bytes) -> tuple[int, int]:
    return len(item), item[0]


def test_small_neighbours_share_a_task_and_a_large_one_has_its_own() -> None:
    mebibyte = 1 << 20
    assert shared([], 4) == []
    assert shared([900 * mebibyte, 5, 7, 800 * mebibyte], 1) == [range(1), range(1, 3), range(3, 4)]
    for cores, least, most in ((2, 16, 20), (4, 32, 40), (400, 300, 330)):
        shares = shared([0] * 10_000, cores)
        assert [i for share in shares for i in share] == list(range(10_000))
        assert least <= len(shares) <= most, (cores, len(shares))
    assert len(shared([10 << 30] * 20, 4)) == 20


def test_what_the_items_of_a_task_have_in_common_travels_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.functions.col", str)
    directory = parse_location("s3://a-bucket/clusters/production/backups/kafka-logs")
    targets = [Target(directory / f"payments-{number}", TargetKind.PARTITION) for number in range(2000)]
    spark = NoSpark()
    names = run_tasks(spark, targets, _name, sizes=[3000] * len(targets))  # type: ignore[arg-type]
    assert names == [target.path.name for target in targets]
    assert len(spark.sent) < 70
    alone = len(pickle.dumps(targets[0]))
    assert sum(spark.sent.values()) < 90 * len(targets) < 0.5 * alone * len(targets), alone


def test_an_error_of_an_item_that_shares_a_task_is_raised_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.functions.col", str)
    with pytest.raises(IncompleteError, match="seven of all"):
        run_tasks(NoSpark(), range(20), _all_but_seven, sizes=[0] * 20)  # type: ignore[arg-type]


class OtherProcesses(NoSpark):
    """The same, but the tasks' counts stay in processes of their own."""

    def mapInArrow(self, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> NoSpark:
        before = replace(OF_PROCESS)
        super().mapInArrow(function, _)
        vars(OF_PROCESS).update(vars(before))
        return self


def test_what_tasks_ask_of_object_stores_counts_where_the_job_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.functions.col", str)
    before = OF_PROCESS.figures
    for sizes in (None, [0, 0]):
        assert run_tasks(OtherProcesses(), [3, 4], _asking, sizes=sizes) == [3, 4]  # type: ignore[arg-type]
    asked = [now - then for now, then in zip(OF_PROCESS.figures, before, strict=True)]
    assert asked == [4, 0, 14, 1400]


def _asking(gets: int) -> int:
    OF_PROCESS.count(listings=1, gets=gets, bytes_read=100 * gets)
    return gets


def _name(target: Target) -> str:
    return target.path.name


def _all_but_seven(number: int) -> int:
    if number == 7:
        raise IncompleteError("seven of all")
    return number
