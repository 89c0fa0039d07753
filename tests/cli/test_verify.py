"""`seglog verify`: findings, summary, exit codes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.command_line import clean_logs, damage_logs, ended, json_lines, run
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


def test_a_file_that_is_no_log_is_not_called_a_damaged_one(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    others = [logs / "meta.properties", logs / "cleaner-offset-checkpoint"]
    others += [path for path in (logs / "customers-0").iterdir() if path.suffix != ".log"]
    assert len(others) == 10
    for path in others:
        done = run("verify", path)
        assert (done.exit_code, done.stdout) == (10, ""), path
        assert f"not a log; verifying its directory, {path.parent}, checks its contents" in done.stderr
    assert run("verify", logs / "bootstrap.checkpoint").exit_code == 0  # it holds batches


def test_time_that_runs_out_makes_it_incomplete(tmp_path: Path) -> None:
    done = run("verify", "--json", "--max-duration", "0", clean_logs(tmp_path))
    assert (done.exit_code, json_lines(done)[-1]["complete"]) == (3, False)


def test_a_segment_at_the_end_of_all_offsets_is_verified(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / "09223372036854775807.log").write_bytes(bytes(range(100)))
    for level in ("crc", "semantic"):
        assert run("verify", "--level", level, partition).exit_code == 1


def many_findings(tmp_path: Path) -> Path:
    """Makes four damaged segments and sixteen missing indexes."""
    logs = clean_logs(tmp_path)
    damage_logs(logs)
    return logs


@pytest.mark.parametrize("command", ["verify", "doctor"])
def test_findings_are_shown_by_code_with_their_number_and_the_first_three(tmp_path: Path, command: str) -> None:
    logs = many_findings(tmp_path)
    lines = run(command, logs).stdout.splitlines()
    rows = [row for row in json_lines(run(command, "--json", logs)) if row["type"] != "summary"]
    heads = [line.split() for line in lines if not line.startswith(" ")][:-1]
    counts = Counter((row["severity"], row["code"]) for row in rows)
    told = {(words[0], words[1].rstrip(":")): int(words[2]) if words[1].endswith(":") else 1 for words in heads}
    assert told == counts
    assert max(counts.values()) > 3
    levels = [words[0] for words in heads]
    assert levels == sorted(levels, key=("error", "blocker", "danger", "warning", "note", "info").index)
    places = [row["partition"] + "/" + row["file"] for row in rows if (row["severity"], row["code"]) in counts]
    for (severity, code), count in counts.items():
        if count > 3:
            at = next(i for i, line in enumerate(lines) if line.startswith(f"{severity} {code}: "))
            assert (
                sum(line.startswith("  ") and line.split()[0].rstrip(":") in places for line in lines[at + 1 : at + 5])
                == 3
            )
            assert lines[at + 4] == f"  … and {count - 3} more (--all)"


def test_every_finding_is_shown_when_all_are_asked_for(tmp_path: Path) -> None:
    logs = many_findings(tmp_path)
    rows = [row for row in json_lines(run("verify", "--json", logs)) if row["type"] == "finding"]
    lines = run("verify", "--all", logs).stdout.splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [[row["severity"], row["code"]] for row in rows]


@pytest.mark.parametrize(
    ("command", "asked", "left"),
    [
        ("verify", "error", {"error"}),
        ("verify", "warning", {"error", "warning"}),
        ("doctor", "danger", {"danger"}),
    ],
)
def test_what_is_less_grave_than_asked_is_not_shown(tmp_path: Path, command: str, asked: str, left: set[str]) -> None:
    logs = many_findings(tmp_path)
    shown = run(command, "--severity", asked, logs)
    assert {line.split()[0] for line in shown.stdout.splitlines()[:-1] if not line.startswith(" ")} == left
    rows = json_lines(run(command, "--json", "--severity", asked, logs))
    assert {row["severity"] for row in rows if row["type"] != "summary"} == left
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (1, run(command, logs).stdout.splitlines()[-1])
    assert run(command, "--severity", "awful", logs).exit_code == 2


@pytest.mark.parametrize("command", ["verify", "doctor"])
def test_with_q_the_exit_code_alone_tells(tmp_path: Path, command: str) -> None:
    logs = many_findings(tmp_path)
    done = run(command, "-q", logs)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "")
    assert run(command, "-q", "--json", logs).stdout == run(command, "--json", logs).stdout


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "leader-epoch-checkpoint"])
def test_impossible_offsets_in_a_checkpoint_end_no_look_at_it(tmp_path: Path, name: str, offset: int) -> None:
    logs = clean_logs(tmp_path)
    partition = logs / "customers-0"
    entry = f"0 {offset}" if name.startswith("leader") else f"customers 0 {offset}"
    (partition if name.startswith("leader") else logs).joinpath(name).write_text(f"0\n1\n{entry}\n")
    (partition / "00000000000000000000.log").unlink(missing_ok=True)
    for command in (["verify", "--level", "semantic", partition], ["doctor", logs]):
        assert ended(*command).code in (0, 1), command
