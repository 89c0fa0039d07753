"""A real broker starts on a directory that seglog appended to, serves it, and goes on appending where seglog ended."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.command_line import process
from tests.support.kafka import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def consumed(broker: Broker, topic: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of the first `count` records."""
    import confluent_kafka

    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "error"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=60)
    consumer.close()
    assert [message.error() for message in messages] == [None] * len(messages)
    return [(message.offset(), message.key(), message.value()) for message in messages]


def test_a_broker_serves_what_seglog_appended(tmp_path: Path) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka (of the group dev)")
    logs = tmp_path / "logs"
    topics: dict[str, dict[str, str]] = {"plain": {}, "compacted": {"cleanup_policy": "compact"}}
    with Broker(logs) as broker:
        for topic, settings in topics.items():
            broker.create_topic(topic, segment_bytes=1 << 20, **settings)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        for topic in topics:
            producer.produce(topic, key=b"k", value=b"from the broker")
        assert producer.flush(30) == 0
        broker.stop()
    random = Random(7)
    expected: dict[str, list[tuple[int, bytes | None, bytes | None]]] = {}
    for topic in topics:
        expected[topic] = [(0, b"k", b"from the broker")]
        for round_number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            records = [(f"{codec}-{i}", random.randbytes(200).hex()) for i in range(1200)]
            lines = "".join(json.dumps({"key": key, "value": value}) + "\n" for key, value in records)
            options = ("--input-format", "jsonl", "--codec", codec, "--batch-records", "50")
            done = process("append", "--json", logs / f"{topic}-0", "-", *options, input_bytes=lines.encode())
            assert done.returncode == 0, done.stderr
            first = 1 + 1200 * round_number
            expected[topic] += [(first + i, k.encode(), v.encode()) for i, (k, v) in enumerate(records)]
    assert len(sorted((logs / "plain-0").glob("*.log"))) > 1  # the topic's own segment.bytes was found and obeyed
    assert (logs / ".kafka_cleanshutdown").exists()
    with Broker(logs) as broker:
        for topic in topics:
            assert consumed(broker, topic, len(expected[topic])) == expected[topic]
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("plain", key=b"k", value=b"the broker again")
        assert producer.flush(30) == 0
        assert consumed(broker, "plain", 6002)[-1] == (6001, b"k", b"the broker again")
        assert "orrupt" not in broker.log_text()
