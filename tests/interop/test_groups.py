"""`seglog groups` on a killed broker's directory says what kafka-consumer-groups and kafka-share-groups had said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seglog.model import TopicPartition as SeglogPartition
from seglog_rescue.operations.groups import coordinator_partition
from tests.support.command_line import environment, json_lines, run
from tests.support.group_records import commit
from tests.support.kafka.broker import Broker
from tests.support.kafka.tools import GROUPS, SHARE_GROUPS, java, tool
from tests.support.open_logs import opened_log


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


def living(command: list[str]) -> subprocess.Popen[str]:
    """A process that has made its groups, and keeps its clients until it is killed."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    assert process.stdout.readline() == "filled\n"
    return process


def ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


OFFSETS = ("group", "topic", "partition", "offset", "log_end_offset", "lag", "member_id")
SHARES = ("group", "topic", "partition", "leader_epoch", "offset", "lag")


def shown(found: list[dict[str, Any]], fields: tuple[str, ...]) -> set[tuple[str, ...]]:
    """What seglog's JSON lines say of offsets, as Kafka's columns."""
    offsets = [one for one in found if one["type"] == "group_offset"]
    return {tuple("-" if one[name] is None else str(one[name]) for name in fields) for one in offsets}


def states(found: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """State and number of members by group."""
    return {one["group"]: (one["state"], str(len(one["members"]))) for one in found if one["type"] == "group"}


def members(found: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    """group, id, host, client, number of partitions."""
    return {
        (group["group"], one["member_id"], one["host"], one["client_id"], str(len(one["assigned"])))
        for group in found
        if group["type"] == "group"
        for one in group["members"]
    }


@pytest.mark.kafka
def test_a_killed_brokers_groups_are_what_kafkas_tool_described(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    with Broker(directory) as broker:
        broker.create_topic("orders", partitions=3)
        clients = living([sys.executable, "-m", "tests.interop.test_groups", broker.bootstrap])
        admin = broker.admin()
        admin.delete_consumer_groups(["deleted"])["deleted"].result(60)
        described = rows(tool(GROUPS, broker, "--describe", "--all-groups"), 7)
        lines = tool(GROUPS, broker, "--describe", "--all-groups", "--state").splitlines()
        described_states = {words[0]: (words[-2], words[-1]) for words in map(str.split, lines) if len(words) > 3}
        described_members = rows(tool(GROUPS, broker, "--describe", "--all-groups", "--members"), 5)
        broker.kill()
    ended(clients)
    found = json_lines(run("groups", "--json", directory))
    offsets = shown(found, OFFSETS)
    assert offsets == described
    assert ("paying", "orders", "0", "11", "20", "9", "-") in offsets  # committed by a transaction
    assert ("paying", "orders", "1", "1", "20", "19", "-") in offsets  # another one was aborted
    assert set(states(found)) == {"closed", "paying", "live-classic", "live-consumer"}
    assert states(found).items() == described_states.items() - {("GROUP", ("STATE", "#MEMBERS"))}
    assert members(found) == described_members and len(described_members) == 2
    chosen = (("closed",), ("closed", "paying"))
    files = {groups: run("groups", "--csv", *named(groups), directory).stdout for groups in chosen}
    with Broker(directory) as broker:
        earliest = ("--to-earliest", "--all-topics", "--execute")
        tool(GROUPS, broker, "--reset-offsets", *named(chosen[-1]), *earliest)
        for groups, lines in files.items():
            file = tmp_path / f"{len(groups)}.csv"
            file.write_text(lines)
            reset = tool(GROUPS, broker, "--reset-offsets", *named(groups), "--from-file", str(file), "--execute")
            assert rows(reset, 4) == {row[:4] for row in offsets if row[0] in groups}
            current = ("--to-current", "--all-topics", "--export", "--dry-run")
            exported = tool(GROUPS, broker, "--reset-offsets", *named(groups), *current)
            assert set(exported.replace('"', "").split()) == set(lines.split())


@pytest.mark.kafka
def test_kafkas_tool_resets_offsets_though_a_group_had_a_topic_that_is_gone(tmp_path: Path) -> None:
    from confluent_kafka import Consumer, TopicPartition

    directory = tmp_path / "logs"
    with Broker(directory) as broker:
        broker.create_topic("orders", partitions=2)
        fill_evenly(broker.bootstrap)
        reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "closed"})
        reader.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
        reader.close()
    number = coordinator_partition("stale", 2)  # a broker forgets such commits, a restore brings them back
    with opened_log(directory / f"__consumer_offsets-{number}") as log:
        log.append([commit("stale", 5, partition=SeglogPartition("no-such-topic", 0))])
    lines = run("groups", "--csv", directory).stdout
    assert lines == "orders,0,3\n"
    (tmp_path / "taken.csv").write_text(lines)
    (tmp_path / "refused.csv").write_text("closed,orders,0,3\nstale,no-such-topic,0,5\n")
    with Broker(directory) as broker:
        reset = ("--reset-offsets", "--dry-run", "--from-file")
        taken, refused = str(tmp_path / "taken.csv"), str(tmp_path / "refused.csv")
        assert rows(tool(GROUPS, broker, *reset, taken, "--group", "closed"), 4) == {("closed", "orders", "0", "3")}
        with pytest.raises(AssertionError, match="UnknownTopicOrPartition"):
            tool(GROUPS, broker, *reset, refused, *named(("closed", "stale")))


def named(groups: tuple[str, ...]) -> list[str]:
    """The options that name groups."""
    return [part for group in groups for part in ("--group", group)]


SHARE_SETTINGS = {
    "share.coordinator.snapshot.update.records.per.snapshot": "2",  # both snapshots and updates are there to read
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
}
MARKS = ("worked", "aaaaaaa", "mixed", "aarxaaraaxrraaxa+", "deleted", "a", "forgotten", "a", "rewound", "aaaa")


@pytest.mark.kafka
def test_a_killed_brokers_share_groups_are_what_kafkas_tool_described(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    with Broker(directory, settings=SHARE_SETTINGS) as broker:
        broker.create_topic("orders", partitions=2)
        fill_evenly(broker.bootstrap)
        readers = (broker.bootstrap, "orders", "earliest", *MARKS, "waiting", "+")
        clients = living(java("seglogkafka.ShareReaders", *readers))
        tool(SHARE_GROUPS, broker, "--delete", "--group", "deleted")
        tool(SHARE_GROUPS, broker, "--delete-offsets", "--group", "forgotten", "--topic", "orders")
        rewound = ("--reset-offsets", "--group", "rewound", "--topic", "orders", "--to-earliest", "--execute")
        tool(SHARE_GROUPS, broker, *rewound)
        describe = ("--describe", "--all-groups", "--verbose")
        described = rows(tool(SHARE_GROUPS, broker, *describe, "--offsets"), 6)
        described_states = rows(tool(SHARE_GROUPS, broker, *describe, "--state"), 7)
        described_members = rows(tool(SHARE_GROUPS, broker, *describe, "--members"), 7)
        broker.kill()
    ended(clients)
    found = json_lines(run("groups", "--json", directory))
    assert shown(found, SHARES) == {row for row in described if row[0] != "Share"}
    assert {row[0] for row in described} >= {"worked", "mixed", "rewound"}
    assert set(states(found)) == {"worked", "mixed", "forgotten", "rewound", "waiting"}
    for row in found:
        if row["type"] == "group_offset" and row["lag"] is not None and row["offset"] is not None:
            ended_batches = [one for one in row["batches"] if one["state"] in ("acknowledged", "archived")]
            out_of_order = sum(one["last_offset"] - one["first_offset"] + 1 for one in ended_batches)
            assert out_of_order == row["log_end_offset"] - row["offset"] - row["lag"]  # as Kafka counts them
    assert any(row.get("batches") for row in found if row["group"] == "mixed")
    groups = [one for one in found if one["type"] == "group"]
    assert {(row[0], *row[3:]) for row in described_states} == {
        (one["group"], one["state"], str(one["epoch"]), str(one["assignment_epoch"]), str(len(one["members"])))
        for one in groups
    }
    assert {row[:5] for row in described_members} == members(found)
    assert {row[1]: row[5:] for row in described_members} == {
        one["member_id"]: (str(one["epoch"]), "orders:0,1") for group in groups for one in group["members"]
    }


def fill_evenly(bootstrap: str) -> None:
    """Thirty records in each of two partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(60):
        producer.produce("orders", b"value", partition=n % 2)
    assert producer.flush(60) == 0


if __name__ == "__main__":
    LIVING = fill(sys.argv[1])
    sys.stdout.write("filled\n")
    sys.stdout.flush()
    sys.stdin.read()
