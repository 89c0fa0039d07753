"""Kafka's own classes read what an erasure leaves: only named records differ, and a broker's loader changes nothing."""

from __future__ import annotations

import base64
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import seglog
from tests.support.kafka import KafkaHarness

pytestmark = pytest.mark.kafka

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"null_value_ratio": 0.2, "headers": True, "offset_gap_ratio": 0.2, "append_path": "follower"},
    "keyless": {"null_key_ratio": 0.2, "null_value_ratio": 0.2},
    "append time": {"timestamp_type": "append"},
    "idempotent": {"idempotent": True, "producers": 4},
    "transactions": {"transactional": True, "abort_ratio": 0.4, "nontxn_ratio": 0.3, "txn_batches": 2},
    "magic 0": {"magic": ["0"], "codec": ["none", "gzip"]},
    "magic 1": {"magic": ["1"], "codec": ["none", "snappy", "lz4"]},
    "upgraded": {"magic": ["0", "1", "2"], "codec": ["none", "snappy"]},
    "compressed": {"codec": ["none", "gzip", "snappy", "lz4", "zstd"], "headers": True},
}
WAYS: dict[str, dict[str, Any]] = {
    "null": {},
    "zeros": {"fill": "zeros", "config": {"cleanup.policy": "delete"}},
    "digest": {"digest_keys": True, "drop_headers": True},
    "record": {"erase": "record"},
}
SAME = ("offset", "timestamp", "sequence")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", SHAPES)
def test_kafka_reads_the_rest_as_it_was(kafka: KafkaHarness, tmp_path: Path, shape: str, way: str) -> None:
    chance = random.Random(f"{shape} {way}")
    sizes = {"segment_bytes": chance.choice([9000, 40_000]), "index_interval_bytes": chance.choice([0, 300])}
    options = {"records": 1200, "seed": chance.randrange(1000), "key_space": 60, "batch_records": 7, **SHAPES[shape]}
    kafka.generate(tmp_path, topic="t", **options, **sizes)
    partition = tmp_path / "t-0"
    before = list(kafka.list(partition))
    keys = sorted({row["key"] for row in before if row["t"] == "record" and row["key"] is not None})
    chosen = chance.sample(keys, 3)
    with seglog.open_log(partition) as log:
        named = {record.key for record in log.records() if record.key is not None}
    wanted = [key for key in named if _base64(key) in chosen]
    report = seglog.redact(partition, keys=wanted, replicas=1, verify=True, **WAYS[way])
    assert report.complete and report.files
    rows = list(kafka.list(partition))
    assert _batches(rows, way) == _batches(before, way)
    assert _others(rows, chosen) == _others(before, chosen)
    if way in ("null", "zeros"):
        for old, new in zip(_chosen(before, chosen), _chosen(rows, chosen), strict=True):
            assert [new[name] for name in SAME] == [old[name] for name in SAME]
            assert new["value"] is None or not any(_bytes(new["value"]))
    else:
        assert _chosen(rows, chosen) == []
    loaded = shutil.copytree(partition, tmp_path / "loaded" / "t-0")
    assert "error" not in kafka.recover(loaded)
    digests = [kafka.digest(where, fields="logical")["sha256"] for where in (partition, loaded)]
    assert digests[0] == digests[1]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _batches(rows: list[dict[str, Any]], way: str) -> list[tuple[Any, ...]]:
    """What stays of every batch's header."""
    names = ["baseOffset", "lastOffset", "magic", "producerId", "producerEpoch", "baseSequence", "codec"]
    if way != "record":
        names += ["count", "maxTimestamp"]
    found = [tuple(row.get(name) for name in names) for row in rows if row["t"] == "batch"]
    return found if way != "record" else [batch for batch in found if batch[2] >= 2]


def _chosen(rows: list[dict[str, Any]], keys: list[str]) -> list[dict[str, Any]]:
    return [row for row in rows if row["t"] == "record" and row["key"] in keys]


def _others(rows: list[dict[str, Any]], keys: list[str]) -> list[dict[str, Any]]:
    """The records that nobody asked about; a digest in place of a key is none of them."""
    every = [row for row in rows if row["t"] == "record" and row["key"] not in keys]
    return [row for row in every if row["key"] is None or len(_bytes(row["key"])) != 32]
