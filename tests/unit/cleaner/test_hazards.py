"""What Kafka's cleaner would fail on: doctor names it, and the command that mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.format.compression import compress
from seglog.kafka_version import KafkaVersion
from seglog.model import Compression
from seglog.verification.codes import Severity
from tests.support.command_line import json_lines, run
from tests.support.log_files import batch, marker, transactional, write_segment
from tests.support.naive import NaiveRecord, batch_v2, message
from tests.unit.rescue.doctor.test_doctor import codes, diagnose


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """An empty log directory."""
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.mark.parametrize("name", ["customers", "events"])
def test_cleaner_hazards_concern_compacted_logs_only(logs: Path, name: str) -> None:
    log = logs / f"{name}-0"
    write_segment(log, 0, batch(0, 3, timestamp=-90))
    write_segment(log, 3, batch(3))
    found = codes(logs, settings={"cleanup.policy": "compact"} if name == "customers" else {})
    assert ("CLEANER_FAILS" in found) == (name == "customers")
    assert "HEADER_ODD" in found


def test_a_negative_timestamp_is_mended_by_cleaning(logs: Path) -> None:
    write_segment(logs / "customers-0", 0, batch(0, 3, timestamp=-90))
    write_segment(logs / "customers-0", 3, batch(3))
    (row,) = [row for row in diagnose(logs, settings={"cleanup.policy": "compact"}) if row.code == "CLEANER_FAILS"]
    assert row.command == f"seglog clean {logs / 'customers-0'}"


def test_records_without_a_key_that_every_cleaner_drops_are_counted_where_the_policy_is_compact(logs: Path) -> None:
    log = logs / "customers-0"
    keyless = [NaiveRecord(i, i, None, b"v") for i in range(2)]
    write_segment(log, 0, batch(0, 3), batch_v2(3, [*keyless, NaiveRecord(2, 2, b"k", b"v")], base_timestamp=1000))
    write_segment(log, 6, message(6, 1, None, b"v", timestamp=1000), transactional(7, 7, 0), marker(8, 7, commit=True))
    write_segment(log, 9, batch(9))
    rows = [row for row in diagnose(logs, settings={"cleanup.policy": "compact"}) if row.code == "CLEANER_DROPS"]
    assert [(row.file, row.first_offset, row.count) for row in rows] == [
        (f"{0:020d}.log", 3, 2),
        (f"{6:020d}.log", 6, 1),
    ]
    assert rows[0].message == "2 records without a key" and rows[0].gravity is Severity.DANGER
    assert "log.cleaner.enable=false" in rows[0].broker and rows[0].command == ""
    assert "CLEANER_DROPS" in codes(logs, settings={"cleanup.policy": "compact,delete"})
    (logs / "cleaner-offset-checkpoint").write_text("0\n1\ncustomers 0 6\n")
    assert "CLEANER_DROPS" not in codes(logs), "it was compacted once, and no cleaner takes it now"


def test_a_record_that_is_too_large_for_the_cleaner_of_4_4_is_named_and_seglogs_cleaner_does_the_round(
    logs: Path,
) -> None:
    log, records = logs / "customers-0", [NaiveRecord(0, 0, b"k", b"v" * 600)]
    body = compress(Compression.GZIP, b"".join(record.encode() for record in records))
    for base in (0, 1):
        data = batch_v2(base, records, base_timestamp=1000, attributes=int(Compression.GZIP), payload=body)
        write_segment(log, base, data)
    bound = {"cleanup.policy": "compact", "max.decompressed.message.bytes": "500"}
    for release, wrong in (("4.3", False), ("4.4", True)):
        kafka = KafkaVersion.parse(release)
        rows = [row for row in diagnose(logs, settings=bound, kafka=kafka) if row.code == "CLEANER_FAILS"]
        assert bool(rows) == wrong, release
        assert not wrong or (rows[0].command == f"seglog clean {log}" and "is 500" in rows[0].message)
        options = [part for key, value in bound.items() for part in ("--set", f"{key}={value}")]
        said = run("clean", "--dry-run", *options, "--kafka-version", release, log)
        assert ("the cleaner of a Kafka 4.4 broker fails on it" in said.stdout) == wrong, said.stderr
        (row,) = json_lines(run("clean", "--dry-run", "--json", *options, "--kafka-version", release, log))
        assert (row["broker_fails"] is not None) == wrong
    assert run("clean", *options, log).exit_code == 0
    assert "CLEANER_FAILS" not in codes(logs, settings={**bound, "max.decompressed.message.bytes": "609"}, kafka=kafka)


@pytest.mark.parametrize("damaged", [False, True], ids=["keyless end", "keyless end and damage"])
def test_a_legacy_message_without_a_key_at_a_segments_end_is_mended_by_cleaning(logs: Path, damaged: bool) -> None:
    log = logs / "customers-0"
    write_segment(log, 0, message(0, 1, b"k", b"v", timestamp=1000), message(1, 1, None, b"v", timestamp=1000))
    write_segment(log, 2, batch(2))
    if damaged:
        (logs / ".kafka_cleanshutdown").touch()  # else a start cuts the log at the damage
        path = log / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[len(message(0, 1, b"k", b"v", timestamp=1000)) - 1] ^= 1
        path.write_bytes(data)
    rows = [row for row in diagnose(logs, settings={"cleanup.policy": "compact"}) if row.code.startswith("CLEANER")]
    commands = {row.code: row.command for row in rows if row.code != "CLEANER_DROPS"}
    damage = {"CLEANER_LAUNDERS": f"seglog repair {log}"} if damaged else {}
    assert commands == {"CLEANER_FAILS": f"seglog clean {log}", **damage}
    if not damaged:
        ran = run("clean", log, "--policy", "compact", "--set", "min.cleanable.dirty.ratio=0")
        assert ran.exit_code == 0, ran.stderr
        assert "CLEANER_FAILS" not in codes(logs, settings={"cleanup.policy": "compact"})
