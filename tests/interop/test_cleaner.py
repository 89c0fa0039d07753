"""Rounds on logs that Kafka wrote end as Kafka's own Cleaner ends them: bytes, indexes, groups, times and counts.

The Kafka is 4.3, and 4.4 where a test says so.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner.cleaner import clean_log
from seglog.cleaner.round import CleanerOptions
from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.kafka_version import NEWEST, SPOKEN_FOR, KafkaVersion
from seglog.log.loader import LoadOptions
from seglog.log.log import Log
from seglog.storage.local import LocalFileSystem
from tests.support.cleaning import hold_no_batch
from tests.support.kafka import KafkaHarness

pytestmark = pytest.mark.kafka

START_MS = 1_700_000_000_000
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
LOGS: dict[str, dict[str, Any]] = {
    "plain": {"null_value_ratio": 0.2, "headers": True, "offset_gap_ratio": 0.2, "append_path": "follower"},
    "keyless": {"null_key_ratio": 0.2, "null_value_ratio": 0.2},
    "append time": {"timestamp_type": "append", "null_value_ratio": 0.3},
    "idempotent": {"idempotent": True, "producers": 4, "null_value_ratio": 0.1},
    "transactions": {"transactional": True, "abort_ratio": 0.4, "nontxn_ratio": 0.3, "txn_batches": 2},
    "transactions of version 2": {"transactional": True, "abort_ratio": 0.4, "txn_version": 2},
    "open transaction": {"transactional": True, "abort_ratio": 0.3, "leave_open_txn": True},
    "magic 0": {"magic": ["0"], "null_value_ratio": 0.3},
    "magic 1": {"magic": ["1"], "codec": ["none", "gzip"], "null_value_ratio": 0.3},
    "upgraded": {"magic": ["0", "1", "2"], "codec": ["none", "snappy"], "null_value_ratio": 0.2},
    "compressed": {"codec": ["none", "gzip", "snappy", "lz4", "zstd"], "null_value_ratio": 0.2},
}


def cleaned_files(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Name → (modification time of a `.log`, contents) of the files that cleaning makes."""
    return {
        path.name: (path.stat().st_mtime_ns // 1_000_000 if path.suffix == ".log" else 0, path.read_bytes())
        for path in sorted(directory.iterdir())
        if path.suffix in SUFFIXES
    }


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("seed", range(3))
def test_three_rounds_end_as_kafkas(kafka: KafkaHarness, tmp_path: Path, name: str, seed: int) -> None:
    require_same_rounds(kafka, tmp_path, name, seed, 1000)


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("seed", range(2))
def test_three_rounds_for_4_4_end_as_those_of_4_4(
    newer_kafka: KafkaHarness, tmp_path: Path, name: str, seed: int
) -> None:
    require_same_rounds(newer_kafka, tmp_path, name, seed, 1000, NEWEST)


def test_only_the_batch_at_the_end_of_a_round_differs_between_4_3_and_4_4(
    kafka: KafkaHarness, newer_kafka: KafkaHarness, tmp_path: Path
) -> None:
    """The range ends before an open transaction, below the high watermark: 4.3 keeps the last batch, emptied."""
    kept = {}
    for version, harness in (("4.3", kafka), ("4.4", newer_kafka)):
        options = {
            "transactional": True,
            "abort_ratio": 0.5,
            "leave_open_txn": True,
            "key_space": 50,
            "codec": ["none", "lz4"],
        }
        harness.generate(tmp_path / version, topic="t", records=2000, segment_bytes=20_000, **options)
        harness.clean(tmp_path / version / "t-0", now_ms=START_MS + 10_000)
        rows = harness.list(tmp_path / version / "t-0", fields="logical", batches_only=True)
        kept[version] = {row["lastOffset"]: row["count"] for row in rows}
    (only_4_3,) = kept["4.3"].items() - kept["4.4"].items()
    assert only_4_3 == (999, 0)
    assert kept["4.3"].keys() - {999} == kept["4.4"].keys()


@pytest.mark.parametrize("name", ["plain", "keyless", "append time", "transactions", "upgraded", "compressed"])
def test_batches_that_are_not_held_end_as_kafkas(
    kafka: KafkaHarness, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_no_batch(monkeypatch)
    require_same_rounds(kafka, tmp_path, name, 1, 1000)


@pytest.mark.parametrize("name", ["plain", "upgraded", "transactions"])
@pytest.mark.parametrize("delete_retention_ms", [2**63 - 1, 2**63 - START_MS - 20_000])
def test_a_horizon_past_all_time_is_none_as_kafkas_sum_wraps(
    kafka: KafkaHarness, tmp_path: Path, name: str, delete_retention_ms: int
) -> None:
    require_same_rounds(kafka, tmp_path, name, 1, delete_retention_ms)


def require_same_rounds(
    kafka: KafkaHarness,
    tmp_path: Path,
    name: str,
    seed: int,
    delete_retention_ms: int,
    version: KafkaVersion = SPOKEN_FOR,
) -> None:
    chance = random.Random(f"{name} {seed}")
    options = {"records": 1500, "seed": seed, "key_space": 60, "batch_records": chance.choice([1, 4, 30]), **LOGS[name]}
    sizes = {"segment_bytes": chance.choice([9000, 30_000]), "index_interval_bytes": chance.choice([0, 300])}
    kafka.generate(tmp_path / "kafka", topic="t", roll_at_end=bool(seed % 2), **options, **sizes)
    shutil.copytree(tmp_path / "kafka", tmp_path / "seglog")
    config = {**sizes, "segment_bytes": sizes["segment_bytes"] * 2, "delete_retention_ms": delete_retention_ms}
    now_ms, advance_ms, redirty = START_MS + 10_000, chance.choice([0, 500, 5000]), seed == 1
    theirs = kafka.clean(
        tmp_path / "kafka" / "t-0", passes=3, now_ms=now_ms, advance_ms=advance_ms, redirty=redirty, **config
    )
    directory = tmp_path / "seglog" / "t-0"
    log = Log.open(
        directory,
        LogConfig(cleanup_policy=frozenset({"compact"}), **config),
        fs=LocalFileSystem(),
        clock=FixedClock(now_ms),
        options=LoadOptions(clean_shutdown=True),
    )
    compared = 0
    for number, expected in enumerate(theirs["passes"]):
        if "skipped" in expected:
            continue
        found = clean_log(
            log,
            CleanerOptions(
                first_dirty_offset=expected["firstDirtyOffset"], jobs=1 + seed % 2, chunk_bytes=3000, kafka=version
            ),
            FixedClock(now_ms + number * advance_ms),
        )
        assert found.stats.records_read == expected["messagesRead"]
        assert found.stats.records_written == expected["messagesWritten"]
        assert found.stats.invalid_records == expected["invalidMessagesRead"]
        assert found.end_offset == expected["nextDirtyOffset"]
        compared += 1
    log.close()
    assert compared >= (3 if redirty else 1)
    ours, kafkas = cleaned_files(directory), cleaned_files(tmp_path / "kafka" / "t-0")
    if "codec" not in options:
        assert ours == kafkas
        return
    assert [(n, m) for n, (m, _) in ours.items() if n.endswith(".log")] == [
        (n, m) for n, (m, _) in kafkas.items() if n.endswith(".log")
    ]
    answers = [kafka.digest(tmp_path / side / "t-0", fields="logical") for side in ("seglog", "kafka")]
    assert answers[0]["sha256"] == answers[1]["sha256"]
