"""What `dump` and `dump-log` say of Kafka's logs is what Kafka's own classes and tool said of them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from seglog.look.dump.dump import DumpOptions, dump
from seglog.look.kafka_dump_log.dump_log import DumpLogOptions, dump_log
from seglog.scan.listing import Target, TargetKind
from seglog.storage.local import LocalFileSystem
from seglog.verification.findings import Finding
from tests.support.fixtures import expected, expected_partitions, fixture_copy, fixture_partitions, manifest

FS = LocalFileSystem()
NAMES = sorted(set(manifest()) - {"0.7"})

# Kafka's harness calls the fields so.
BATCH_FIELDS = {
    "segment": "file",
    "position": "position",
    "sizeInBytes": "size",
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "magic": "magic",
    "crc": "crc",
    "codec": "codec",
    "timestampType": "timestamp_type",
    "maxTimestamp": "max_timestamp",
    "deleteHorizonMs": "delete_horizon",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "isTransactional": "transactional",
    "isControl": "control",
    "partitionLeaderEpoch": "leader_epoch",
}


def in_base64(fields: dict[str, Any], name: str) -> str | None:
    if f"{name}_b64" in fields:
        return str(fields[f"{name}_b64"])
    value = fields[name]
    return None if value is None else base64.b64encode(value.encode()).decode()


def as_kafka_lists(line: dict[str, Any]) -> dict[str, Any]:
    if line["type"] == "batch":
        count = None if line["magic"] < 2 else line["count"]
        return {"t": "batch", **{theirs: line[ours] for theirs, ours in BATCH_FIELDS.items()}, "count": count}
    headers = [[header["key"], in_base64(header, "value")] for header in line["headers"]]
    numbers = {name: line[name] for name in ("offset", "timestamp", "sequence")}
    return {
        "t": "record",
        **numbers,
        "key": in_base64(line, "key"),
        "value": in_base64(line, "value"),
        "headers": headers,
    }


def dumped(directory: Path, **options: Any) -> list[dict[str, Any]]:
    target = [Target(directory, TargetKind.PARTITION)]
    blocks = [bytes(block) for block in dump(FS, target, DumpOptions(json=True, **options))]
    return [json.loads(line) for line in b"".join(blocks).decode("utf-8").split("\n")[:-1]]


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_dumped_as_kafka_lists_it(name: str, tmp_path: Path) -> None:
    log_directory = fixture_copy(name, tmp_path)
    partitions = expected_partitions(name, "list")
    assert partitions
    for partition in partitions:
        lines = dumped(log_directory / partition, records=True)
        assert [as_kafka_lists(line) for line in lines] == expected(name, partition, "list"), partition
        assert all(line["valid"] for line in lines if line["type"] == "batch")


@pytest.mark.parametrize("name", NAMES)
def test_base64_and_threads_change_the_form_only(name: str, tmp_path: Path) -> None:
    log_directory = fixture_copy(name, tmp_path)
    for partition in expected_partitions(name, "list"):
        lines = dumped(log_directory / partition, records=True, base64=True, jobs=1)
        assert not any("key" in line and line["key"] is not None for line in lines if line["type"] == "record")
        assert [as_kafka_lists(line) for line in lines] == expected(name, partition, "list"), partition


@pytest.mark.parametrize("name", NAMES)
def test_dump_log_prints_kafka_dump_logs_text(name: str, tmp_path: Path) -> None:
    log_directory = fixture_copy(name, tmp_path)
    partitions = expected_partitions(name, "dump")
    assert partitions
    for partition in partitions:
        files = sorted((log_directory / partition).glob("*.log"))
        blocks = dump_log(FS, files, DumpLogOptions(print_data_log=True))
        text = b"".join(bytes(block) for block in blocks if isinstance(block, memoryview)).decode()
        assert text.replace(f"{log_directory / partition}/", "") == expected(name, partition, "dump"), partition


def test_the_messages_of_kafka_0_7_are_dumped(tmp_path: Path) -> None:
    log_directory = fixture_copy("0.7", tmp_path)
    for partition in fixture_partitions("0.7"):
        directory = log_directory / partition
        lines = dumped(directory, records=True)
        found = [line["value"] for line in lines if line["type"] == "record"]
        wanted = [payload for entry in expected("0.7", partition, "list") for payload in entry["payloads"]]
        assert found == wanted
        assert {line["offset"] for line in lines} == {entry["offset"] for entry in expected("0.7", partition, "list")}


@pytest.mark.parametrize("name", NAMES)
def test_no_file_of_a_log_directory_is_unknown_or_unreadable(name: str, tmp_path: Path) -> None:
    target = [Target(fixture_copy(name, tmp_path), TargetKind.LOG_DIRECTORY)]
    items = list(dump(FS, target, DumpOptions(every_file=True, limit=None, jobs=1)))
    assert items
    assert [item for item in items if isinstance(item, Finding)] == []
