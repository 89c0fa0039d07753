"""A broker starts on what Spark wrote and cleaned, and a consumer reads exactly that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seglog.cleaner.round import CleanerOptions
from seglog.clock import SystemClock
from seglog.operations.clean import Cleaned
from seglog.operations.workspace import Workspace
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.cleaning import Placement, clean
from tests.support.compacted_directories import Topics, cleanings
from tests.support.kafka import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka (of the group dev)")

# offset, timestamp, key, value, headers
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
QUIET = {"log.cleaner.enable": "false", "log.retention.check.interval.ms": "3600000"}
TOPICS = ("plain", "compacted")
SEGMENT_BYTES = 1 << 20
ROWS = """
    select cast(concat('key-', id * 7 % 900) as binary) key,
           case when id % 13 = 0 then null else cast(repeat(concat('value-', id, ' '), 12) as binary) end value,
           case when id % 17 = 0 then array(named_struct('key', 'h', 'value', cast(string(id) as binary))) end headers,
           '{topic}' topic, cast(id % 2 as int) partition, {first} + id div 2 * 2 offset,
           timestamp_millis({now} + id) timestamp
    from range(0, 40000)
"""


def consumed(broker: Broker, topic: str, partition: int) -> list[Row]:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "check.crcs": True,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)])
    rows: list[Row] = []
    while True:
        message: Any = consumer.poll(30)
        assert message is not None, f"{topic}-{partition}: the consumer got nothing for 30 seconds"
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            break
        headers = tuple(message.headers() or ())
        rows.append((message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
    consumer.close()
    return rows


def rows_of(frame: Any) -> list[Row]:
    """The rows of one partition in the form of `consumed`."""
    found = []
    for row in frame.selectExpr("*", "unix_millis(timestamp) millis").collect():
        headers = tuple((header.key, bytes(header.value)) for header in row.headers or ())
        key, value = (None if one is None else bytes(one) for one in (row.key, row.value))
        found.append((row.offset, row.millis, key, value, headers))
    return sorted(found)


def test_a_consumer_reads_what_spark_wrote_and_what_spark_cleaned(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with Broker(logs, settings=QUIET) as broker:  # it gives the topics their ids
        for topic in TOPICS:
            broker.create_topic(topic, partitions=2, segment_bytes=SEGMENT_BYTES, cleanup_policy="compact")
    now = SystemClock().now_ms() - 3_600_000
    written: dict[tuple[str, int], list[Row]] = {}
    for first, topic, codec in ((0, "plain", "zstd"), (5, "compacted", "lz4")):
        rows = spark.sql(ROWS.format(topic=topic, first=first, now=now))
        for partition in range(2):
            written[topic, partition] = rows_of(rows.where(f"partition = {partition}"))
        rows = rows.repartitionById(2, "partition").sortWithinPartitions("partition", "offset")
        writer = rows.write.format("seglog").mode("append").option("compression", codec)
        writer.option("segmentBytes", SEGMENT_BYTES // 8).save(str(logs))
    fs = LocalFileSystem()
    configured = Topics(cleanup_policy="compact", segment_bytes=SEGMENT_BYTES // 4)
    work = cleanings(fs, [logs / "compacted-0", logs / "compacted-1"], configured, CleanerOptions(roll=True))
    outcomes = list(clean(spark, Workspace(fs), work, Placement("shuffle", reducers=3)))
    assert [type(outcome) for outcome in outcomes] == [Cleaned, Cleaned]
    for partition in range(2):
        newest = {row[2]: row for row in written["compacted", partition]}
        written["compacted", partition] = sorted(newest.values())
        assert len(list((logs / f"compacted-{partition}").glob("*.log"))) > 2
    with Broker(logs, settings=QUIET) as broker:
        found = {(topic, partition): consumed(broker, topic, partition) for topic, partition in written}
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        for topic in TOPICS:
            producer.produce(topic, key=b"new", value=b"1", partition=0)
        assert producer.flush(30) == 0
        for topic in TOPICS:
            assert consumed(broker, topic, 0)[-1][2:4] == (b"new", b"1")
        del producer
        broker.stop()
        assert "orrupt" not in broker.log_text()
    for place, rows in written.items():
        assert found[place] == rows, place
