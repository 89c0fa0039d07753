"""A deleted topic comes back in a broker with two log directories, as README's night table says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.consumers import Place, Row, librdkafka_rows
from tests.support.dead_clusters import producer
from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.kafka

TOPIC, PARTITIONS = "orders", 6
PLACES: list[Place] = [(TOPIC, number) for number in range(PARTITIONS)]


def test_a_deleted_topic_comes_back_in_a_broker_with_two_log_directories(tmp_path: Path) -> None:
    disks = [tmp_path / "d1", tmp_path / "d2"]
    disks[1].mkdir()
    settings = {"log.dirs": ",".join(map(str, disks)), "file.delete.delay.ms": "600000"}
    with Broker(disks[0], settings=settings) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        writer = producer(broker.bootstrap)
        for number in range(600):
            writer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        assert writer.flush(60) == 0
        rows: dict[Place, list[Row]] = librdkafka_rows(broker.bootstrap, PLACES, "read_uncommitted")
        saved = tmp_path / "saved"
        for disk in disks:
            for partition in disk.glob(f"{TOPIC}-*"):
                shutil.copytree(partition, saved / disk.name / partition.name)
        assert all((saved / disk.name).exists() for disk in disks)
        admin = broker.admin()  # must outlive the request
        admin.delete_topics([TOPIC])[TOPIC].result(30)
    restored = run("restore", *sorted(saved.glob("*/*")), "-o", tmp_path / "new")
    assert restored.exit_code == 0, restored.output
    with Broker(disks[0], settings=settings) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
    alone = run("transplant", tmp_path / "new", "--into", disks[0])
    assert alone.exit_code == 12 and "in another log directory of this broker" in alone.stderr
    done = run("transplant", tmp_path / "new", "--into", disks[0], "--into", disks[1])
    assert done.exit_code == 0, done.output
    with Broker(disks[0], settings=settings) as broker:
        assert librdkafka_rows(broker.bootstrap, PLACES, "read_uncommitted") == rows
        assert not [path for disk in disks for path in disk.glob("*-stray")]
