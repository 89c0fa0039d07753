"""Copies of a compacted log of which Kafka's own cleaner has been at one agree by the newest record of each key."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.clock import FixedClock
from seglog.storage.local import LocalFileSystem
from seglog_rescue.operations.replicas import ReplicasRequest, compare
from seglog_rescue.replicas.comparison import PartitionVerdict
from tests.support.kafka import KafkaHarness
from tests.support.lost_clusters import broker_meta

pytestmark = pytest.mark.kafka

START_MS = 1_700_000_000_000
LOGS: dict[str, dict[str, Any]] = {
    "plain": {"null_value_ratio": 0.2, "null_key_ratio": 0.1},
    "transactions": {"transactional": True, "abort_ratio": 0.4, "nontxn_ratio": 0.3, "null_value_ratio": 0.1},
    "open transaction": {"transactional": True, "abort_ratio": 0.3, "leave_open_txn": True},
    "upgraded": {"magic": ["0", "1", "2"], "codec": ["none", "gzip"], "null_value_ratio": 0.2},
}


def copies(kafka: KafkaHarness, place: Path, name: str) -> tuple[Path, Path]:
    """Two brokers' log directories with the same log, which a cleaner has been at in the first, twice: the second time
    it drops tombstones."""
    one, two = place / "1", place / "2"
    for node, directory in ((1, one), (2, two)):
        broker_meta(directory, node)
        (directory / ".kafka_cleanshutdown").touch()
        (directory / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    options = {"records": 1500, "seed": 3, "key_space": 60, "batch_records": 4, "segment_bytes": 9000}
    kafka.generate(place / "made", topic="t", **options, **LOGS[name])
    for directory in (one, two):
        shutil.copytree(place / "made" / "t-0", directory / "t-0")
    settings = {"segment_bytes": 9000, "delete_retention_ms": 1000}
    passes = kafka.clean(one / "t-0", passes=2, now_ms=START_MS + 10_000, advance_ms=5000, redirty=True, **settings)
    assert "error" not in passes["passes"][0]
    return one, two


def verdict_of(*directories: Path) -> PartitionVerdict:
    report = compare(LocalFileSystem(), FixedClock(START_MS), ReplicasRequest(directories))
    (verdict,) = report.partitions
    return verdict


@pytest.mark.parametrize("name", LOGS)
def test_a_copy_that_was_compacted_has_each_keys_newest_record(kafka: KafkaHarness, tmp_path: Path, name: str) -> None:
    one, two = copies(kafka, tmp_path, name)
    sizes = [sum(log.stat().st_size for log in (path / "t-0").glob("*.log")) for path in (one, two)]
    assert sizes[0] < sizes[1] / 2
    verdict = verdict_of(one, two)
    beside = verdict.copies[1].keys
    assert beside is not None and beside.agree and beside.chosen > 10
    assert verdict.agrees, verdict


def test_a_key_whose_records_are_gone_from_the_compacted_copy_is_noticed(kafka: KafkaHarness, tmp_path: Path) -> None:
    one, two = copies(kafka, tmp_path, "plain")
    first, *_ = sorted((one / "t-0").glob("*.log"), key=lambda log: log.name)
    data = bytearray(first.read_bytes())
    data[: len(data)] = b""
    first.write_bytes(data)
    beside = verdict_of(one, two).copies[1].keys
    assert beside is not None and not beside.agree
