"""Real Kafka clients as functions: what each of them reads of one partition, as rows that compare."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.kafka.jvm import find_java, kafka_classpath

# offset, timestamp (-1: none), key, value, headers
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
Place = tuple[str, int]  # topic and number

LIMIT_SECONDS = 60
POLL_MS = 200  # a poll that ends with batches without records to show returns nothing, and only at its time limit


def librdkafka_rows(bootstrap: str, partitions: Iterable[Place], isolation: str) -> dict[Place, list[Row]]:
    """From the first offset to the end of each partition, as confluent-kafka shows it."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "assigned", "enable.auto.commit": False}
    settings |= {"enable.partition.eof": True, "isolation.level": isolation, "check.crcs": True}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 10})
    rows: dict[Place, list[Row]] = {place: [] for place in partitions}
    left = set(rows)
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in rows])
        while left:
            message = consumer.poll(LIMIT_SECONDS)
            assert message is not None, "nothing came"
            error, place = message.error(), (message.topic(), message.partition())
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                left.discard(place)
                continue
            assert error is None, str(error)
            kind, stamp = message.timestamp()
            headers = tuple(message.headers() or ())
            rows[place].append((message.offset(), stamp if kind else -1, message.key(), message.value(), headers))
        return rows
    finally:
        consumer.close()


def kafka_python_rows(bootstrap: str, topic: str, number: int, isolation: str) -> list[Row]:
    """The same as kafka-python shows it."""
    from kafka import KafkaConsumer, TopicPartition

    partition = TopicPartition(topic, number)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False)
    rows: list[Row] = []
    try:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            for found in consumer.poll(timeout_ms=POLL_MS).get(partition, ()):
                rows.append((found.offset, _stamp(found.timestamp), found.key, found.value, tuple(found.headers)))
        return rows
    finally:
        consumer.close()


def aiokafka_rows(bootstrap: str, topic: str, number: int, isolation: str) -> list[Row]:
    """The same as aiokafka shows it."""
    return asyncio.run(_aiokafka_rows(bootstrap, topic, number, isolation))


async def _aiokafka_rows(bootstrap: str, topic: str, number: int, isolation: str) -> list[Row]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    partition = TopicPartition(topic, number)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False)
    await consumer.start()
    rows: list[Row] = []
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            batch = await consumer.getmany(partition, timeout_ms=POLL_MS)
            for found in batch.get(partition, ()):
                rows.append((found.offset, _stamp(found.timestamp), found.key, found.value, tuple(found.headers)))
        return rows
    finally:
        await consumer.stop()


def _stamp(timestamp: int | None) -> int:
    return -1 if timestamp is None else timestamp


def kcat_rows(bootstrap: str, topic: str, number: int) -> list[tuple[int, int, int, int]]:
    """Offset, timestamp, key size and value size (-1: null), as kcat shows them."""
    command = ["kcat", "-q", "-C", "-b", bootstrap, "-t", topic, "-p", str(number), "-o", "beginning", "-e"]
    done = subprocess.run(
        [*command, "-f", "%o %T %K %S\n"], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True
    )
    found = [tuple(int(field) for field in line.split()) for line in done.stdout.splitlines()]
    return [(a, b, c, d) for a, b, c, d in found]


def kcat_metadata(bootstrap: str) -> dict[str, int]:
    """Topic → number of partitions, as `kcat -L` lists them."""
    command = ["kcat", "-L", "-J", "-b", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True)
    return {found["topic"]: len(found["partitions"]) for found in json.loads(done.stdout)["topics"]}


_FIELD, _RECORD = "\x1f~field~", "\x1e~record~"


def java_group_offsets(bootstrap: str, topic: str, group: str, count: int) -> list[tuple[int, int]]:
    """(partition, offset) of the first records that Kafka's console consumer gets as a member of a group."""
    command = [find_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", kafka_classpath()]
    command += ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", topic]
    command += ["--group", group, "--max-messages", str(count), "--timeout-ms", "30000"]
    for name, value in (("partition", "true"), ("offset", "true"), ("value", "false")):
        command += ["--property", f"print.{name}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.replace("\t", " ").split() for line in done.stdout.splitlines() if line.startswith("Partition:")]
    return [(int(words[0].partition(":")[2]), int(words[1].partition(":")[2])) for words in lines]


def java_rows(
    bootstrap: str, topics: str, isolation: str, work: Path, count: int, *, protocol: str = "classic"
) -> Iterator[tuple[str, ...]]:
    """`count` records of all topics that a pattern names, read by a group of Kafka's console consumer.

    Each is (timestamp, partition, offset, headers, key, value) as the formatter prints them, in no order of partitions.
    """
    properties = work / "consumer.properties"
    lines = (f"isolation.level={isolation}", "auto.offset.reset=earliest", "exclude.internal.topics=false")
    properties.write_text("".join(f"{line}\n" for line in (*lines, f"group.protocol={protocol}")))
    printed = "print.partition print.offset print.timestamp print.headers print.key print.value"
    shown = [f"--property={name}=true" for name in printed.split()]
    separators = [f"--property=key.separator={_FIELD}", f"--property=line.separator={_RECORD}"]
    command = [find_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", kafka_classpath()]
    command += ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap]
    command += ["--include", topics, "--consumer.config", str(properties), "--max-messages", str(count)]
    done = subprocess.run(
        [*command, *shown, *separators, "--timeout-ms", "30000"], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    for record in done.stdout.decode(errors="replace").split(_RECORD)[:-1]:
        yield tuple(record.split(_FIELD))
