"""A cluster whose metadata is gone starts again on its own directories: records, groups, producers, transactions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import json_lines, run
from tests.support.consumers import Place, Row
from tests.support.dead_clusters import GROUPS, begun, finish, make_topics, produce, producer, read_all
from tests.support.kafka.broker import NODE_ID, Broker
from tests.support.kafka.tools import GROUPS as DESCRIBED_BY
from tests.support.kafka.tools import tool
from tests.support.rebuilt import copy_snapshots

pytestmark = pytest.mark.kafka

PLACES = [("plain", 0), ("plain", 1), ("keyed", 0), ("paid", 0)]


class Lost:
    """A killed cluster, and what clients had read of it."""

    def __init__(self, directory: Path) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.directory = directory
        with Broker(directory) as broker:
            make_topics(broker)
            for number in range(2):
                produce(producer(broker.bootstrap), "plain", range(60), number)
            produce(producer(broker.bootstrap), "keyed", range(60))
            for name, commit in (("a", True), ("b", False)):
                writer = begun(broker.bootstrap, name)
                produce(writer, "paid", range(10))
                finish(writer, broker.bootstrap, name, commit=commit)
            for group, (topic, number, offset) in GROUPS.items():
                consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
                consumer.commit(offsets=[TopicPartition(topic, number, offset)], asynchronous=False)
                consumer.close()
            assert next_of_newer_group(broker.bootstrap) == 0
            self.rows = read_all(broker.bootstrap, PLACES)
            broker.kill()


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    yield Lost(tmp_path_factory.mktemp("lost") / "logs")


def taken_over(directory: Path, made: Path) -> None:
    """What the output of `rebuild` says to do."""
    shutil.rmtree(directory / "__cluster_metadata-0", ignore_errors=True)
    copy_snapshots(made, directory)


def require_all(broker: Broker, rows: dict[str, dict[Place, list[Row]]]) -> None:
    from confluent_kafka import Consumer, TopicPartition

    assert read_all(broker.bootstrap, PLACES) == rows
    for group, (topic, number, offset) in GROUPS.items():
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        (found,) = consumer.committed([TopicPartition(topic, number)], 30)
        consumer.close()
        assert found.offset == offset
    assert "stray" not in broker.log_text().lower()


def next_of_newer_group(bootstrap: str) -> int:
    """The offset of the next record of `paid` for a group of the protocol `consumer`, which commits it."""
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": "newer", "group.protocol": "consumer"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["paid"])
    message = consumer.poll(60)
    assert message is not None and message.error() is None
    consumer.commit(message, asynchronous=False)
    consumer.close()
    return int(message.offset())


def ids_of(partition: Path) -> set[int]:
    batches = json_lines(run("dump", "--json", partition))
    return {int(row["producer_id"]) for row in batches if row["type"] == "batch"}


def test_a_cluster_without_any_metadata_starts_on_its_directories_with_records_and_groups(
    lost: Lost, tmp_path: Path
) -> None:
    directory = tmp_path / "logs"
    shutil.copytree(lost.directory, directory)
    shutil.rmtree(directory / "__cluster_metadata-0")
    (directory / "bootstrap.checkpoint").unlink()
    done = run("rebuild", directory, "-o", tmp_path / "made", "--json")
    assert done.exit_code == 0, done.output
    next_id = json_lines(done)[0]["next_producer_id"]
    levels = {"metadata.version": 22, "group.version": 1, "transaction.version": 1}  # librdkafka knows none above
    assert json_lines(done)[0]["features"] == levels
    taken_over(directory, tmp_path / "made")
    before = ids_of(directory / "plain-0")
    with Broker(directory) as broker:
        require_all(broker, lost.rows)
        assert next_of_newer_group(broker.bootstrap) == 1
        described = tool(DESCRIBED_BY, broker, "--describe", "--all-groups")  # one that it cannot describe fails all
        assert {line.split()[0] for line in described.splitlines() if line.strip()} >= {"newer", *GROUPS}
        produce(producer(broker.bootstrap), "plain", range(60, 80), 0)
        writer = begun(broker.bootstrap, "a")
        produce(writer, "paid", range(10))
        finish(writer, broker.bootstrap, "a", commit=True)
        broker.kill()
    new = ids_of(directory / "plain-0") - before
    assert len(new) == 1 and min(new) >= next_id > max(before)
    with Broker(directory) as broker:  # recovers producers from the logs: nothing that was acknowledged is gone
        found = read_all(broker.bootstrap, PLACES)["read_committed"]
        broker.kill()
    counts: dict[Any, int] = {place: len(rows) for place, rows in lost.rows["read_committed"].items()}
    assert {place: len(rows) for place, rows in found.items()} == {
        **counts,
        ("plain", 0): counts["plain", 0] + 20,
        ("paid", 0): counts["paid", 0] + 10,
    }


def test_what_a_newly_formatted_broker_has_set_aside_starts_again_by_restore_and_rebuild(
    lost: Lost, tmp_path: Path
) -> None:
    directory, new, made = tmp_path / "logs", tmp_path / "new", tmp_path / "made"
    shutil.copytree(lost.directory, directory)
    shutil.rmtree(directory / "__cluster_metadata-0")
    for name in ("bootstrap.checkpoint", "meta.properties"):
        (directory / name).unlink()
    with Broker(directory) as broker:
        broker.stop()
    assert {path.name for path in directory.glob("plain-*")} == {path.name for path in directory.glob("plain-*-stray")}
    restored = run("restore", directory, "-o", new)
    assert restored.exit_code == 0, restored.output
    rebuilt = run("rebuild", new, "--node", f"{new}={NODE_ID}", "-o", made)
    assert rebuilt.exit_code == 0, rebuilt.output
    (identity,) = made.rglob("meta.properties")
    shutil.copyfile(identity, new / identity.name)
    taken_over(new, made)
    with Broker(new) as broker:
        require_all(broker, lost.rows)
        broker.kill()


def test_a_damaged_metadata_log_brings_back_configuration_and_features_up_to_the_damage(
    lost: Lost, tmp_path: Path
) -> None:
    directory = tmp_path / "logs"
    shutil.copytree(lost.directory, directory)
    log = directory / "__cluster_metadata-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes().rstrip(b"\0"))
    data[-40] ^= 1
    log.write_bytes(data)
    done = run("rebuild", directory, "-o", tmp_path / "made", "--json")
    assert done.exit_code == 3, done.output
    assert json_lines(done)[0]["features"]["eligible.leader.replicas.version"] == 1
    taken_over(directory, tmp_path / "made")
    with Broker(directory) as broker:
        require_all(broker, lost.rows)
        broker.kill()
    rows = json_lines(run("metadata", "--json", directory))
    (keyed,) = [row for row in rows if row["type"] == "topic" and row["topic"] == "keyed"]
    assert keyed["configs"]["cleanup.policy"] == "compact"
