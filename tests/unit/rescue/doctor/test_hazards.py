"""What Kafka's cleaner would fail on: doctor names it, and the command that mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.log_files import batch, write_segment
from tests.support.naive import message
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
    commands = {row.code: row.command for row in rows}
    damage = {"CLEANER_LAUNDERS": f"seglog repair {log}"} if damaged else {}
    assert commands == {"CLEANER_FAILS": f"seglog clean {log}", **damage}
    if not damaged:
        ran = run("clean", log, "--policy", "compact", "--set", "min.cleanable.dirty.ratio=0")
        assert ran.exit_code == 0, ran.stderr
        assert "CLEANER_FAILS" not in codes(logs, settings={"cleanup.policy": "compact"})
