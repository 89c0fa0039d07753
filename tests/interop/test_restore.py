"""What a real broker had set aside becomes partitions again that a real broker takes."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.dead_clusters import begun, finish, produce, producer, read_all
from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.kafka

PLACES = [("plain", 0), ("plain", 1), ("paid", 0)]
KEPT_FOR_LONG = {"log.segment.delete.delay.ms": "600000"}
LIMIT_SECONDS = 120


def test_deleted_topics_come_back_by_restore_and_transplant_where_they_were(tmp_path: Path) -> None:
    directory, copies = tmp_path / "logs", tmp_path / "copies"
    with Broker(directory, settings=KEPT_FOR_LONG) as broker:
        make_topics(broker)
        writer, admin = fill(broker.bootstrap), broker.admin()
        rows = read_all(broker.bootstrap, PLACES)
        for future in admin.delete_topics(["plain", "paid"]).values():
            future.result(LIMIT_SECONDS)
        for each in set_aside(directory, len(PLACES)):
            shutil.copytree(each, copies / each.name)
        make_topics(broker)
    del writer
    restored = run("restore", copies, "-o", tmp_path / "restored")
    assert restored.exit_code == 0, restored.output
    taken = run("transplant", tmp_path / "restored", "--into", directory)
    assert taken.exit_code == 0, taken.output
    with Broker(directory) as broker:
        assert read_all(broker.bootstrap, PLACES) == rows
        produce(producer(broker.bootstrap), "plain", range(40), 1)
        found = read_all(broker.bootstrap, PLACES)["read_committed"]
        said = broker.log_text()
        broker.kill()
    assert found["plain", 1][:40] == rows["read_committed"]["plain", 1] and len(found["plain", 1]) == 80
    assert "stray" not in said.lower() and "truncat" not in said.lower(), said


def make_topics(broker: Broker) -> None:
    broker.create_topic("plain", 2, retention_ms=-1)
    broker.create_topic("paid", retention_ms=-1)


def fill(bootstrap: str) -> object:
    """Records, and transactions that were committed, aborted and left open; the client of the last one."""
    for number in range(2):
        produce(producer(bootstrap), "plain", range(40), number)
    for name, commit in (("a", True), ("b", False)):
        writer = begun(bootstrap, name)
        produce(writer, "paid", range(10))
        finish(writer, bootstrap, name, commit=commit)
    writer = begun(bootstrap, "c")
    produce(writer, "paid", range(10))
    return writer


def set_aside(directory: Path, count: int) -> list[Path]:
    """The partitions that the broker is about to remove, as soon as it has renamed so many."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(found := sorted(directory.glob("*-delete"))) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found
