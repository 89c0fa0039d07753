"""The harness itself: what it says about logs it wrote holds together, and Kafka's refusals come through."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.kafka import KafkaFailure, KafkaHarness

pytestmark = pytest.mark.kafka


def test_the_same_request_writes_the_same_bytes(kafka: KafkaHarness, tmp_path: Path) -> None:
    request = {
        "records": 300,
        "seed": 5,
        "codec": ["none", "gzip", "snappy", "lz4", "zstd"],
        "transactional": True,
        "abort_ratio": 0.4,
        "headers": True,
        "null_value_ratio": 0.1,
        "batch_records": 7,
        "segment_bytes": 4096,
        "segment_index_bytes": 4096,
    }
    answers = [kafka.generate(tmp_path / name, **request) for name in ("first", "second")]
    partitions = [tmp_path / name / "t-0" for name in ("first", "second")]
    files = [{file.name: file.read_bytes() for file in partition.iterdir()} for partition in partitions]
    assert files[0] == files[1]
    assert answers[0]["partitions"][0]["abortMarkers"] > 0
    assert len([name for name in files[0] if name.endswith(".log")]) > 2


def test_the_digest_is_that_of_the_listed_lines(kafka: KafkaHarness, tmp_path: Path) -> None:
    kafka.generate(tmp_path, records=50, magic=["0", "1", "2"], batch_records=5)
    lines = kafka.list_lines(tmp_path / "t-0")
    digest = kafka.digest(tmp_path / "t-0")
    assert digest["sha256"] == hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()
    batches = [row for row in kafka.list(tmp_path / "t-0") if row["t"] == "batch"]
    assert (digest["batches"], digest["records"]) == (len(batches), 50)


def test_the_cleaner_keeps_the_last_record_of_each_key(kafka: KafkaHarness, tmp_path: Path) -> None:
    kafka.generate(tmp_path, records=500, key_space=20, batch_records=10)
    latest = {row["key"]: row["offset"] for row in kafka.list(tmp_path / "t-0") if row["t"] == "record"}
    answer = kafka.clean(tmp_path / "t-0", roll=True)
    assert [p["messagesWritten"] for p in answer["passes"]] == [20]
    left = {row["key"]: row["offset"] for row in kafka.list(tmp_path / "t-0") if row["t"] == "record"}
    assert left == latest


def test_recovery_cuts_a_damaged_tail(kafka: KafkaHarness, tmp_path: Path) -> None:
    kafka.generate(tmp_path, records=100, batch_records=10)
    log = tmp_path / "t-0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-5])
    answer = kafka.recover(tmp_path / "t-0")
    assert (answer["logEndOffset"], answer["truncatedBytes"] > 0) == (90, True)
    assert any("WARN" in event for event in answer["events"])


def test_append_read_and_search_agree(kafka: KafkaHarness, tmp_path: Path) -> None:
    first = [(b"a", b"1", 1000), (b"b", None, 2000, [("h", None), ("h", b"x")])]
    second = {"codec": "zstd", "records": [(None, b"2", 3000)]}
    appends = kafka.append(tmp_path / "t-0", first, second, b"\0" * 61)["appends"]
    assert [a.get("lastOffset", a.get("error")) for a in appends] == [1, 2, "CorruptRecordException"]
    read = kafka.read(tmp_path / "t-0", [0, 9], records=True)["results"]
    assert [r["offset"] for batch in read[0]["batches"] for r in batch["records"]] == [0, 1, 2]
    assert read[1]["error"] == "OffsetOutOfRangeException"
    found = kafka.search(tmp_path / "t-0", [1500, -2, 9000])["results"]
    assert [result.get("offset") for result in found] == [1, 0, None]


def test_retention_deletes_whole_old_segments(kafka: KafkaHarness, tmp_path: Path) -> None:
    kafka.generate(tmp_path, records=400, batch_records=10, segment_bytes=8192)
    answer = kafka.retain(tmp_path / "t-0", retention_bytes=10_000)
    assert answer["deletedCount"] == len(answer["deletedBaseOffsets"]) > 0
    assert answer["logStartOffset"] == answer["segmentsAfter"][0]["baseOffset"]


def test_dump_log_is_kafkas_own(kafka: KafkaHarness, tmp_path: Path) -> None:
    kafka.generate(tmp_path, records=5)
    log = tmp_path / "t-0" / "00000000000000000000.log"
    out, err = kafka.dump_log("--files", log, "--print-data-log")
    assert out.startswith(f"Dumping {log}\nLog starting offset: 0\nbaseOffset: 0 lastOffset: 4 count: 5 ")
    assert (out.count("| offset: "), err) == (5, "")


def test_a_refused_request_leaves_the_harness_usable(kafka: KafkaHarness, tmp_path: Path) -> None:
    with pytest.raises(KafkaFailure, match="unknown field recrods"):
        kafka.generate(tmp_path, recrods=5)
    with pytest.raises(KafkaFailure, match="no such directory"):
        kafka.index(tmp_path / "absent")
    assert kafka.generate(tmp_path, records=1)["partitions"][0]["records"] == 1
