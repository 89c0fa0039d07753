"""A real broker with tiered storage (Kafka's LocalTieredStorage): what it has moved away is read with the rest."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import seglog
from tests.support.command_line import json_lines, run
from tests.support.kafka import Broker
from tests.support.kafka.jvm import KAFKA_VERSION, maven_jars

pytestmark = pytest.mark.kafka

LIMIT_SECONDS = 120
RECORDS = 600


def settings(tier: Path) -> dict[str, str]:
    """What switches tiered storage on (Kafka: its quick start of tiered storage)."""
    wanted = [("org.apache.kafka", "kafka-storage", KAFKA_VERSION)]
    jars = maven_jars(f"kafka-storage-test-{KAFKA_VERSION}", wanted, dependencies=False, classifier="test")
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": f"{jars}/*",
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rsm.config.dir": str(tier),
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
    }


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A stopped broker's log directory, and its tier, to which the first segments of orders-0 were moved."""
    from confluent_kafka import Producer

    base = tmp_path_factory.mktemp("tiered")
    logs, tier = base / "logs", base / "tier"
    with Broker(logs, settings=settings(tier)) as broker:
        broker.create_topic(
            "orders",
            remote_storage_enable="true",
            segment_bytes=1 << 20,
            local_retention_bytes=1 << 20,
            local_retention_ms=-2,
            retention_ms=-1,
        )
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1})
        for number in range(RECORDS):
            producer.produce("orders", b"%06d" % number * 1500, b"%d" % number)
            if number % 20 == 19:
                producer.flush(30)
        deadline = time.monotonic() + LIMIT_SECONDS
        while (unsettled := not_yet_moved(logs, tier)) is not None:
            assert time.monotonic() < deadline, f"{unsettled}\n{broker.log_text()}"
            time.sleep(0.5)
    return logs, tier


def not_yet_moved(logs: Path, tier: Path) -> str | None:
    """What the broker has still to do: a broker that is stopped while it copies a segment leaves half of it."""
    partition = logs / "orders-0"
    if (partition / f"{0:020d}.log").exists():
        return "the first segment is still there"
    *closed, _active = sorted(partition.glob("*.log"))
    uncopied = [log.name for log in closed if not list(tier.rglob(f"{log.stem}-*.log"))]
    if uncopied:
        return f"{uncopied} are not copied"
    rows = json_lines(run("tiers", "--json", "--local", logs, "--remote-metadata", logs, tier))
    return next((str(row) for row in rows if row["type"] == "tier_remark"), None)


def test_the_tier_joined_with_the_local_part_is_the_complete_log(tiered: tuple[Path, Path]) -> None:
    logs, tier = tiered
    partition = next(tier.rglob("orders-0-*"))
    with seglog.open_log(partition, local=logs) as log:
        records = list(log.records())
        assert log.log_start_offset == 0
    assert [record.offset for record in records] == list(range(RECORDS))
    assert all(record.value == b"%06d" % number * 1500 for number, record in enumerate(records))
    joined = ["--local", str(logs), "--remote-metadata", str(logs), str(tier)]
    found = run("verify", "--json", *joined)
    assert found.exit_code == 0, found.stdout + found.stderr
    rows = json_lines(run("dump", "--json", "--records", *joined))
    assert [row["offset"] for row in rows if row["type"] == "record"] == list(range(RECORDS))


def test_objects_and_the_brokers_metadata_agree(tiered: tuple[Path, Path]) -> None:
    logs, tier = tiered
    rows = json_lines(run("tiers", "--json", "--local", logs, "--remote-metadata", logs, tier))
    assert not [row for row in rows if row["type"] == "tier_remark"]
    segments = [row for row in rows if row["type"] == "tier_segment"]
    assert segments[0]["where"] == "tier" and segments[0]["start_offset"] == 0
    lost = next(tier.rglob(f"{0:020d}-*.log"))
    kept = lost.read_bytes()
    lost.unlink()
    try:
        found = run("tiers", "--json", "--local", logs, "--remote-metadata", logs, tier)
        assert found.exit_code == 1 and any(row.get("code") == "INCOMPLETE_UPLOAD" for row in json_lines(found))
    finally:
        lost.write_bytes(kept)


def test_doctor_and_verify_accept_the_local_part_by_itself(tiered: tuple[Path, Path]) -> None:
    found = run("doctor", "--json", tiered[0])
    assert json_lines(found)[-1]["loads"] and found.exit_code == 0, found.stdout
    assert run("verify", "--json", tiered[0]).exit_code == 0


def test_the_fetched_log_is_complete(tiered: tuple[Path, Path], tmp_path: Path) -> None:
    logs, tier = tiered
    target = tmp_path / "logs" / "orders-0"
    found = run("fetch", tier, "--local", logs, "-o", target)
    assert found.exit_code == 0, found.stderr
    with seglog.open_log(target) as log:
        assert [record.offset for record in log.records()] == list(range(RECORDS))
