"""Reads `count` records as a member of a group, commits them, and prints each as a line of JSON.

read.py CLIENT BOOTSTRAP TOPIC,TOPIC… ISOLATION GROUP COUNT
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

POLL_S = 60


def as_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def show(
    topic: str, partition: int, offset: int, stamp: int, key: bytes | None, value: bytes | None, headers: Any
) -> None:
    shown = [[name, as_text(data)] for name, data in headers or ()]
    sys.stdout.write(json.dumps([topic, partition, offset, stamp, as_text(key), as_text(value), shown]) + "\n")


def by_librdkafka(bootstrap: str, topics: list[str], isolation: str, group: str, count: int, protocol: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "check.crcs": True}
    settings |= {"enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": isolation}
    consumer = Consumer(settings)
    consumer.subscribe(topics)
    ends: dict[tuple[str, int], int] = {}
    for _ in range(count):
        message = consumer.poll(POLL_S)
        assert message is not None and message.error() is None, message and message.error()
        place, offset = (message.topic(), message.partition()), message.offset()
        show(*place, offset, message.timestamp()[1], message.key(), message.value(), message.headers())
        ends[place] = offset + 1
    consumer.commit(offsets=[TopicPartition(*place, end) for place, end in ends.items()], asynchronous=False)
    consumer.close()


async def by_aiokafka(bootstrap: str, topics: list[str], isolation: str, group: str, count: int) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    settings = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "isolation_level": isolation}
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group, **settings)
    await consumer.start()
    ends: dict[Any, int] = {}
    for _ in range(count):
        found = await asyncio.wait_for(consumer.getone(), POLL_S)
        show(found.topic, found.partition, found.offset, found.timestamp, found.key, found.value, found.headers)
        ends[TopicPartition(found.topic, found.partition)] = found.offset + 1
    await consumer.commit(ends)
    await consumer.stop()


def by_kafka_python(bootstrap: str, topics: list[str], isolation: str, group: str, count: int) -> None:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    settings = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "isolation_level": isolation}
    settings["consumer_timeout_ms"] = POLL_S * 1000
    consumer = KafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group, **settings)
    ends: dict[Any, Any] = {}
    for _ in range(count):
        found = next(consumer)
        show(found.topic, found.partition, found.offset, found.timestamp, found.key, found.value, found.headers)
        ends[TopicPartition(found.topic, found.partition)] = OffsetAndMetadata(found.offset + 1, "", -1)
    consumer.commit(ends)
    consumer.close()


def main(client: str, bootstrap: str, topics: str, isolation: str, group: str, count: str) -> None:
    asked = (bootstrap, topics.split(","), isolation, group, int(count))
    if client in ("classic", "consumer"):
        by_librdkafka(*asked, client)
    elif client == "aiokafka":
        asyncio.run(by_aiokafka(*asked))
    else:
        by_kafka_python(*asked)


if __name__ == "__main__":
    main(*sys.argv[1:])
