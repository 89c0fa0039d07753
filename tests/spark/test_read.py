"""`spark.read.format("seglog")`: columns, options, projections, snapshots and errors, as a user sees them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException

from seglog.cleaner.cleaner import clean_log
from seglog.cleaner.round import CleanerOptions
from seglog.errors import SeglogError
from seglog.model import TopicPartition
from seglog_ask.table.plan.schema import VIEWS, arrow_schema, default_projection, projection_of
from tests.support import fixtures
from tests.support.command_line import ended
from tests.support.compacted_directories import broker_directory, opened
from tests.support.manual_clock import ManualClock
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.open_logs import START_MS
from tests.support.rows import expected_rows

pytestmark = pytest.mark.spark

KAFKA_COLUMNS = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)


def expected(partition):
    topic, number = partition.rsplit("-", 1)
    return expected_rows(fixtures.expected("4.3.0/clean", partition, "list"), topic, int(number))


def message_of(error) -> str:
    return str(error.value)


def test_the_columns_are_those_of_the_kafka_source(read, logs):
    assert read(logs / "clicks-0").schema.simpleString() == KAFKA_COLUMNS
    with_headers = read(logs / "clicks-0", includeHeaders=True).schema
    assert with_headers["headers"].simpleString() == "headers:array<struct<key:string,value:binary>>"


@pytest.mark.parametrize("view", VIEWS)
def test_the_arrow_schema_is_what_spark_checks_against(spark, view):
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    projection = default_projection(view, None, True)
    declared = StructType.fromDDL(", ".join(f"`{field.name}` {field.type}" for field in projection))
    assert to_arrow_schema(declared, timezone="UTC").equals(arrow_schema(projection))
    assert projection_of(view, declared) == projection


def test_the_option_where_keeps_what_the_dataframes_own_filter_keeps(read, tmp_path):
    logs = fixtures.fixture_copy("0.8.2", tmp_path)  # records without a timestamp
    write = logs / "late-0" / f"{0:020}.log"
    write.parent.mkdir()
    stamps = [5, 2**63 - 1, 1_500_000_000_000]
    write.write_bytes(
        batch_v2(0, [NaiveRecord(i, stamp - 5, b"k", b"v") for i, stamp in enumerate(stamps)], base_timestamp=5)
    )
    everything = read(logs)
    for sign, time in (
        ("<", "2026-11-02"),
        (">=", "1969-12-31 23:59:59.999"),
        ("=", "1969-12-31 23:59:59.999"),
        (">", "1970-01-01"),
    ):
        # Not the timestamps themselves: PySpark's collect() makes datetimes of them, which end with the year 9999.
        wanted = everything.where(f"timestamp {sign} '{time}'").select("topic", "offset").collect()
        option = f"timestamp {sign} '{time.replace(' ', 'T')}'"
        assert read(logs, where=option).select("topic", "offset").collect() == wanted, option
    assert read(logs, where="timestamp < '2026-11-02'").count() > 700


@pytest.mark.smoke
def test_rows_are_those_that_kafka_lists(read, logs):
    rows = read(logs, subscribePattern="orders-(none|zstd)|customers", includeHeaders=True, maxPartitionBytes=30000)
    found = sorted(
        (row.topic, row.partition, row.offset, bytes(row.key) if row.key is not None else None, bytes(row.value or b""))
        for row in rows.collect()
    )
    wanted = [row for p in ("orders-none-0", "orders-zstd-0", "customers-0", "customers-1") for row in expected(p)]
    assert found == sorted((row[2], row[3], row[4], row[0], row[1] or b"") for row in wanted)


def test_headers_and_nulls_arrive(read, tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    records = [NaiveRecord(0, 0, None, b"v", ((b"a", b"1"), (b"b", None))), NaiveRecord(1, 5, b"k", None)]
    (directory / f"{0:020}.log").write_bytes(batch_v2(0, records))
    first, second = read(directory, includeHeaders=True).orderBy("offset").collect()
    assert (first.key, bytes(first.value)) == (None, b"v")
    assert [(header.key, header.value) for header in first.headers] == [("a", bytearray(b"1")), ("b", None)]
    assert (second.value, second.headers) == (None, None)
    assert second.timestamp.timestamp() == 1.005


def test_a_schema_projects_and_a_wrong_one_is_refused(spark, read, logs):
    path = str(logs / "clicks-0")
    some = spark.read.format("seglog").schema("offset bigint, topic string").load(path)
    assert some.columns == ["offset", "topic"] and some.count() == 600
    assert read(path, columns="timestamp,OFFSET").columns == ["timestamp", "OFFSET"]
    for schema, message in (
        ("ofset bigint", "has no column 'ofset'; its columns are key binary"),
        ("offset int", "'offset' of the view 'records' has type bigint, not int"),
    ):
        with pytest.raises(AnalysisException) as caught:
            spark.read.format("seglog").schema(schema).load(path).count()
        assert message in message_of(caught)
    with pytest.raises(AnalysisException) as caught:
        read(path, columns="nothing").count()
    assert "no column 'nothing'" in message_of(caught)


def test_selecting_no_column_counts(read, logs):
    assert read(logs / "clicks-0").select().count() == 600


def test_a_view_of_sql_reads_with_its_options(spark, logs):
    options = f"path '{logs}/clicks-0', maxPartitionBytes '9000'"
    spark.sql(f"CREATE OR REPLACE TEMP VIEW clicks USING seglog OPTIONS ({options})")
    assert spark.sql("SELECT count(*), max(offset) FROM clicks WHERE offset >= 300").first() == (300, 599)


def test_a_table_reads_when_its_path_is_said_again(spark, logs):
    spark.sql(f"CREATE TABLE clicks_table USING seglog OPTIONS (path '{logs}/clicks-0')")
    try:
        query = f"SELECT count(*) FROM clicks_table WITH (path = '{logs}/clicks-0')"
        assert spark.sql(query).first()[0] == 600
        # Spark 4.3 gives a Python source none of a table's options; this fails when a later Spark does
        with pytest.raises(AnalysisException, match="use CREATE TEMP VIEW"):
            spark.sql("SELECT count(*) FROM clicks_table").first()
    finally:
        spark.sql("DROP TABLE clicks_table")


def test_several_paths_and_globs_are_read_together(spark, logs):
    reader = spark.read.format("seglog")
    both = reader.load([f"{logs}/clicks-0", f"{logs}/customers-[01]"])
    counts = {row.topic: row["count"] for row in both.groupBy("topic").count().collect()}
    assert counts == {"clicks": 600, "customers": len(expected("customers-0")) + len(expected("customers-1"))}


def test_no_splits_give_no_rows(read, tmp_path):
    (tmp_path / "empty-0").mkdir()
    assert read(tmp_path / "empty-0").count() == 0


def test_offset_and_time_bounds(read, logs):
    path = logs / "clicks-0"
    bounded = read(path, startingOffsets='{"clicks":{"0":10}}', endingOffsets='{"clicks":{"0":20}}')
    assert [row.offset for row in bounded.orderBy("offset").collect()] == list(range(10, 20))
    rows = expected("clicks-0")
    stamp = rows[len(rows) // 2][5]
    first = min(row[4] for row in rows if row[5] >= stamp)
    assert read(path, startingTimestamp=stamp).selectExpr("min(offset)").first()[0] == first


def test_read_committed_leaves_out_aborted_records(read, logs):
    listed = fixtures.expected("4.3.0/clean", "payments-0", "list")
    assert any(line["t"] == "batch" and line["isControl"] for line in listed)
    everything = {row.offset for row in read(logs / "payments-0").collect()}
    committed = {row.offset for row in read(logs / "payments-0", kafka__isolation__level="read_committed").collect()}
    assert committed < everything
    assert committed == committed_offsets(listed)


def committed_offsets(listed) -> set[int]:
    """Offsets of settled, not aborted records, by walking the list as a consumer with all markers in hand."""
    open_offsets: dict[int, list[int]] = {}
    committed, batch = set(), {}
    for line in listed:
        if line["t"] == "batch":
            batch = line
        elif batch["isControl"]:
            offsets = open_offsets.pop(batch["producerId"], [])
            committed |= set(offsets) if line["key"] == "AAAAAQ==" else set()
        elif batch["isTransactional"]:
            open_offsets.setdefault(batch["producerId"], []).append(line["offset"])
        else:
            committed.add(line["offset"])
    unstable = min((offsets[0] for offsets in open_offsets.values()), default=None)
    return {offset for offset in committed if unstable is None or offset < unstable}


def test_a_dataframe_is_a_snapshot_and_a_new_load_sees_more(read, tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    ten = [NaiveRecord(i, i, b"k", b"v") for i in range(10)]
    (directory / f"{0:020}.log").write_bytes(batch_v2(0, ten))
    before = read(directory)
    assert before.count() == 10
    (directory / f"{10:020}.log").write_bytes(batch_v2(10, ten))
    assert read(directory).count() == 20


@pytest.mark.parametrize("view", ["batches", "segments", "findings"])
def test_views_are_tables_too(read, logs, view):
    frame = read(logs, view=view)
    assert frame.columns == [column.name for column in VIEWS[view]]
    rows = frame.collect()
    assert (len(rows) == 0) == (view == "findings")
    if view == "batches":
        assert {TopicPartition(row.topic, row.partition) for row in rows} >= {TopicPartition("clicks", 0)}


def test_damage_fails_by_default_and_names_the_place(read, partition_copy):
    directory = partition_copy("clicks-0")
    batches = read(directory, view="batches").orderBy("position").collect()
    hurt = batches[len(batches) // 2]
    path = min(directory.glob("*.log"))
    with path.open("r+b") as file:
        file.seek(hurt.position + 70)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 0xFF]))
    with pytest.raises(PythonException) as caught:
        read(directory).count()
    assert f"position {hurt.position}: the checksum of the batch is wrong" in message_of(caught)
    assert f"offsets {hurt.baseOffset} to {hurt.lastOffset}" in message_of(caught)
    assert read(directory, onCorrupt="skip").count() == 600 - (hurt.lastOffset - hurt.baseOffset + 1)
    (found,) = read(directory, view="findings").collect()
    assert (found.firstOffset, found.lastOffset, found.kind) == (hurt.baseOffset, hurt.lastOffset, "checksum")


def test_what_vanishes_between_plan_and_read_is_said(spark, read, partition_copy):
    directory, other = partition_copy("customers-0"), partition_copy("clicks-0")
    frame = read(directory)
    assert frame.count() > 0
    shutil.rmtree(directory)
    with pytest.raises(PythonException) as caught:
        frame.count()
    assert "are gone since the query was planned: the partition is gone" in message_of(caught)
    shutil.rmtree(other)  # nothing shows any more that this machine sees what the driver saw
    with pytest.raises(PythonException) as caught:
        frame.count()
    assert "removed since, or this executor does not see the driver's files" in message_of(caught)


def test_a_plan_is_read_on_when_its_segments_were_cleaned_away(spark, read, tmp_path):
    logs = broker_directory(tmp_path / "logs", {"t-0": (6, 9)})
    frame = read(logs, maxPartitionBytes=1000).select("offset")
    before = {row.offset for row in frame.collect()}
    with opened(logs) as directory:
        log = directory.log(TopicPartition("t", 0))
        clean_log(log, CleanerOptions(), ManualClock(START_MS))
        left = {record.offset for record in log.records()}
    assert len(list((logs / "t-0").glob("*.log"))) < 7
    after = [row.offset for row in frame.collect()]  # the plan is the one from before
    assert sorted(after) == sorted(left) and left < before


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("gone", {}, "gone: no such file or directory"),
        ("clicks-0", {"colour": "red"}, "unknown option 'colour'"),
        ("clicks-0", {"startingOffsets": "latest"}, "starting offset can't be latest"),
        ("clicks-0", {"startingOffsets": '{"clicks":{"0":5000}}'}, "offset 5000 is out of range"),
    ],
)
def test_bad_input_is_one_clear_sentence(read, logs, path, options, message):
    with pytest.raises(AnalysisException) as caught:
        read(logs / path, **options).count()
    assert message in message_of(caught)
    assert issubclass(SeglogError, Exception)


def test_a_snapshot_of_a_backup_is_read_where_it_is(read, logs, tmp_path):
    assert ended("backup", logs, "--to", tmp_path / "backup").code == 0
    snapshot = tmp_path / "backup#latest"
    for name in ("both-0", "customers-*"):
        found, source = (
            sorted((row.topic, row.partition, row.offset, row.key, row.value) for row in read(place / name).collect())
            for place in (snapshot, logs)
        )
        assert found == source != []


def test_a_hundred_small_splits_all_arrive(read, logs):
    frame = read(logs / "both-0", maxPartitionBytes=1)
    assert frame.count() == len(expected("both-0"))
    assert frame.selectExpr("spark_partition_id() p").distinct().count() > 3


def test_what_skip_leaves_out_is_what_the_findings_list(read, partition_copy):
    copy = partition_copy("orders-none-0")
    whole = read(copy).count()
    path = sorted(copy.glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    (found,) = read(copy, view="findings", onCorrupt="skip").collect()
    assert (Path(found.segment).name, found.kind) == (path.name, "checksum")
    assert read(copy, onCorrupt="skip").count() == whole - (found.lastOffset - found.firstOffset + 1)
