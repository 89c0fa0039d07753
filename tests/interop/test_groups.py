"""`seglog groups` on a killed broker's directory says what `kafka-consumer-groups --describe` said before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import environment, json_lines, run
from tests.support.kafka.broker import Broker
from tests.support.kafka.jvm import find_java, kafka_classpath

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def tool(name: str, broker: Broker, *arguments: str) -> str:
    """What one of Kafka's commands prints."""
    command = [find_java(), "-Xmx256m", "-cp", kafka_classpath(), name, "--bootstrap-server", broker.bootstrap]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "Error:" not in done.stdout, done.stdout + done.stderr
    return done.stdout


def rows(text: str, columns: int) -> set[tuple[str, ...]]:
    """The first columns of the tables in a tool's output, without headings."""
    lines = (line.split() for line in text.splitlines())
    return {tuple(words[:columns]) for words in lines if len(words) >= columns and words[0] != "GROUP"}


def fill(bootstrap: str) -> list[object]:
    """Groups of all kinds; returns clients that must live on: members, and a transaction that is open."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(60):
        producer.produce("orders", b"value", partition=n % 3)
    assert producer.flush(60) == 0

    def committed(group: str, *offsets: tuple[int, int]) -> Consumer:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        places = [TopicPartition("orders", number, offset, metadata="note") for number, offset in offsets]
        consumer.commit(offsets=places, asynchronous=False)
        return consumer

    committed("closed", (0, 3), (2, 20)).close()
    committed("closed", (0, 4)).close()
    committed("deleted", (0, 1)).close()
    kept: list[object] = []
    for number, end in enumerate(("commit", "abort", "none")):
        reader = committed("paying", (number, 1))
        writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t{number}"})
        writer.init_transactions(60)
        writer.begin_transaction()
        offsets = [TopicPartition("orders", number, 11)]
        writer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 60)
        if end != "none":
            (writer.commit_transaction if end == "commit" else writer.abort_transaction)(60)
        kept += [writer, reader]
    for protocol in ("classic", "consumer"):
        settings = {"bootstrap.servers": bootstrap, "group.id": f"live-{protocol}", "auto.offset.reset": "earliest"}
        member = Consumer({**settings, "group.protocol": protocol, "enable.auto.commit": False, "client.id": protocol})
        member.subscribe(["orders"])
        message = member.poll(60)
        assert message is not None and message.error() is None
        member.commit(message=message, asynchronous=False)
        kept.append(member)
    return kept


def living_clients(bootstrap: str) -> subprocess.Popen[str]:
    """A process that has done `fill`, and keeps its clients until it is killed."""
    command = [sys.executable, "-m", "tests.interop.test_groups", bootstrap]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    assert process.stdout.readline() == "filled\n"
    return process


def described(text: str) -> set[tuple[str, ...]]:
    """group, topic, partition, offset, log end, lag, member (or -), as the tool's columns."""
    return rows(text, 7)


def shown(path: Path) -> tuple[set[tuple[str, ...]], dict[str, tuple[str, int]]]:
    """The same of seglog, and state and number of members by group."""
    found = json_lines(run("groups", "--json", path))
    fields = ("group", "topic", "partition", "offset", "log_end_offset", "lag", "member_id")
    offsets = [one for one in found if one["type"] == "group_offset"]
    states = {one["group"]: (one["state"], len(one["members"])) for one in found if one["type"] == "group"}
    return {tuple("-" if one[name] is None else str(one[name]) for name in fields) for one in offsets}, states


@pytest.mark.kafka
def test_a_killed_brokers_groups_are_what_kafkas_tool_described(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    with Broker(directory) as broker:
        broker.create_topic("orders", partitions=3)
        clients = living_clients(broker.bootstrap)
        admin = broker.admin()
        admin.delete_consumer_groups(["deleted"])["deleted"].result(60)
        living = described(tool(GROUPS, broker, "--describe", "--all-groups"))
        states = tool(GROUPS, broker, "--describe", "--all-groups", "--state")
        broker.kill()
    clients.kill()
    clients.wait()
    offsets, found = shown(directory)
    assert offsets == living
    assert ("paying", "orders", "0", "11", "20", "9", "-") in living  # committed by a transaction
    assert ("paying", "orders", "1", "1", "20", "19", "-") in living  # another one was aborted
    assert set(found) == {"closed", "paying", "live-classic", "live-consumer"}
    for line in states.splitlines():
        words = line.split()
        if words and words[0] in found:
            assert found[words[0]] == (words[-2], int(words[-1])), line
    with Broker(directory) as broker:
        for groups in (["closed"], ["closed", "paying"]):
            named = [part for group in groups for part in ("--group", group)]
            file = tmp_path / f"{len(groups)}.csv"
            file.write_text(run("groups", "--csv", *named, directory).stdout)
            reset = ("--reset-offsets", *named, "--dry-run")
            taken = rows(tool(GROUPS, broker, *reset, "--from-file", str(file)), 4)
            assert taken == {row[:4] for row in offsets if row[0] in groups}
            exported = tool(GROUPS, broker, *reset, "--to-current", "--all-topics", "--export")
            assert set(exported.replace('"', "").split()) == set(file.read_text().split())


if __name__ == "__main__":
    LIVING = fill(sys.argv[1])
    sys.stdout.write("filled\n")
    sys.stdout.flush()
    sys.stdin.read()
