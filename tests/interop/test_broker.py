"""A real broker starts, serves a client, stops in order, and starts again on what it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fixtures import expected, fixture_copy
from tests.support.kafka import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_a_broker_serves_what_it_was_given_before_it_stopped(tmp_path: Path) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka (of the group dev)")
    with Broker(tmp_path / "logs") as broker:
        broker.create_topic("orders", cleanup_policy="compact")
        settings = {"bootstrap.servers": broker.bootstrap, "compression.type": "lz4"}
        producer = confluent_kafka.Producer(settings)
        for number in range(20):
            producer.produce("orders", key=b"k%d" % number, value=b"v%d" % number)
        assert producer.flush(30) == 0
        broker.stop()
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
    with Broker(tmp_path / "logs") as broker:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
        messages = consumer.consume(20, timeout=30)
        consumer.close()
        assert [message.value() for message in messages] == [b"v%d" % number for number in range(20)]
        broker.kill()
    assert not (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("name", ["4.3.0/clean", "4.3.0/killed"])
def test_a_broker_starts_on_a_fixture_and_serves_its_records(name: str, tmp_path: Path) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka (of the group dev)")
    count = expected(name, "orders-zstd-0", "list_digest")["full"]["records"]
    with Broker(fixture_copy(name, tmp_path)) as broker:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "error"}
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition("orders-zstd", 0, 0)])
        messages = consumer.consume(count, timeout=30)
        consumer.close()
    assert [message.offset() for message in messages] == list(range(count))
