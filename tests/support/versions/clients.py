"""Clients of a broker of any release: they fill its topics, and say what it serves (librdkafka)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import seglog

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

LIMIT_SECONDS = 90
BATCH = 20
NO_TIMESTAMP = -1


class Served(NamedTuple):
    """A record as a client gets it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Partition(NamedTuple):
    """What a client with read_committed gets of a partition: its first offset, and the records."""

    first: int
    rows: list[Served]


def create_topics(bootstrap: str, topics: Mapping[str, Mapping[str, object]]) -> None:
    """Makes topics of one partition; configuration names with underscores for dots."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [
        NewTopic(
            topic,
            num_partitions=1,
            replication_factor=1,
            config={name.replace("_", "."): str(value) for name, value in settings.items()},
        )
        for topic, settings in topics.items()
    ]
    for made in admin.create_topics(wanted, operation_timeout=30).values():
        made.result(LIMIT_SECONDS)


def produce(
    bootstrap: str, topic: str, count: int, *, first: int = 0, codec: str = "none", headers: bool = True
) -> None:
    """Writes `count` records in batches of BATCH, with 40 keys; every seventh of `compacted` is a tombstone."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "batch.num.messages": BATCH, "linger.ms": 5}
    )
    for i in range(first, first + count):
        value = None if topic == "compacted" and i % 7 == 0 else b"%d " % i + b"value " * 12
        more = {"headers": [("n", b"%d" % i), ("empty", None)]} if headers else {}
        producer.produce(topic, value, b"k%d" % (i % 40), **more)
    assert producer.flush(LIMIT_SECONDS) == 0


def produce_transactions(bootstrap: str, topic: str) -> None:
    """Writes eight transactions of ten records; three of them are aborted."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payer"})
    producer.init_transactions(LIMIT_SECONDS)
    for number in range(8):
        producer.begin_transaction()
        for i in range(10):
            producer.produce(topic, b"%d-%d " % (number, i) + b"x" * 80, b"p%d" % i)
        if number % 3 == 1:
            producer.flush(LIMIT_SECONDS)
            producer.abort_transaction(LIMIT_SECONDS)
        else:
            producer.commit_transaction(LIMIT_SECONDS)


def delete_records(bootstrap: str, topic: str, offset: int) -> None:
    """DeleteRecords: the log starts at `offset` afterwards."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        assert done.result(LIMIT_SECONDS).low_watermark == offset


def configure(bootstrap: str, topics: Sequence[str], key: str, value: str) -> None:
    """Sets a configuration value of topics."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource("topic", topic, incremental_configs=[entry]) for topic in topics]
    for done in admin.incremental_alter_configs(resources).values():
        done.result(LIMIT_SECONDS)


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commits an offset of a group."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def served(bootstrap: str, topics: Sequence[str]) -> dict[str, Partition]:
    """What one consumer gets of the topics, each up to its end."""
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
        }
    )
    found = {}
    try:
        for topic in topics:
            found[topic] = Partition(_first_offset(consumer, TopicPartition(topic, 0)), [])
        consumer.assign([TopicPartition(topic, 0, each.first) for topic, each in found.items()])
        waiting, deadline = set(topics), time.monotonic() + LIMIT_SECONDS
        while waiting:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no end of {sorted(waiting)}")
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                waiting.discard(message.topic())
                continue
            headers = tuple((name, value) for name, value in message.headers() or ())
            kind, timestamp = message.timestamp()
            timestamp = NO_TIMESTAMP if kind == TIMESTAMP_NOT_AVAILABLE else timestamp
            found[message.topic()].rows.append(
                Served(message.offset(), timestamp, message.key(), message.value(), headers)
            )
    finally:
        consumer.close()
    return found


def _first_offset(consumer: Consumer, place: TopicPartition) -> int:
    """The first offset, as soon as the partition has a leader after its broker's start."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            low, _ = consumer.get_watermark_offsets(place, timeout=10)
            return int(low)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def read(directory: Path) -> list[Served]:
    """The committed records from the log start on, as seglog reads them."""
    with seglog.open_log(directory) as log:
        return [
            Served(
                record.offset or 0,
                NO_TIMESTAMP if record.timestamp is None else record.timestamp,
                record.key,
                record.value,
                tuple((header.key, header.value) for header in record.headers),
            )
            for record in log.records(isolation="read_committed")
        ]


def newest(rows: Sequence[Served]) -> dict[bytes | None, Served]:
    """The records that compaction keeps for good: the last one of each key, without tombstones."""
    last = {row.key: row for row in rows}
    return {key: row for key, row in last.items() if row.value is not None}


def wait(what: str, done: Callable[[], bool]) -> None:
    """Waits for something that a broker does by itself. TimeoutError if it does not."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.2)
