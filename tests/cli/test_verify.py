"""`seglog verify`: findings, summary, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import clean_logs, json_lines, run
from tests.support.fixtures import fixture_copy


@pytest.mark.parametrize("level", ["header", "crc", "record", "index", "semantic"])
def test_a_healthy_directory_is_healthy_at_every_level(level: str, tmp_path: Path) -> None:
    done = run("verify", "--json", "--level", level, clean_logs(tmp_path))
    summary = json_lines(done)[-1]
    assert (done.exit_code, summary["type"], summary["exit_code"]) == (0, "summary", 0)
    assert (summary["errors"], summary["warnings"], summary["complete"]) == (0, 0, True)
    assert summary["batches"] > 100


@pytest.mark.parametrize("name", ["4.3.0/killed", "0.10.2", "0.8.2", "0.7"])
def test_no_alarm_on_other_healthy_logs(name: str, tmp_path: Path) -> None:
    logs = fixture_copy(name, tmp_path)
    done = run("verify", "--json", *(p for p in sorted(logs.iterdir()) if p.is_dir()))
    assert done.exit_code == 0, done.stdout


def test_a_finding_names_its_place_and_the_exit_code_is_1(tmp_path: Path) -> None:
    log = clean_logs(tmp_path) / "orders-none-0"
    path = sorted(log.glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[100] ^= 0x10
    path.write_bytes(data)
    done = run("verify", "--json", "--level", "crc", log)
    finding, summary = json_lines(done)
    assert (done.exit_code, summary["exit_code"], summary["errors"]) == (1, 1, 1)
    names = "type severity code partition file position length first_offset last_offset message"
    assert list(finding)[:10] == names.split()
    assert (finding["code"], finding["position"], finding["first_offset"]) == ("CRC_MISMATCH", 0, 0)
    text = run("verify", "--level", "crc", log).stdout
    assert text.startswith("error CRC_MISMATCH orders-none-0/00000000000000000000.log position 0, ")


def test_time_that_runs_out_makes_it_incomplete(tmp_path: Path) -> None:
    done = run("verify", "--json", "--max-duration", "0", clean_logs(tmp_path))
    assert (done.exit_code, json_lines(done)[-1]["complete"]) == (3, False)


def test_a_segment_at_the_end_of_all_offsets_is_verified(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / "09223372036854775807.log").write_bytes(bytes(range(100)))
    for level in ("crc", "semantic"):
        assert run("verify", "--level", level, partition).exit_code == 1
