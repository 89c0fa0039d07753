"""Streams, the sink and the commands report an error in one sentence, with its place."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

from seglog_cli.app import run
from tests.support.naive import NaiveRecord, batch_v2

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

RECORDS = 10


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A log directory with one partition of four batches: a byte of the second one is wrong."""
    path = tmp_path / "logs" / "t-0" / f"{0:020}.log"
    path.parent.mkdir(parents=True)
    batches = [batch_v2(n * RECORDS, [NaiveRecord(i, i, b"k", b"v") for i in range(RECORDS)]) for n in range(4)]
    data = bytearray(b"".join(batches))
    data[len(batches[0]) + 100] ^= 0xFF
    path.write_bytes(data)
    return tmp_path / "logs"


PLACE = r"t-0/0+\.log: position \d+: the checksum of the batch is wrong.*offsets 10 to 19"


def follow(spark: SparkSession, source: Path, home: Path, **options: str) -> None:
    reader = spark.readStream.format("seglog").option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name, value)
    stream = reader.load(str(source)).select("offset").writeStream.format("parquet")
    stream = stream.option("checkpointLocation", f"{home}/checkpoint").trigger(availableNow=True)
    stream.start(f"{home}/out").awaitTermination()


def test_a_stream_stops_at_damage_and_goes_on_where_it_is_told_to_skip(
    spark: SparkSession, damaged: Path, tmp_path: Path
) -> None:
    with pytest.raises(StreamingQueryException, match=PLACE):
        follow(spark, damaged, tmp_path)
    follow(spark, damaged, tmp_path, onCorrupt="skip")
    rows = spark.read.parquet(f"{tmp_path}/out").collect()
    assert sorted(row.offset for row in rows) == [*range(10), *range(20, 40)]


def test_a_log_that_ends_before_its_high_watermark_is_data_loss(spark: SparkSession, damaged: Path) -> None:
    path = damaged / "t-0" / f"{0:020}.log"
    path.write_bytes(batch_v2(0, [NaiveRecord(i, i, b"k", b"v") for i in range(RECORDS)]))
    (damaged / "replication-offset-checkpoint").write_text("0\n1\nt 0 40\n")
    reader = spark.read.format("seglog")
    with pytest.raises(PythonException, match=r"0\.log: position \d+: offsets 10 to 39 are missing"):
        reader.load(str(damaged)).count()
    assert reader.option("failOnDataLoss", "false").load(str(damaged)).count() == RECORDS


def test_wrong_options_of_a_stream_are_the_only_error(spark: SparkSession, damaged: Path, tmp_path: Path) -> None:
    with pytest.raises(StreamingQueryException, match="maxOffsetsPerTrigger: '-1' is not positive") as caught:
        follow(spark, damaged, tmp_path, maxOffsetsPerTrigger="-1")
    assert "UnboundLocalError" not in str(caught.value)


def test_a_thread_writes_after_it_has_made_the_session_active(spark: SparkSession, tmp_path: Path) -> None:
    def work() -> None:
        spark.createDataFrame([], "one int")
        write(spark.range(3).selectExpr("cast(id AS string) AS value").coalesce(1), tmp_path / "logs", topic="t")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
    assert spark.read.format("seglog").load(str(tmp_path / "logs")).count() == 3


def test_a_sink_needs_a_value_and_leaves_nothing(spark: SparkSession, damaged: Path, tmp_path: Path) -> None:
    rows = spark.readStream.format("seglog").option("startingOffsets", "earliest").load(str(damaged)).select("key")
    sink = rows.writeStream.format("seglog").option("path", f"{tmp_path}/sink").trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="the column 'value' is missing"):
        sink.option("checkpointLocation", f"{tmp_path}/checkpoint").start().awaitTermination()
    assert not (tmp_path / "sink").exists()


def write(frame: DataFrame, path: Path, **options: str) -> None:
    writer = frame.write.format("seglog").mode("append")
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save(str(path))


def below(path: Path) -> list[str]:
    """Everything in a directory and below, and the staging directories of writes beside it."""
    inside = [str(p.relative_to(path)) for p in path.rglob("*")] if path.exists() else []
    return sorted(inside) + sorted(p.name for p in path.parent.iterdir() if p.name.startswith(".seglog"))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select 'v' value, cast(null as string) topic", "row 0 of a batch has no topic"),
        ("select 'v' value, 't' topic, cast(null as bigint) offset", "row 0 of the task: the offset is -1 or null"),
    ],
)
def test_a_row_that_has_no_place_is_named(spark: SparkSession, tmp_path: Path, query: str, message: str) -> None:
    with pytest.raises(PythonException, match=message):
        write(spark.sql(query), tmp_path / "logs")
    assert below(tmp_path / "logs") == []


def test_a_place_that_is_no_directory_is_named_before_a_task_starts(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AnalysisException, match="file: not a directory"):
        write(spark.sql("select 'v' value, 't' topic"), tmp_path / "file" / "logs")


@pytest.mark.parametrize(
    "command",
    [("verify",), ("export", "-o", "OUT"), ("latest",), ("clean", "--policy", "compact", "--roll")],
    ids=lambda command: command[0],
)
def test_commands_name_the_damage_and_change_nothing(
    spark: SparkSession, damaged: Path, tmp_path: Path, capsys, command: tuple[str, ...]
) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(damaged, kept)
    given = [str(tmp_path / "out") if word == "OUT" else word for word in command]
    assert run(["spark", *given, str(damaged / "t-0")]) == 1
    told = capsys.readouterr()
    text = told.out + told.err
    assert re.search(r"t-0/0+\.log:? position 151\b.*\boffsets? 10\b", text), text
    assert "Traceback" not in text
    left = {str(p.relative_to(damaged)): p.read_bytes() for p in damaged.rglob("*.log")}
    assert left == {str(p.relative_to(kept)): p.read_bytes() for p in kept.rglob("*.log")}
    assert not list((tmp_path / "out").rglob("*.parquet"))


@pytest.mark.parametrize("command", ["verify", "stats", "clean", "latest"])
def test_commands_name_a_path_that_is_not_there(spark: SparkSession, tmp_path: Path, capsys, command: str) -> None:
    assert run(["spark", command, str(tmp_path / "gone")]) == 10
    told = capsys.readouterr()
    assert "gone: no such file or directory" in told.err
    assert "Traceback" not in told.err and told.out == ""


def test_a_setting_that_is_none_is_a_mistake_of_use(damaged: Path, capsys) -> None:
    assert run(["spark", "verify", "--conf", "nonsense", str(damaged)]) == 2
    assert "--conf: 'nonsense' is not KEY=VALUE" in capsys.readouterr().err
