"""Three brokers, redacted one after the other while the other two serve and a producer goes on: no replica diverges."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import seglog
from tests.support.kafka.cluster import Cluster

pytestmark = pytest.mark.kafka

TOPIC, SECRET, KEY = "personal", b"what the customer wants forgotten", b"customer-7"
NODES = (1, 2, 3)


def test_brokers_that_are_redacted_one_after_the_other_keep_equal_replicas(tmp_path: Path) -> None:
    directories = {node: [tmp_path / f"broker-{node}"] for node in NODES}
    for (path,) in directories.values():
        path.mkdir()
    with Cluster(tmp_path / "controller", directories) as cluster:
        _make_topic(cluster)
        written = _produce(cluster, 0, 400)
        with _load(cluster, written) as load:
            for node in NODES:
                cluster.brokers.pop(node).stop()
                report = seglog.redact(directories[node][0], keys=[KEY], replicas=3)
                assert sum(found.records for found in report.found) == 40
                cluster.start(node)
                _wait_for_replicas(cluster)
            delivered = load()
        assert delivered > 0
        for node in NODES:
            cluster.brokers.pop(node).stop()
    logs = []
    for (path,) in directories.values():
        assert [f for f in path.rglob("*") if f.is_file() and SECRET in f.read_bytes()] == []
        with seglog.open_log(path / f"{TOPIC}-0") as log:
            logs.append([(r.offset, r.key, r.value, r.timestamp) for r in log.records()])
    assert logs[0] == logs[1] == logs[2]
    assert len(logs[0]) == 400 + delivered
    assert [value for _, key, value, _ in logs[0] if key == KEY] == [None] * 40
    copies = [path / f"{TOPIC}-0" for (path,) in directories.values()]
    assert list(seglog.diff(*copies, level="view")) == []


def _make_topic(cluster: Cluster) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    settings = {"min.insync.replicas": "2", "segment.bytes": "1048576"}
    (made,) = admin.create_topics([NewTopic(TOPIC, 1, 3, config=settings)]).values()
    made.result(30)


def _producer(cluster: Cluster) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5})


def _produce(cluster: Cluster, first: int, count: int) -> int:
    producer = _producer(cluster)
    for i in range(first, first + count):
        named = i % 10 == 3
        producer.produce(TOPIC, SECRET if named else b"value %d" % i, KEY if named else b"key-%d" % (i % 50))
        if i % 20 == 0:
            producer.flush(30)
    assert producer.flush(60) == 0
    return first + count


@contextmanager
def _load(cluster: Cluster, first: int) -> Iterator[Any]:
    """A producer that goes on until it is asked how many records were acknowledged."""
    over = threading.Event()
    acknowledged = [0]

    def count(error: Any, _message: Any) -> None:
        assert error is None, error
        acknowledged[0] += 1

    def work() -> None:
        producer, i = _producer(cluster), first
        while not over.is_set():
            producer.produce(TOPIC, b"later %d" % i, b"key-%d" % (i % 50), on_delivery=count)
            producer.poll(0)
            i += 1
            time.sleep(0.02)
        assert producer.flush(60) == 0

    thread = threading.Thread(target=work)
    thread.start()

    def end() -> int:
        over.set()
        thread.join(90)
        return acknowledged[0]

    try:
        yield end
    finally:
        over.set()
        thread.join(90)


def _wait_for_replicas(cluster: Cluster) -> None:
    """Until all three replicas are in sync."""
    from confluent_kafka.admin import AdminClient

    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        topic = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(TOPIC, timeout=30).topics[TOPIC]
        if topic.partitions and len(topic.partitions[0].isrs) == len(NODES):
            return
        time.sleep(0.5)
    raise AssertionError("a replica did not come back in sync")
