"""A killed cluster's partitions under another cluster's broker: what clients read, write and commit there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import json_lines, run
from tests.support.consumers import Place, Row, java_group_offsets
from tests.support.dead_clusters import (
    COMPACTED,
    GROUPS,
    ISOLATIONS,
    OLD_FORMATS,
    PAID,
    DeadCluster,
    begun,
    dead_cluster,
    finish,
    key_of,
    make_topics,
    places,
    produce,
    producer,
    read_all,
    value_of,
)
from tests.support.kafka.broker import NODE_ID, SECOND_NODE_ID, Broker
from tests.support.open_logs import opened_log
from tests.support.serving import local_rows

pytestmark = pytest.mark.kafka

Everything = dict[str, dict[Place, list[Row]]]  # rows by isolation and partition


@dataclass
class World:
    """The dead cluster, the log directory that its data was put into, and the broker that serves it now."""

    dead: DeadCluster
    target: Path
    broker: Broker
    said: list[dict[str, Any]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    dead = dead_cluster(tmp_path_factory.mktemp("dead"))
    target = tmp_path_factory.mktemp("new") / "logs"
    with Broker(target) as broker:
        make_topics(broker, old_formats=True)
    done = run("transplant", *dead.sources, "--into", target, "--json")
    assert done.exit_code == 0, done.output
    said = json_lines(done)
    broker = Broker(target)
    made = World(dead, target, broker, said)
    yield made
    if made.broker.process.poll() is None:
        made.broker.kill()


def test_every_record_is_there_with_offset_timestamp_key_value_and_headers(world: World) -> None:
    found = read_all(world.broker.bootstrap, places(old_formats=True))
    for isolation in ISOLATIONS:
        for place, rows in world.dead.rows[isolation].items():
            assert seen(place, found[isolation][place]) == seen(place, rows) != [], (isolation, place)
    for source in world.dead.sources[1:]:
        with opened_log(source, writable=False) as log:
            assert found["read_uncommitted"][source.name.removesuffix("-0"), 0] == local_rows(log)
    assert len(world.dead.sources) == 1 + sum(map(len, OLD_FORMATS.values()))
    said = world.broker.log_text()
    assert "stray" not in said.lower() and "truncat" not in said.lower(), said


def test_what_had_to_change_is_said(world: World) -> None:
    rows = {one["partition"]: one for one in world.said if one["type"] == "transplant"}
    assert rows["plain-0"]["leader_epochs_changed"] > 0 and rows["plain-0"]["producers_removed"] > 0
    assert rows["trimmed-0"]["log_start_offset"] == 23
    assert len(rows["rolled-0"]["steps"]) and rows["rolled-0"]["segments"] > 2
    ended = rows["paid-0"]["transactions_ended"]
    assert [one["marker"] for one in ended] == ["ABORT", "ABORT"]
    assert all("Ongoing" in one["reason"] for one in ended)


def test_groups_resume_where_they_had_committed(world: World) -> None:
    """Java's consumer holds committed epochs against the partition's, librdkafka does since 2.1."""
    from confluent_kafka import Consumer, TopicPartition

    for group, (topic, number, offset) in GROUPS.items():
        settings = {"bootstrap.servers": world.broker.bootstrap, "group.id": group, "auto.offset.reset": "latest"}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        (known,) = consumer.committed([TopicPartition(topic, number)], timeout=30)
        assert known.offset == offset
        consumer.assign([known])
        message = consumer.poll(30)
        assert message is not None and message.error() is None and message.offset() == offset
        consumer.close()
    topic, number, offset = GROUPS["resuming"]
    assert java_group_offsets(world.broker.bootstrap, topic, "resuming", 3) == [
        (number, each) for each in range(offset, offset + 3)
    ]


def test_no_write_of_a_new_producer_is_taken_for_an_old_one(world: World) -> None:
    """The new cluster hands out the ids again that the data had; after a kill, recovery knows what the batches say."""
    write_everywhere(world.broker.bootstrap)
    world.broker.kill()
    world.broker = Broker(world.target)
    write_everywhere(world.broker.bootstrap)
    found = read_all(world.broker.bootstrap, places())["read_committed"]
    for place, rows in world.dead.rows["read_committed"].items():
        if place[0] == COMPACTED:
            assert values(found[place]) == {**values(rows), **dict(written(place[0]))}
            continue
        assert found[place][: len(rows)] == rows, place
        assert [(key, value) for _, _, key, value, _ in found[place][len(rows) :]] == 2 * written(place[0]), place


@pytest.mark.slow
def test_two_replicas_lose_nothing_acknowledged_when_the_leader_dies_while_records_are_produced(
    world: World, tmp_path: Path
) -> None:
    wanted = places()
    before = read_all(world.broker.bootstrap, wanted)
    other = Broker(tmp_path / "logs", beside=world.broker)
    try:
        replicate(world.broker, [*wanted, *((OFFSETS_TOPIC, number) for number in range(2))])
        assert all(seen_alike(before, read_all(other.bootstrap, wanted), place) for place in wanted)
        with Producing(f"{world.broker.bootstrap},{other.bootstrap}", PRODUCED) as producing:
            producing.wait_for(PRODUCED_BEFORE)
            other.kill()
            producing.wait_for(len(producing.acknowledged) + PRODUCED_BEFORE)
        other = Broker(tmp_path / "logs", beside=world.broker)
        replicate(world.broker, wanted)
        for bootstrap in (world.broker.bootstrap, other.bootstrap):
            after = read_all(bootstrap, wanted)
            assert all(seen_alike(before, after, place) for place in wanted if place != PRODUCED)
            rows, known = after["read_committed"][PRODUCED], before["read_committed"][PRODUCED]
            assert rows[: len(known)] == known
            assert [row[3] for row in rows[len(known) :]] == producing.acknowledged
        said = other.log_text()
        assert "stray" not in said.lower() and "out of range" not in said.lower(), said
    finally:
        other.kill()


OFFSETS_TOPIC = "__consumer_offsets"
PRODUCED: Place = ("plain", 1)
PRODUCED_BEFORE = 200  # records that are acknowledged before the leader dies, and again after
LIMIT_SECONDS = 300


def replicate(one: Broker, wanted: list[Place]) -> None:
    """Puts partitions on both brokers, waits until both are in sync, and lets the second one lead."""
    import confluent_kafka
    import kafka

    nodes = [SECOND_NODE_ID, NODE_ID]
    admin = kafka.KafkaAdminClient(bootstrap_servers=one.bootstrap, request_timeout_ms=LIMIT_SECONDS * 1000)
    admin.alter_partition_reassignments(dict.fromkeys([kafka.TopicPartition(*place) for place in wanted], nodes))
    admin.close()
    await_partitions(one, wanted, lambda each: sorted(each.isrs) == sorted(nodes))
    places_of = [confluent_kafka.TopicPartition(*place) for place in wanted]
    electing = one.admin()
    electing.elect_leaders(confluent_kafka.ElectionType.PREFERRED, places_of).result(LIMIT_SECONDS)
    await_partitions(one, wanted, lambda each: each.leader == SECOND_NODE_ID)


def await_partitions(broker: Broker, wanted: list[Place], done: Callable[[Any], bool]) -> None:
    """Until the metadata of every partition is so."""
    deadline, admin = time.monotonic() + LIMIT_SECONDS, broker.admin()
    while True:
        topics = admin.list_topics(timeout=LIMIT_SECONDS).topics
        left = [place for place in wanted if not done(topics[place[0]].partitions[place[1]])]
        if not left:
            return
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


class Producing:
    """Writes numbers to a partition, one after the other, while its `with` lasts; `acknowledged` are the values that
    the brokers have taken, in their order.
    """

    def __init__(self, bootstrap: str, place: Place) -> None:
        self.acknowledged: list[bytes] = []
        self._bootstrap, (self._topic, self._number) = bootstrap, place
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline and self._thread.is_alive(), len(self.acknowledged)
            time.sleep(0.01)

    def __enter__(self) -> Producing:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        client = producer(self._bootstrap, acks="all", message_timeout_ms=LIMIT_SECONDS * 1000)
        n = 0
        while not self._ended.is_set():
            client.produce(self._topic, b"%d" % n, partition=self._number, on_delivery=self._took)
            n += 1
            client.poll(0.002)
        assert client.flush(LIMIT_SECONDS) == 0

    def _took(self, error: object, message: Any) -> None:
        assert error is None, error
        self.acknowledged.append(message.value())


def seen_alike(before: Everything, after: Everything, place: Place) -> bool:
    """Whether both show the same of a partition, under both isolations."""
    return all(seen(place, before[each][place]) == seen(place, after[each][place]) for each in ISOLATIONS)


def write_everywhere(bootstrap: str) -> None:
    """As the old cluster's producers did: the same sequences, from producers whose ids begin at 0 again."""
    for topic, number in places():
        produce(producer(bootstrap), topic, range(20), number)
    writer = begun(bootstrap, "a")
    produce(writer, PAID, range(10))
    finish(writer, bootstrap, "a", commit=True)


def written(topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of what `write_everywhere` writes to a partition."""
    numbers = (*range(20), *(range(10) if topic == PAID else ()))
    return [(key_of(n), value_of(topic, n)) for n in numbers]


def seen(place: Place, rows: list[Row]) -> list[Row]:
    """All rows; of a compacted topic, which both brokers clean when they like, the last one of each key."""
    return rows if place[0] != COMPACTED else sorted({row[2]: row for row in rows}.values())


def values(rows: list[Row]) -> dict[bytes | None, bytes | None]:
    return {key: value for _, _, key, value, _ in rows}
