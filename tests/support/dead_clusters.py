"""A real cluster that dies: topics of every kind, groups, transactions that are open; and a new one to put it into."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.consumers import Place, Row, librdkafka_rows
from tests.support.fixtures import fixture_copy
from tests.support.kafka.broker import Broker

START_MS = int(time.time() * 1000) - 60_000  # a broker forgets producers that wrote nothing for a day
PARTITIONS = {"plain": 2, "paid": 1, "keyed": 1, "trimmed": 1, "rolled": 1}
CONFIGURATION: dict[str, dict[str, str]] = {
    "keyed": {"cleanup_policy": "compact", "internal_segment_bytes": "4096", "min_cleanable_dirty_ratio": "0.01"},
    "rolled": {"internal_segment_bytes": "4096"},
}
OLD_FORMATS = {"0.10.2": ("v1-lz4-createtime", "v1-none-logappendtime"), "0.8.2": ("v0-gzip", "v0-none")}
COMPACTED, PAID = "keyed", "paid"
GROUPS = {"resuming": ("plain", 1, 17), "moving": ("paid", 0, 6)}
LATE_EPOCH = 40  # of what groups committed: the old cluster had lived long
ISOLATIONS = ("read_uncommitted", "read_committed")


@dataclass
class DeadCluster:
    """Its log directories, and what clients had read from it, by isolation and partition."""

    sources: list[Path]
    rows: dict[str, dict[Place, list[Row]]] = field(default_factory=dict)


def make_topics(broker: Broker, *, old_formats: bool = False) -> None:
    """The topics, without anything in them; `__consumer_offsets` too."""
    for topic, partitions in PARTITIONS.items():
        settings = {"retention_ms": "-1", **CONFIGURATION.get(topic, {})}
        broker.create_topic(topic, partitions, **settings)
    for topic in [topic for topics in OLD_FORMATS.values() for topic in topics] if old_formats else ():
        broker.create_topic(topic, retention_ms="-1")
    broker.create_topic("__consumer_offsets", 2, cleanup_policy="compact")


def producer(bootstrap: str, **settings: Any) -> Any:
    """An idempotent one, or what the settings say (underscores for dots)."""
    from confluent_kafka import Producer

    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, **named})


def begun(bootstrap: str, name: str) -> Any:
    """A transactional producer with a transaction under way."""
    from confluent_kafka import Producer

    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    made.init_transactions(60)
    made.begin_transaction()
    return made


def finish(writer: Any, bootstrap: str, name: str, *, commit: bool) -> None:
    """Ends a transaction, and returns when its markers are written: a broker writes them after it has answered.

    Killed in between, a broker of 4.3 that starts again may leave them out for good. It leads for a while as before,
    until it is fenced; then its partitions have no leader, and its coordinator passes over partitions without one
    (KRaftMetadataCache.getPartitionLeaderEndpoint): the transaction is complete there, and hangs in the log.
    """
    (writer.commit_transaction if commit else writer.abort_transaction)(60)
    begun(bootstrap, name)  # waits for its coordinator, which has then written CompleteCommit or CompleteAbort


def key_of(n: int) -> bytes:
    """The key of a topic's record number `n`."""
    return b"key %d" % (n % 9)


def value_of(topic: str, n: int) -> bytes | None:
    """Its value; some are tombstones."""
    return None if n % 11 == 7 else b"%s value %d " % (topic.encode(), n) * 4


def produce(client: Any, topic: str, numbers: range, partition: int = 0, *, flush_each: int = 10) -> None:
    """Records with keys, headers and times of their own; a batch every `flush_each` of them."""
    for n in numbers:
        headers = [("n", b"%d" % n), ("null", None)]
        place = {"partition": partition, "timestamp": START_MS + n, "headers": headers}
        client.produce(topic, value_of(topic, n), key_of(n), **place)
        if n % flush_each == flush_each - 1:
            assert client.flush(60) == 0
    assert client.flush(60) == 0


def fill(broker: Broker) -> list[Any]:
    """Everything that a source has; returns clients that must live until it is killed."""
    from confluent_kafka import Consumer, TopicPartition

    bootstrap = broker.bootstrap
    for number in range(2):
        produce(producer(bootstrap, compression_type="lz4"), "plain", range(60), number)
    produce(producer(bootstrap), "keyed", range(200), flush_each=50)
    produce(producer(bootstrap), "rolled", range(200))
    produce(producer(bootstrap), "trimmed", range(50))
    admin, trimmed = broker.admin(), TopicPartition("trimmed", 0, 23)
    admin.delete_records([trimmed])[trimmed].result(60)
    kept: list[Any] = []
    for name, end in (("a", "commit"), ("b", "abort"), ("c", "commit"), ("d", "none"), ("e", "none")):
        writer = begun(bootstrap, name)
        produce(writer, "paid", range(10))
        if end != "none":
            finish(writer, bootstrap, name, commit=end == "commit")
        else:
            kept.append(writer)
    for group, (topic, number, offset) in GROUPS.items():
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        place = TopicPartition(topic, number, offset, leader_epoch=LATE_EPOCH)
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()
    return kept


def places(*, old_formats: bool = False) -> list[Place]:
    """All partitions."""
    found = [(topic, number) for topic, count in PARTITIONS.items() for number in range(count)]
    return found + [(topic, 0) for topics in OLD_FORMATS.values() for topic in topics] * old_formats


def read_all(bootstrap: str, wanted: list[Place]) -> dict[str, dict[Place, list[Row]]]:
    """Every record, under both isolations."""
    return {isolation: librdkafka_rows(bootstrap, wanted, isolation) for isolation in ISOLATIONS}


def _wait_for(checkpoint: Path, line: str) -> None:
    """A broker writes its checkpoints now and then; one that is killed before has forgotten."""
    deadline = time.monotonic() + 60
    while not checkpoint.exists() or line not in checkpoint.read_text():
        assert time.monotonic() < deadline, checkpoint
        time.sleep(0.1)


def dead_cluster(root: Path) -> DeadCluster:
    """A cluster that ran, was restarted (its leader epochs went up) and was killed; beside it logs of old formats."""
    directory = root / "old"
    with Broker(directory) as broker:
        make_topics(broker)
        produce(producer(broker.bootstrap), "plain", range(30))
    with Broker(directory, settings={"log.flush.start.offset.checkpoint.interval.ms": "200"}) as broker:
        clients = fill(broker)
        dead = DeadCluster([directory], read_all(broker.bootstrap, places()))
        _wait_for(directory / "log-start-offset-checkpoint", "trimmed 0 23")
        broker.kill()
    clients.clear()
    for version, topics in OLD_FORMATS.items():
        copied = fixture_copy(version, root / "formats")
        dead.sources += [copied / f"{topic}-0" for topic in topics]
    return dead
