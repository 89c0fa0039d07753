"""What doctor says of the recovery to come: preallocated zeros, and a disk without room for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.settings import DirectorySettings, load_settings
from seglog.format.producer_snapshot import encode_snapshot
from seglog.log.checkpoints import room_to_close
from seglog.verification.codes import Severity
from seglog_rescue.doctor.doctor import Diagnosis, Doctor
from tests.support.log_files import FS, batch, write_segment
from tests.support.small_disk import SmallDisk
from tests.unit.rescue.doctor.test_doctor import NOW_MS, codes, diagnose


@pytest.mark.parametrize(("records", "code"), [(4, "RECOVERY_CUTS_ZEROS"), (0, "RECOVERY_CUTS_ZEROS")])
def test_the_zeros_of_a_preallocated_log_are_cut_without_a_loss(tmp_path: Path, records: int, code: str) -> None:
    write_segment(tmp_path / "t-0", 0, batch(0, 4))
    write_segment(tmp_path / "t-0", 4, *([batch(4, records)] if records else []))
    log = tmp_path / "t-0" / f"{4:020d}.log"
    log.write_bytes(log.read_bytes().ljust(65536, b"\0"))
    assert codes(tmp_path) == {code}
    (tmp_path / ".kafka_cleanshutdown").touch()  # a broker trims the file when it stops in order
    assert "LOG_END_UNREADABLE" in codes(tmp_path)


def test_zeros_in_a_closed_segment_or_at_any_other_size_are_damage(tmp_path: Path) -> None:
    for base in (0, 4, 8):
        write_segment(tmp_path / "t-0", base, batch(base, 4))
    closed, last = tmp_path / "t-0" / f"{4:020d}.log", tmp_path / "t-0" / f"{8:020d}.log"
    whole = last.read_bytes()
    last.write_bytes(whole + bytes(1001))
    assert codes(tmp_path) == {"RECOVERY_CUTS"}
    last.write_bytes(whole)
    closed.write_bytes(closed.read_bytes().ljust(65536, b"\0"))
    assert codes(tmp_path) == {"RECOVERY_CUTS", "RECOVERY_DROPS_SEGMENTS"}


def test_a_recovery_that_has_no_room_on_the_disk_is_a_blocker_that_names_the_bytes(tmp_path: Path) -> None:
    logs = tmp_path
    write_segment(logs / "t-0", 0, batch(0, 4), batch(4, 4))
    (index := logs / "t-0" / f"{0:020d}.timeindex").unlink()
    given = load_settings(FS, environment={}, working_directory=logs)

    def rows(free: int) -> list[Diagnosis]:
        disk = SmallDisk(logs, free)
        doctor = Doctor(disk, [logs], FixedClock(NOW_MS), lambda path: DirectorySettings(FS, path, given))
        return [row for row in doctor if row.code == "NO_ROOM"]

    (row,) = rows(0)
    needed, soon = int(row.message.split()[2]), room_to_close(FS, logs)
    assert row.gravity is Severity.BLOCKER and 4096 <= needed < 100_000
    assert row.command == f"seglog retain --free {(needed + soon) * 105 // 100} {logs}"
    assert rows(needed - 1)[0].gravity is Severity.BLOCKER and not rows(needed + soon)
    for free in (needed, needed + soon - 1):  # a broker's own checkpoint then fails
        (row,) = rows(free)
        assert row.gravity is Severity.DANGER and f"soon after {soon}, and {free} are free" in row.message
        assert row.command == f"seglog retain --free {(needed + soon) * 105 // 100} {logs}"
    (logs / ".kafka_cleanshutdown").touch()
    assert not index.exists() and len(rows(0)) == 1  # nothing is recovered; the index and the last snapshot are made
    index.touch()
    (logs / "t-0" / f"{8:020d}.snapshot").write_bytes(encode_snapshot([]))
    assert not rows(0)


@pytest.mark.parametrize("clean", [True, False])
def test_a_snapshot_that_cannot_be_written_empties_a_segment_in_a_recovery_and_else_stops_the_load(
    tmp_path: Path, clean: bool
) -> None:
    write_segment(tmp_path / "t-0", 0, batch(0, 4))
    write_segment(tmp_path / "t-0", 4, batch(4, 4))
    (tmp_path / "t-0" / f"{8:020d}.snapshot").mkdir()
    if clean:
        (tmp_path / ".kafka_cleanshutdown").touch()
    rows = {row.code: row for row in diagnose(tmp_path)}
    assert rows["SNAPSHOT_UNWRITABLE"].gravity is (Severity.BLOCKER if clean else Severity.DANGER)
    cuts = rows.get("RECOVERY_CUTS")
    assert (cuts is None) if clean else (cuts is not None and (cuts.position, cuts.first_offset) == (0, 4))
