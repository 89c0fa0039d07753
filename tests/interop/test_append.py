"""What `Log` writes, reads and finds is what Kafka's classes write, read and find, file by file and offset
by offset.
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglog import layout
from seglog.errors import OffsetOutOfRangeError
from seglog.format.compression import compress
from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.log.append import ProducerIdentity
from seglog.log.log import Log
from seglog.log.validator import AppendOrigin
from seglog.model import Compression, Header, Isolation, Record, TimestampType
from seglog.storage.local import LocalFileSystem
from tests.support.kafka import KafkaHarness
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.open_logs import opened_log

pytestmark = pytest.mark.kafka

START_MS = 1_700_000_000_000
FS = LocalFileSystem()
OPTIONS: dict[str, Any] = {"segment_bytes": 4096, "index_interval_bytes": 256, "batch_records": 7, "records": 400}
VARIED: dict[str, dict[str, Any]] = {
    "plain": {"null_value_ratio": 0.2, "null_key_ratio": 0.2, "headers": True},
    "codecs": {"codec": ["none", "gzip", "snappy", "lz4", "zstd"]},
    "transactions": {"transactional": True, "abort_ratio": 0.4, "leader_epochs": 3, "codec": ["none", "lz4"]},
    "transactions of version 2": {"transactional": True, "abort_ratio": 0.5, "txn_version": 2, "nontxn_ratio": 0.2},
    "open transaction": {"transactional": True, "abort_ratio": 0.3, "leave_open_txn": True},
    "idempotent": {"idempotent": True, "producers": 3, "epoch_bump_ratio": 0.1},
    "gaps": {"append_path": "follower", "offset_gap_ratio": 0.3},
    "append time": {"timestamp_type": "append", "codec": ["none", "zstd"]},
    "disordered timestamps": {"jitter_ms": 40, "step_ms": 5},
    "magic 0": {"magic": ["0"], "codec": ["none", "gzip"]},
    "magic 1": {"magic": ["1"], "codec": ["none", "snappy", "lz4"], "jitter_ms": 10},
    "upgraded": {"magic": ["0", "1", "2"], "codec": ["none", "gzip"]},
}


def generated(kafka: KafkaHarness, root: Path, name: str) -> Path:
    kafka.generate(root, seed=3, **{**OPTIONS, **VARIED[name]})
    return root / "t-0"


def opened(directory: Path, *, writable: bool = False, **config: Any) -> Log:
    return opened_log(directory, fs=FS, writable=writable, **config)


def content(directory: Path) -> dict[str, bytes]:
    """Every file but snapshots, whose entries have no order."""
    ours = (".log", "index", "-checkpoint")
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name.endswith(ours)}


def snapshots(kafka: KafkaHarness, directory: Path) -> dict[str, list[str]]:
    files = kafka.index(directory)
    return {
        name: sorted(json.dumps(entry) for entry in found["entries"])
        for name, found in files.items()
        if name.endswith(".snapshot")
    }


# --- writing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "codecs",
        "transactions",
        "transactions of version 2",
        "open transaction",
        "idempotent",
        "append time",
        "gaps",
    ],
)
def test_the_same_batches_leave_the_same_files(kafka: KafkaHarness, tmp_path: Path, name: str) -> None:
    source = generated(kafka, tmp_path / "kafka", name)
    append_time = "timestamp_type" in VARIED[name]
    target = opened(
        tmp_path / "seglog" / "t-0",
        writable=True,
        segment_bytes=4096,
        index_interval_bytes=256,
        message_timestamp_type=TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME,
    )
    follower = VARIED[name].get("append_path") == "follower"
    with target:
        for path in sorted(source.glob("*.log")):
            data = bytearray(path.read_bytes())
            position = 0
            while position < len(data):
                header = RecordBatchHeader.read(data, position)
                target.clock.advance(header.max_timestamp - target.clock.now_ms())  # type: ignore[attr-defined]
                append_as(target, data[position : position + header.size], header, follower)
                position += header.size
    assert content(tmp_path / "seglog" / "t-0") == content(source)
    assert snapshots(kafka, tmp_path / "seglog" / "t-0") == snapshots(kafka, source)


def append_as(target: Log, batch: bytearray, header: RecordBatchHeader, follower: bool) -> None:
    """A batch as its writer sent it: a client or coordinator at offset 0, a leader as it lies in the log."""
    if follower:
        target.append_as_follower(batch, leader_epoch=header.leader_epoch)
        return
    sent = replace(header, base_offset=0, leader_epoch=-1, attributes=header.attributes & ~layout.TIMESTAMP_TYPE_MASK)
    batch = bytearray(encode_batch(sent, batch[layout.RECORD_BATCH_OVERHEAD :]))
    origin = AppendOrigin.COORDINATOR if header.is_control else AppendOrigin.CLIENT
    info = target.append_batches(batch, origin=origin, leader_epoch=header.leader_epoch)
    assert info.first_offset == header.base_offset


@pytest.mark.parametrize("codec", list(Compression))
def test_kafka_loads_and_lists_what_records_became(kafka: KafkaHarness, tmp_path: Path, codec: Compression) -> None:
    records = [
        Record(
            value=None if i % 5 == 0 else b"value %d" % i,
            key=None if i % 7 == 0 else b"key",
            timestamp=START_MS + i,
            headers=(Header("h", None), Header("name", b"x")) if i % 3 == 0 else (),
        )
        for i in range(500)
    ]
    producer = ProducerIdentity(77, 0, transactional=True)
    with opened(tmp_path / "t-0", writable=True, segment_bytes=4096, index_interval_bytes=100) as log:
        log.append(records[:300], codec=codec, batch_records=9)
        log.append(records[300:], codec=codec, producer=producer, batch_bytes=400)
        log.append_end_txn_marker(producer, commit=False)
        segments = len(log.segments)
    before = content(tmp_path / "t-0")
    answer = kafka.load(tmp_path / "t-0", segment_bytes=4096, index_interval_bytes=100)
    assert (answer["logEndOffset"], answer["lastStableOffset"]) == (501, 501)
    assert (answer["truncatedBytes"], answer["numSegments"]) == (0, segments)
    rows = kafka.list(tmp_path / "t-0")
    assert not [row for row in rows if row["t"] in ("error", "trailing")]
    listed = [row for row in rows if row["t"] == "record"]
    assert [row["offset"] for row in listed] == list(range(501))
    assert [row["timestamp"] for row in listed[:500]] == [record.timestamp for record in records]
    assert [len(row["headers"]) for row in listed[:500]] == [len(record.headers) for record in records]
    assert content(tmp_path / "t-0") == before
    recovered = kafka.recover(tmp_path / "t-0", segment_bytes=4096, index_interval_bytes=100)
    assert recovered["truncatedBytes"] == 0
    assert content(tmp_path / "t-0") == before


# --- reading --------------------------------------------------------------------------------------------


def test_an_lz4_block_that_expands_to_nothing_ends_only_kafkas_reading(kafka: KafkaHarness, tmp_path: Path) -> None:
    records = [NaiveRecord(i, 0, b"key", b"value") for i in range(2)]
    first, second = (record.encode() for record in records)
    packed = bytes(compress(Compression.LZ4, first))
    header, end_mark, stored = packed[:7], packed[-4:], 1 << 31
    blocks = [struct.pack("<I", stored | len(data)) + data for data in (first, second)]
    nothing = struct.pack("<I", 1) + bytes(1)
    payload = header + blocks[0] + nothing + blocks[1] + end_mark
    data = batch_v2(0, records, attributes=Compression.LZ4, payload=payload)
    (written,) = kafka.append(tmp_path / "t-0", data)["appends"]
    assert written["lastOffset"] == 1
    kinds = [(row["t"], row.get("offset"), row.get("class")) for row in kafka.list(tmp_path / "t-0")]
    assert kinds == [("batch", None, None), ("record", 0, None), ("error", None, "InvalidRecordException")]
    with opened(tmp_path / "t-0") as log:
        assert [record.offset for record in log.records()] == [0, 1]


@pytest.mark.parametrize("name", list(VARIED))
def test_every_offset_reads_as_in_kafka(kafka: KafkaHarness, tmp_path: Path, name: str) -> None:
    directory = generated(kafka, tmp_path, name)
    with opened(directory) as log:
        offsets = [-1, *range(log.log_end_offset + 2)]
        for label, isolation in [("log_end", None), ("txn_committed", Isolation.READ_COMMITTED)]:
            for max_bytes, min_one in [(1000, True), (150, False)]:
                answer = kafka.read(directory, offsets, max_bytes=max_bytes, isolation=label, min_one_message=min_one)
                for result in answer["results"]:
                    check_read(log, result, max_bytes, isolation, min_one)


def check_read(log: Log, result: dict[str, Any], max_bytes: int, isolation: Isolation | None, min_one: bool) -> None:
    if "error" in result:
        assert result["error"] == "OffsetOutOfRangeException"
        with pytest.raises(OffsetOutOfRangeError):
            log.read(result["offset"], max_bytes, isolation, min_one_message=min_one)
        return
    fetched = log.read(result["offset"], max_bytes, isolation, min_one_message=min_one)
    assert fetched.size == result["sizeInBytes"], result["offset"]
    assert fetched.first_batch_incomplete == result["firstEntryIncomplete"]
    if fetched.size:
        place = (result["segmentBaseOffset"], result["relativePosition"])
        assert (fetched.segment_base_offset, fetched.position) == place
    assert fetched.batches["last_offset"].tolist() == [batch["lastOffset"] for batch in result["batches"]]
    aborted = [(entry["producerId"], entry["firstOffset"]) for entry in result.get("abortedTransactions") or []]
    assert [(entry.producer_id, entry.first_offset) for entry in fetched.aborted_transactions] == aborted


@pytest.mark.parametrize("name", list(VARIED))
def test_every_timestamp_finds_what_kafka_finds(kafka: KafkaHarness, tmp_path: Path, name: str) -> None:
    directory = generated(kafka, tmp_path, name)
    targets = [-1, -2, -3, 0, START_MS - 100, *range(START_MS - 50, START_MS + 2100, 3)]
    answer = kafka.search(directory, targets)
    with opened(directory) as log:
        for result in answer["results"]:
            found = log.offset_for_timestamp(result["target"])
            assert (found is not None) == result["found"], result
            if found is not None:
                place = (result["timestamp"], result["offset"])
                assert (found.timestamp, found.offset) == place, result


def test_compacted_logs_read_and_search_alike(kafka: KafkaHarness, tmp_path: Path) -> None:
    kafka.generate(tmp_path, seed=1, **{**OPTIONS, "key_space": 25, "transactional": True, "abort_ratio": 0.3})
    directory = tmp_path / "t-0"
    kafka.clean(directory, segment_bytes=4096, index_interval_bytes=256)
    with opened(directory) as log:
        for result in kafka.read(directory, list(range(log.log_end_offset + 1)), max_bytes=600)["results"]:
            check_read(log, result, 600, None, True)
        for result in kafka.search(directory, list(range(START_MS, START_MS + 420)))["results"]:
            found = log.offset_for_timestamp(result["target"])
            assert (found and found.offset) == (result["offset"] if result["found"] else None)


def test_uncompressed_columns_become_kafkas_bytes(kafka: KafkaHarness, tmp_path: Path) -> None:
    batches = [[(b"k%d" % i, b"v" * i, START_MS + i, [("h", b"x")]) for i in range(j, j + 5)] for j in range(9)]
    kafka.append(tmp_path / "kafka" / "t-0", *batches, segment_bytes=600)
    records = [Record(v, k, t, (Header("h", b"x"),)) for batch in batches for k, v, t, _ in batch]
    with opened(tmp_path / "seglog" / "t-0", writable=True, segment_bytes=600) as log:
        log.append(records, batch_records=5)
    ours = b"".join(p.read_bytes() for p in sorted((tmp_path / "seglog" / "t-0").glob("*.log")))
    theirs = b"".join(p.read_bytes() for p in sorted((tmp_path / "kafka" / "t-0").glob("*.log")))
    assert len(ours) == len(theirs)
    assert without_epochs(ours) == without_epochs(theirs)


def without_epochs(data: bytes) -> list[tuple[int, int, int, int]]:
    """Base offset, size, checksum and max timestamp of each batch."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    found, position = [], 0
    while position + layout.RECORD_BATCH_OVERHEAD <= len(buffer):
        header = RecordBatchHeader.read(data, position)
        found.append((header.base_offset, header.size, header.crc, header.max_timestamp))
        position += header.size
    return found
