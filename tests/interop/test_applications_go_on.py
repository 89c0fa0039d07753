"""DEAD_CLUSTER.md, situation 7: a Streams application and a share group go on in another cluster.

`SEGLOG_STREAMS_PROTOCOL` is the protocol of the application's group: classic, or streams (KIP-1071).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.test_internal_topics import topics_classpath
from tests.support.command_line import json_lines, run
from tests.support.kafka.broker import Broker
from tests.support.kafka.jvm import find_java
from tests.support.kafka.tools import java, tool

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
WORDS, PARTITIONS = ("one", "two", "three"), 2


def produce(broker: Broker, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    client = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(count):
        client.produce(topic, WORDS[n % len(WORDS)].encode(), partition=n % PARTITIONS)
    assert client.flush(60) == 0


@contextmanager
def counting(broker: Broker, state: Path, protocol: str, total: int) -> Iterator[str]:
    """What a Streams application has counted; it is killed at the end."""
    command = [str(find_java()), "-Xmx256m", f"-Dstate={state}", "-cp", topics_classpath(), "seglogtopics.Counting"]
    process = subprocess.Popen(
        [*command, broker.bootstrap, "words", protocol, str(total)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def counted(total: int) -> str:
    counts = {word: len(range(n, total, len(WORDS))) for n, word in enumerate(WORDS)}
    return "{" + ", ".join(f"{word}={counts[word]}" for word in sorted(counts)) + "}"


def read_as_share_group(broker: Broker, topic: str, reset: str, marks: str) -> None:
    command = java("seglogkafka.ShareReaders", broker.bootstrap, topic, reset, "sharing", marks)
    subprocess.run(command, input="", text=True, check=True, timeout=240, stdout=subprocess.DEVNULL)


def test_a_streams_application_and_a_share_group_go_on_after_a_transplant(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "logs", tmp_path / "new" / "logs"
    protocol = os.environ.get("SEGLOG_STREAMS_PROTOCOL", "classic")
    with Broker(old) as broker:
        for topic in ("words", "shared"):
            broker.create_topic(topic, PARTITIONS)
            produce(broker, topic, 60)
        with counting(broker, tmp_path / "state-1", protocol, 60) as counts:
            assert counts == counted(60)
            read_as_share_group(broker, "shared", "earliest", "aaaraa")
            broker.kill()
    groups = {row["group"]: row for row in json_lines(run("groups", "--json", old)) if row["type"] == "group"}
    assert (groups["counting"]["used_by"], groups["sharing"]["group_type"]) == ("streams", "share")
    own = [name for name in (path.name for path in old.iterdir()) if re.fullmatch(r"counting-.+-\d+", name)]
    assert {name.rpartition("-")[0] for name in own} == {"counting-counts-changelog", "counting-by-value-repartition"}
    with Broker(new) as broker:
        for topic in ("words", "shared"):
            broker.create_topic(topic, PARTITIONS)
        broker.create_topic("counting-counts-changelog", PARTITIONS, cleanup_policy="compact")
        broker.create_topic("counting-by-value-repartition", PARTITIONS, retention_ms="-1")
        broker.create_topic("__consumer_offsets", PARTITIONS, cleanup_policy="compact")
    done = run("transplant", old, "--into", new)
    assert done.exit_code == 0, done.output
    (said,) = [line for line in done.stderr.splitlines() if "share group sharing begins anew" in line]
    printed = re.search(r"HOST:PORT (--reset-offsets .+?) \(or", said)
    assert printed is not None
    with Broker(new) as broker:
        produce(broker, "words", 30)
        with counting(broker, tmp_path / "state-2", protocol, 90) as counts:
            assert counts == counted_both(60, 30)
        tool(SHARE_GROUPS, broker, *shlex.split(printed[1]))
        read_as_share_group(broker, "shared", "latest", "a" * 60)


def counted_both(first: int, more: int) -> str:
    numbers = [dict(re.findall(r"(\w+)=(\d+)", counted(total))) for total in (first, more)]
    return "{" + ", ".join(f"{word}={sum(int(one[word]) for one in numbers)}" for word in sorted(numbers[0])) + "}"
