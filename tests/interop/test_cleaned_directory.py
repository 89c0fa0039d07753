"""A broker starts on directories that seglog cleaned or deleted from, and a consumer reads what it should."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from seglog.model import Isolation, TopicPartition
from tests.support.command_line import run
from tests.support.compacted_directories import opened
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.kafka import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka (of the group dev)")

COMPACTED = ("customers-0", "customers-1", "customers-uncleaned-0", "payments-compact-0", "both-0")
QUIET = {"log.cleaner.enable": "false", "log.retention.check.interval.ms": "3600000"}

Seen = dict[bytes, tuple[int, bytes | None]]


def newest(log_directory: Path, name: str) -> Seen:
    """Key → (offset, value) of the newest committed record of each key, as seglog reads it."""
    topic, _, partition = name.rpartition("-")
    with opened(log_directory, writable=False) as directory:
        log = directory.log(TopicPartition(topic, int(partition)))
        records = list(log.records(isolation=Isolation.READ_COMMITTED))
    return {record.key or b"": (record.offset or 0, record.value) for record in records}


def consumed(broker: Broker, name: str) -> tuple[Seen, list[tuple[int, bytes]]]:
    """The same as a read_committed consumer sees it, and (offset, key) of all records that it got."""
    topic, _, partition = name.rpartition("-")
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, int(partition), confluent_kafka.OFFSET_BEGINNING)])
    seen: Seen = {}
    offsets: list[tuple[int, bytes]] = []
    while True:
        message: Any = consumer.poll(30)
        assert message is not None, f"{name}: the consumer got nothing for 30 seconds"
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            break
        seen[message.key() or b""] = (message.offset(), message.value())
        offsets.append((message.offset(), message.key() or b""))
    consumer.close()
    return seen, offsets


def without_tombstones(seen: Seen) -> Seen:
    return {key: found for key, found in seen.items() if found[1] is not None}


@pytest.mark.parametrize("fixture", [pytest.param("4.3.0/clean", marks=pytest.mark.smoke), "4.3.0/killed"])
def test_a_consumer_reads_the_newest_record_of_every_key(fixture: str, tmp_path: Path) -> None:
    path = fixture_copy(fixture, tmp_path)
    before = {name: newest(path, name) for name in COMPACTED}
    internal = [p.name for p in path.iterdir() if re.match(r"__(consumer_offsets|transaction_state)-", p.name)]
    groups = {name: newest(path, name) for name in internal}
    result = run(
        "clean",
        "--roll",
        "--set",
        "min.compaction.lag.ms=0",
        "--now",
        str(fixture_now_ms(fixture)),
        *(path / name for name in (*COMPACTED, *internal)),
    )
    assert result.exit_code == 0, result.stderr
    for name in internal:
        assert without_tombstones(newest(path, name)) == without_tombstones(groups[name]), name
    with opened(path, writable=False) as directory:
        dirty = {str(key): offset for key, offset in directory.cleaner_offsets.items()}
    # a live broker may clean and expire on its own: neither is what is looked at here
    with Broker(path, settings=QUIET) as broker:
        for name in COMPACTED:
            seen, offsets = consumed(broker, name)
            assert without_tombstones(seen) == without_tombstones(before[name]), name
            cleaned = [key for offset, key in offsets if offset < dirty[name]]
            assert cleaned, name
            assert len(cleaned) == len(set(cleaned)), f"{name}: a key is there twice in the clean section"
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("customers", key=b"new", value=b"1", partition=0)
        assert producer.flush(30) == 0
        del producer
        broker.stop()
        assert "CorruptRecordException" not in broker.log_text()
    assert newest(path, "customers-0")[b"new"][1] == b"1"


def test_a_broker_takes_the_log_start_that_retention_left(tmp_path: Path) -> None:
    with Broker(tmp_path / "logs", settings=QUIET) as broker:
        broker.create_topic("t", segment_bytes=1 << 20, retention_ms=-1)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        for number in range(40):
            producer.produce("t", key=b"%d" % number, value=bytes(100_000))
            producer.flush(30)
        del producer
        broker.stop()
    path = tmp_path / "logs"
    result = run("retain", "--retention-bytes", "1500000", path / "t-0")
    assert result.exit_code == 0, result.stderr
    with opened(path, writable=False) as directory:
        start = directory.log(TopicPartition("t", 0)).log_start_offset
    assert start > 0
    with Broker(path, settings=QUIET) as broker:
        _, offsets = consumed(broker, "t-0")
        assert [offset for offset, _ in offsets] == list(range(start, 40))
        broker.stop()
    assert not list((path / "t-0").glob("*.deleted"))
