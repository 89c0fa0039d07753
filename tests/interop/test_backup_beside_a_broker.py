"""A snapshot made beside a working broker: brokers of 4.3 and 4.4 start on it, and clients and groups go on.

The last test is a short run of `tests.support.live_backups`; SEGLOG_EFFORT makes it longer, SEGLOG_SEED another one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import effort
from tests.support.command_line import json_lines, run
from tests.support.consumers import Place, Row
from tests.support.dead_clusters import GROUPS, fill, make_topics, places, produce, producer, read_all
from tests.support.kafka.broker import Broker
from tests.support.kafka.jvm import NEWER_KAFKA_VERSION
from tests.support.live_backups import runs_beside_a_broker

pytestmark = pytest.mark.kafka

PACED = ("plain", 0)  # the partition that a client writes to all the time
SETTINGS = {
    "replica.high.watermark.checkpoint.interval.ms": "500",  # a run waits for it twice
    "log.flush.start.offset.checkpoint.interval.ms": "200",
}


@dataclass
class Living:
    """The repository, what clients read before the run and after it, and what they had been told was written."""

    repository: Path
    before: dict[str, dict[Place, list[Row]]]
    after: dict[str, dict[Place, list[Row]]]
    outcomes: list[dict[str, Any]] = field(default_factory=list)


def write_until(ending: threading.Event, bootstrap: str) -> None:
    client, n = producer(bootstrap), 100
    while not ending.is_set():
        produce(client, PACED[0], range(n, n + 20), PACED[1])
        n += 20
        ending.wait(0.2)


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    root = tmp_path_factory.mktemp("living")
    with Broker(root / "logs", settings=SETTINGS) as broker:
        make_topics(broker)
        clients = fill(broker)
        ending = threading.Event()
        writer = threading.Thread(target=write_until, args=(ending, broker.bootstrap))
        writer.start()
        try:
            outcomes = [backed_up(root)]
            before = read_all(broker.bootstrap, places())
            outcomes.append(backed_up(root))
        finally:
            ending.set()
            writer.join()
        after = read_all(broker.bootstrap, places())
        broker.kill()
    clients.clear()
    yield Living(root / "backup", before, after, outcomes)


def backed_up(root: Path) -> dict[str, Any]:
    done = run("backup", root / "logs", "--to", root / "backup", "--json")
    assert done.exit_code == 0, done.output
    return json_lines(done)[-1]


def test_a_second_run_beside_a_broker_sends_what_is_new(living: Living) -> None:
    first, second = living.outcomes
    assert first["remarks"] == second["remarks"] == [] and second["left_out"] == []
    assert second["unchanged"] >= 4
    manifest = first["sent_bytes"] - first["size"]
    assert second["sent_bytes"] <= 1.05 * (second["size"] - first["size"]) + 2 * manifest, json.dumps(living.outcomes)


@pytest.mark.parametrize("release", ["4.3.0", "4.4.0"])
def test_a_broker_starts_on_a_restored_snapshot_and_clients_and_groups_go_on(
    living: Living, tmp_path: Path, release: str
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    assert run("backup", "restore", living.repository, "-o", tmp_path / "logs").exit_code == 0
    with Broker(tmp_path / "logs", release=release) as broker:
        read = read_all(broker.bootstrap, places())
        for isolation, rows in read.items():
            for place, records in rows.items():
                old, new = living.before[isolation][place], living.after[isolation][place]
                if place[0] == "keyed":  # the cleaner was at work
                    assert records and set(records) <= set(old) | set(new)
                    continue
                assert new[: len(records)] == records, (place, isolation)
                assert len(records) >= len(old), (place, isolation)
        for group, (topic, number, offset) in GROUPS.items():
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
            (committed,) = consumer.committed([TopicPartition(topic, number)], 60)
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), 60)
            consumer.close()
            assert committed.offset == offset and low <= offset <= high
        client = producer(broker.bootstrap)
        produce(client, PACED[0], range(1000, 1010), PACED[1])
        again = read_all(broker.bootstrap, [PACED])["read_committed"][PACED]
        assert len(again) == len(read["read_committed"][PACED]) + 10


def test_snapshots_are_prefixes_of_what_clients_saw_whatever_became_of_their_runs(tmp_path: Path) -> None:
    runs = effort.tries(4)
    living = runs_beside_a_broker(tmp_path, effort.first_seed(1), NEWER_KAFKA_VERSION, runs)
    assert living.wrong == []
    assert living.counts["snapshots"] >= runs // 2 and living.counts["logs"] >= 9 * living.counts["snapshots"]
