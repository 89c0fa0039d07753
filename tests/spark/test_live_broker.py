"""A stream over the directory that a real broker is writing: restarted in between, each record arrives once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.kafka import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

RECORDS = 6000
SETTINGS = {
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "transaction.state.log.num.partitions": "1",
}


def produce(bootstrap: str) -> None:
    """Plain records on partition 0; transactions on partition 1, every third one aborted."""
    from confluent_kafka import Producer

    common = {"bootstrap.servers": bootstrap, "linger.ms": "5", "compression.type": "lz4"}
    plain = Producer(common)
    transactional = Producer(common | {"transactional.id": "writer"})
    transactional.init_transactions(30)
    for number in range(RECORDS):
        if number % 100 == 0:
            transactional.begin_transaction()
        plain.produce("live", key=b"k%d" % number, value=b"v%d" % number, partition=0)
        aborted = number // 100 % 3 == 2
        transactional.produce("live", value=b"%s%d" % (b"a" if aborted else b"c", number), partition=1)
        if number % 100 == 99:
            (transactional.abort_transaction if aborted else transactional.commit_transaction)(30)
            plain.flush(30)
    assert plain.flush(30) == 0


def test_each_record_arrives_once_over_restarts(spark, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason="needs confluent-kafka (of the group dev)")
    with Broker(tmp_path / "logs", settings=SETTINGS) as broker:
        broker.create_topic("live", partitions=2, segment_bytes=1 << 20, segment_index_bytes=1 << 14)
        writer = threading.Thread(target=produce, args=(broker.bootstrap,))
        writer.start()

        def run() -> int:
            frame = spark.readStream.format("seglog").option("startingOffsets", "earliest")
            frame = frame.option("subscribe", "live").option("isolationLevel", "read_committed")
            frame = frame.option("maxOffsetsPerTrigger", "2500").load(str(tmp_path / "logs"))
            stream = frame.select("partition", "offset", "value").writeStream.format("parquet")
            stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
            stream.start(str(tmp_path / "out")).awaitTermination()
            return spark.read.parquet(str(tmp_path / "out")).count()

        while writer.is_alive():
            run()
        writer.join()
        wanted = RECORDS + RECORDS * 2 // 3
        for _ in range(10):
            if run() >= wanted:
                break
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert len(rows) == len({(row.partition, row.offset) for row in rows}) == wanted
    assert {bytes(row.value) for row in rows if row.partition == 0} == {b"v%d" % n for n in range(RECORDS)}
    committed = {b"c%d" % n for n in range(RECORDS) if n // 100 % 3 != 2}
    assert {bytes(row.value) for row in rows if row.partition == 1} == committed
