"""The stream sink with crashes, other writers, and checkpoints that are new, moved or set back."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from seglog.model import Record, TopicPartition
from tests.spark.test_write import findings
from tests.support.compacted_directories import opened
from tests.support.dying_sink import DyingSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Pipe:
    """Text files that arrive one after the other, and a stream from them into two partitions of a log directory."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark, self.home, self.logs, self.checkpoint = spark, home, home / "logs", home / "checkpoint"
        (home / "in").mkdir()
        self.arrived = 0

    def arrive(self, count: int) -> None:
        """More rows, one batch's worth."""
        lines = "".join(f"row {n}\n" for n in range(self.arrived, self.arrived + count))
        (self.home / "in" / f"{self.arrived:09}.txt").write_text(lines)
        self.arrived += count

    def run(self, kind: str = "seglog", **options: str) -> None:
        """Until all that has arrived is in the logs."""
        rows = self.spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(self.home / "in"))
        rows = rows.selectExpr("value", "'t' topic", "cast(hash(value) % 2 = 0 as int) partition")
        query = rows.writeStream.format(kind).options(**options).option("checkpointLocation", str(self.checkpoint))
        query.trigger(availableNow=True).start(str(self.logs)).awaitTermination()

    def held(self) -> Counter[str]:
        """Returns how often each value is in the logs."""
        found: Counter[str] = Counter()
        with opened(self.logs, writable=False) as directory:
            for name in directory.topic_partitions:
                found.update((record.value or b"").decode() for record in directory.log(name).records())
        return found

    def rows(self, count: int | None = None) -> Counter[str]:
        return Counter(f"row {n}" for n in range(self.arrived if count is None else count))


@pytest.fixture
def pipe(spark: SparkSession, tmp_path: Path) -> Pipe:
    return Pipe(spark, tmp_path)


def job(pipe: Pipe, count: int) -> Counter[str]:
    """A batch job that succeeds."""
    rows = pipe.spark.range(count).selectExpr("concat('job ', id) value", "'t' topic", "0 partition")
    rows.coalesce(1).write.format("seglog").mode("append").save(str(pipe.logs))
    return Counter(f"job {n}" for n in range(count))


def appended(pipe: Pipe, count: int) -> Counter[str]:
    """Appends as `seglog append` does."""
    with opened(pipe.logs) as directory:
        directory.log(TopicPartition("t", 1), create=True).append([Record(b"app %d" % n, b"k") for n in range(count)])
    return Counter(f"app {n}" for n in range(count))


# the other moments: tests/crash/test_staged_append.py
@pytest.mark.parametrize("function", ["append_placed", "record_batch"])
def test_a_driver_that_dies_in_a_commit_loses_and_doubles_nothing(pipe: Pipe, function: str) -> None:
    pipe.spark.dataSource.register(DyingSource)
    pipe.arrive(50)
    pipe.arrive(50)
    with pytest.raises(StreamingQueryException):
        pipe.run("seglog_dying", diesAfter=function)
    assert (pipe.home / "died").exists()
    others = job(pipe, 1000) + appended(pipe, 10)
    pipe.arrive(50)
    pipe.run()
    assert pipe.held() == pipe.rows() + others
    assert findings(pipe.logs) == []
    assert {path.name for path in pipe.home.iterdir()} == {"in", "logs", "checkpoint", "died"}


def test_a_new_checkpoint_at_an_old_path_drops_nothing(pipe: Pipe) -> None:
    for count in (100, 100):
        pipe.arrive(count)
        pipe.run()
    shutil.rmtree(pipe.checkpoint)
    pipe.arrive(500)
    pipe.run()
    assert pipe.held() == pipe.rows() + pipe.rows(200)  # the new query reads the old rows as well
    assert sum(pipe.held().values()) == 900


def test_a_moved_checkpoint_goes_on_where_it_was(pipe: Pipe) -> None:
    pipe.arrive(100)
    pipe.run()
    forget_last_commit(pipe.checkpoint)
    pipe.checkpoint = pipe.checkpoint.rename(pipe.home / "elsewhere")
    pipe.run()
    pipe.arrive(100)
    pipe.run()
    assert pipe.held() == pipe.rows()


def test_a_checkpoint_that_counts_from_the_beginning_again_is_refused(pipe: Pipe) -> None:
    for _ in range(2):
        pipe.arrive(100)
        pipe.run()
    for name in ("offsets", "commits", "sources"):
        shutil.rmtree(pipe.checkpoint / name)
    with pytest.raises(StreamingQueryException, match="its checkpoint was set back or copied"):
        pipe.run()
    assert pipe.held() == pipe.rows()


def test_one_query_may_write_to_two_places_and_two_queries_to_one(pipe: Pipe) -> None:
    pipe.arrive(100)
    pipe.run()
    first = pipe.logs
    pipe.logs = pipe.home / "other"
    forget_last_commit(pipe.checkpoint)
    pipe.run()
    assert pipe.held() == pipe.rows()
    pipe.logs, pipe.checkpoint = first, pipe.home / "second" / "checkpoint"
    pipe.run()
    assert pipe.held() == pipe.rows() + pipe.rows()


def forget_last_commit(checkpoint: Path) -> None:
    """Restores the state after a crash between the append and Spark's own record of it: the batch comes again."""
    latest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (latest, latest.with_name(f".{latest.name}.crc")):
        path.unlink(missing_ok=True)
