"""`seglog replay` into a real broker: each record once, whatever kills it; offsets and groups translated."""

from __future__ import annotations

import csv
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog.model import Isolation, Record
from seglog.storage.local import LocalFileSystem
from seglog_rescue.serve.replay.state import ReplayState
from tests.support import effort
from tests.support.command_line import clean_logs, environment, json_lines, run
from tests.support.consumers import librdkafka_rows
from tests.support.json_contract import output_faults
from tests.support.kafka import Broker
from tests.support.open_logs import opened_log

pytestmark = pytest.mark.kafka

RECORDS = effort.tries(60000)
KILLS = 5


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker") / "data") as made:
        yield made


def source(directory: Path, count: int) -> Path:
    """A partition with gaps between its batches, so that offsets cannot stay."""
    made = directory / "orders-0"
    with opened_log(made) as log:
        for first in range(0, count, 1000):
            log.append(
                [Record(b"%d" % i * 8, b"k%d" % (i % 97), 1_700_000_000_000 + i) for i in range(first, first + 1000)]
            )
    return made


def contents(directory: Path) -> list[tuple[object, ...]]:
    with opened_log(directory) as log:
        return [(r.timestamp, r.key, r.value) for r in log.records(None, Isolation.READ_COMMITTED)]


def arrived(broker: Broker, topic: str) -> list[tuple[object, ...]]:
    rows = librdkafka_rows(broker.bootstrap, [(topic, 0)], "read_uncommitted")[topic, 0]
    return [row[1:4] for row in rows]


def test_a_replay_that_is_killed_five_times_brings_each_record_once(tmp_path: Path, broker: Broker) -> None:
    broker.create_topic("killed")
    partition = source(tmp_path, RECORDS)
    state, found = tmp_path / "state", tmp_path / "map.csv"
    arguments = ["--to", broker.bootstrap, "--state", state, "--map", found, "--topic", "orders=killed", partition]
    command = [sys.executable, "-m", "seglog_cli", "replay", "--throttle", "300kB", *map(str, arguments)]
    chance = random.Random(7)
    for _ in range(KILLS):
        child = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        begun = _end(broker, "killed")
        while child.poll() is None and _end(broker, "killed") < begun + 1000:
            time.sleep(0.05)
        time.sleep(chance.random() * 0.5)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
    result = run("replay", *arguments)
    assert result.exit_code == 0, result.output
    assert arrived(broker, "killed") == contents(partition)
    rows = [[int(row[i]) for i in (2, 3, 6)] for row in list(csv.reader(found.open()))[1:]]
    assert [offset for first, last, _ in rows for offset in range(first, last + 1)] == list(range(RECORDS))
    assert [new + i for first, last, new in rows for i in range(last - first + 1)] == list(range(RECORDS))


def _end(broker: Broker, topic: str) -> int:
    from seglog.model import TopicPartition
    from seglog_rescue.serve.replay.target import TargetCluster

    with TargetCluster(broker.bootstrap, {}) as cluster:
        return cluster.end_offset(TopicPartition(topic, 0))


def test_committed_records_arrive_and_groups_go_on_at_the_same_record(tmp_path: Path, broker: Broker) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions

    logs, chosen = clean_logs(tmp_path), tmp_path / "chosen"
    for name in ("payments-0", "orders-lz4-0", "__consumer_offsets-0", "__consumer_offsets-1"):
        shutil.copytree(logs / name, chosen / name)
    for topic in ("payments", "orders-lz4"):
        broker.create_topic(topic)
    arguments = ["--to", broker.bootstrap, "--state", tmp_path / "state", "--map", tmp_path / "map.csv"]
    assert run("replay", *arguments, "--groups", chosen).exit_code == 0
    for topic in ("payments", "orders-lz4"):
        assert arrived(broker, topic) == contents(chosen / f"{topic}-0")
    with opened_log(chosen / "payments-0") as log:
        committed = [r.offset for r in log.records(None, "read_committed")]
        assert len(committed) < log.log_end_offset  # markers and aborted records stay where they are
    request = ConsumerGroupTopicPartitions("group-1")
    admin = broker.admin()  # must outlive the request
    (future,) = admin.list_consumer_group_offsets([request]).values()
    found = {place.topic: place.offset for place in future.result(30).topic_partitions}
    assert found == {"orders-lz4": 169, "payments": sum(offset < 398 for offset in committed)}


def test_others_records_between_are_not_taken_for_ours(tmp_path: Path, broker: Broker) -> None:
    from confluent_kafka import Producer

    broker.create_topic("shared")
    partition = source(tmp_path, 2000)
    state = tmp_path / "state"
    arguments = ["--to", broker.bootstrap, "--state", state, "--topic", "orders=shared", partition]
    assert run("replay", *arguments).exit_code == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("shared", b"foreign", b"key")
    producer.flush()
    fs = LocalFileSystem()
    before = ReplayState.load(fs, state)
    assert before is not None
    (progress,) = before.partitions.values()
    progress.next_offset, progress.target_end, before.in_order = 1500, 1500, False  # as if killed before it saved
    before.save(fs, state)
    with opened_log(partition) as log:
        log.append([Record(b"more", timestamp=5)])
    result = run("replay", "--json", *arguments)
    assert result.exit_code == 0, result.output
    assert json_lines(result)[-1]["next_offset"] == 2001
    assert output_faults("replay", result.stdout) == []
    assert [row[2] for row in arrived(broker, "shared")[1999:]] == [b"1999" * 8, b"foreign", b"more"]


def test_what_cannot_be_replayed_is_refused_before_anything_is_sent(tmp_path: Path, broker: Broker) -> None:
    partition = source(tmp_path, 1000)
    broker.create_topic("narrow")
    arguments = ["--to", broker.bootstrap, "--state", tmp_path / "state"]
    result = run("replay", *arguments, "--topic", "orders=absent", partition)
    assert result.exit_code == 12
    assert "the cluster has no topic absent; make it with its settings: kafka-topics.sh" in result.output
    other = tmp_path / "orders-3"
    partition.rename(other)
    result = run("replay", *arguments, "--topic", "orders=narrow", other)
    assert (result.exit_code, "at least 4 are needed" in result.output) == (12, True)
    assert not (tmp_path / "state").exists()
    assert run("replay", *arguments, "--property", "acks=1", other).exit_code == 12
    assert run("replay", *arguments, "--groups", other).exit_code == 2
