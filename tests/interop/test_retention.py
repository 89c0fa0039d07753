"""Retention deletes the segments that Kafka deletes, and leaves the same files and log start."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.log.loader import LoadOptions
from seglog.log.log import Log
from seglog.log.retention import apply_retention, plan_retention, remove_deleted
from seglog.storage.local import LocalFileSystem
from tests.support.kafka import KafkaHarness

pytestmark = pytest.mark.kafka

LOGS: list[dict[str, Any]] = [
    {"codec": ["none", "lz4"], "jitter_ms": 4000},
    {"append_path": "follower", "offset_gap_ratio": 0.3},
    {"magic": ["0"], "codec": ["none", "gzip"]},
    {"magic": ["1", "2"]},
    {"transactional": True, "abort_ratio": 0.4, "producers": 3, "leave_open_txn": True},
]
SETTINGS = 9


def settings_of(rng: random.Random, directory: Path) -> dict[str, Any]:
    """Retention, clock, offsets that matter for this log: some before, some at, some after its segments."""
    logs = sorted(directory.glob("*.log"))
    sizes = [path.stat().st_size for path in logs]
    bases = [int(path.stem) for path in logs]
    chosen: dict[str, Any] = {
        "now_ms": rng.choice([int(path.stat().st_mtime * 1000) for path in logs]) + rng.choice([-1, 0, 1, 60_000]),
        "retention_ms": rng.choice([-1, 0, 1, 1000, 20_000, 10**12]),
        "retention_bytes": rng.choice([-1, -1, 0, sum(sizes), sum(sizes[1:]), sum(sizes[2:]) + 1, sum(sizes[-2:])]),
        "cleanup_policy": rng.choice(["delete", "delete", "compact", "compact,delete"]),
    }
    if rng.random() < 0.3:
        chosen["high_watermark"] = rng.choice(bases) + rng.choice([0, 1])
    if rng.random() < 0.3:
        chosen["increment_log_start_offset"] = min(rng.choice(bases) + rng.choice([0, 1]), bases[-1])
        chosen.pop("high_watermark", None)
    return chosen


def retained(directory: Path, chosen: dict[str, Any]) -> tuple[list[int], int]:
    """Deletes by retention; returns base offsets of the segments that went, and the log start."""
    config = LogConfig(
        retention_ms=chosen["retention_ms"],
        retention_bytes=chosen["retention_bytes"],
        cleanup_policy=frozenset(chosen["cleanup_policy"].split(",")),
    )
    clock = FixedClock(chosen["now_ms"])
    log = Log.open(directory, config, fs=LocalFileSystem(), clock=clock, options=LoadOptions(clean_shutdown=True))
    log.increment_log_start_offset(chosen.get("increment_log_start_offset", 0))
    plan = plan_retention(log, clock.now_ms(), chosen.get("high_watermark"))
    remove_deleted(log.fs, apply_retention(log, plan))
    log.close()
    return [segment.base_offset for segment in plan.removed], log.log_start_offset


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex")
    }


@pytest.mark.parametrize("options", LOGS, ids=lambda options: "-".join(map(str, options)))
@pytest.mark.parametrize("seed", [1, 2])
def test_the_segments_that_kafka_deletes_go(
    kafka: KafkaHarness, tmp_path: Path, options: dict[str, Any], seed: int
) -> None:
    made = {"segment_bytes": 3000, "records": 400, "batch_records": 6, "index_interval_bytes": 300, "seed": seed}
    kafka.generate(tmp_path / "made", **made, **options)
    source = next(path for path in (tmp_path / "made").iterdir() if path.is_dir())
    rng = random.Random(seed)
    gone = 0
    for number in range(SETTINGS):
        theirs, ours = tmp_path / f"kafka-{number}" / source.name, tmp_path / f"seglog-{number}" / source.name
        for copy in (theirs, ours):
            shutil.copytree(source, copy)
        chosen = settings_of(rng, source)
        answer = kafka.retain(theirs, index_interval_bytes=300, **chosen)
        found, start = retained(ours, chosen)
        assert (found, start) == (answer["deletedBaseOffsets"], answer["logStartOffset"]), chosen
        assert files_of(ours) == files_of(theirs), chosen
        gone += len(found)
    assert gone
