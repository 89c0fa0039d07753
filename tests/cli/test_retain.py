"""`seglog retain`: reasons, files left as .deleted, --free, and what is not deleted without being stated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command_line import clean_logs, json_lines, process, run
from tests.support.compacted_directories import broker_directory
from tests.support.open_logs import START_MS

NOW = str(START_MS + 86_400_000)


def logs(tmp_path: Path) -> Path:
    return broker_directory(tmp_path / "logs", {"t-0": (3, 5), "u-0": (2, 5)}, cleanup_policy=frozenset({"delete"}))


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def bases(path: Path) -> list[int]:
    return sorted(int(f.stem) for f in path.glob("*.log"))


def test_segments_go_with_a_reason_and_wait_as_deleted(tmp_path: Path) -> None:
    path = logs(tmp_path) / "t-0"
    result = run("retain", "--now", NOW, "--retention-ms", "1h", path)
    assert result.exit_code == 0, result.stderr
    assert "deleted 3 of 4 segments of t-0" in result.stdout
    assert "more than retention.ms 3600000" in result.stdout
    assert "stays  120" in result.stdout
    assert "wait as .deleted" in result.stderr
    assert bases(path) == [120]
    assert len(list(path.glob("*.log.deleted"))) == 3
    run("append", path, input_text="x\n")
    assert not list(path.glob("*.deleted"))


def test_without_delay_the_files_are_gone_at_the_end(tmp_path: Path) -> None:
    path = logs(tmp_path) / "t-0"
    run("retain", "--now", NOW, "--retention-ms", "1h", "--delay", "0", path)
    assert (bases(path), list(path.glob("*.deleted"))) == ([120], [])


def test_a_dry_run_and_a_check_change_nothing(tmp_path: Path) -> None:
    path = logs(tmp_path)
    before = snapshot(path)
    result = run("retain", "--json", "--dry-run", "--now", NOW, "--retention-bytes", "1", path / "t-0")
    (row,) = json_lines(result)
    assert (row["type"], row["dry_run"], row["deleted_segments"]) == ("retention", True, [0, 40])
    assert row["segments"][0]["rule"] == "size"
    assert run("retain", "--check", "--now", NOW, "--retention-ms", "1h", path / "t-0").exit_code == 1
    assert run("retain", "--check", "--now", NOW, "--retention-ms", "100d", path / "t-0").exit_code == 0
    assert snapshot(path) == before


def test_a_rule_that_nobody_stated_deletes_nothing(tmp_path: Path) -> None:
    path = logs(tmp_path)
    much_later = str(START_MS + 400 * 86_400_000)
    for arguments in (
        [path],
        [path / "t-0"],
        ["--retention-bytes", "-1", path / "t-0"],
        ["--retention-ms", "1h", path],
    ):
        result = run("retain", "--now", much_later, *arguments)
        assert result.exit_code == 0, result.stderr
        assert "nothing to delete" in result.stdout
        assert "cleanup.policy is empty" not in result.stdout
    assert "cleanup.policy is not known: only segments below" in run("retain", "--dry-run", path).stdout
    assert bases(path / "t-0") == [0, 40, 80, 120]


def test_compacted_and_internal_topics_keep_their_segments(tmp_path: Path) -> None:
    path = clean_logs(tmp_path)
    for name in ("customers-0", "__consumer_offsets-0", "payments-compact-0"):
        result = run("retain", "--now", "2036-01-01T00:00:00Z", "--retention-ms", "0", path / name)
        assert f"{name}: nothing to delete" in result.stdout


def test_freeing_takes_whole_oldest_segments_and_tells_a_shortage(tmp_path: Path) -> None:
    path = logs(tmp_path)
    settings = ("--set", "cleanup.policy=delete", "--now", NOW)
    size = (path / "t-0" / f"{0:020d}.log").stat().st_size
    result = run("retain", "--free", str(size + 1), *settings, path)
    assert result.exit_code == 0, result.stderr
    assert (bases(path / "t-0"), bases(path / "u-0")) == ([40, 80, 120], [40, 80])
    assert not list(path.rglob("*.deleted"))
    assert re.search(r"stays +40 .* older segments free as much as is wanted", result.stdout)
    assert re.search(r"stays +120 .* the last segment, and empty", result.stdout)
    result = run("retain", "--free", "50GB", *settings, path)
    assert "no more closed segments may go" in result.stderr
    assert (bases(path / "t-0"), bases(path / "u-0")) == ([120], [80])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--free", "1GB", "--retention-ms", "1h", "t-0"], 2),
        (["--free", "0", "t-0"], 2),
        (["--policy", "compact", "t-0"], 2),
        (["--policy", "delete", "."], 2),
        (["--retention-ms", "soon", "t-0"], 2),
        (["missing-0"], 10),
    ],
)
def test_wrong_usage_is_told(tmp_path: Path, arguments: list[str], code: int) -> None:
    path = logs(tmp_path)
    assert process("retain", *arguments[:-1], path / arguments[-1]).returncode == code


def test_damage_that_opening_would_cut_is_refused(tmp_path: Path) -> None:
    path = logs(tmp_path)
    (path / ".kafka_cleanshutdown").unlink()
    (path / "recovery-point-offset-checkpoint").unlink()
    segment = path / "t-0" / f"{40:020d}.log"
    data = segment.read_bytes()
    segment.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    before = snapshot(path / "t-0")
    result = run("retain", "--now", NOW, "--retention-ms", "1h", path / "t-0")
    assert result.exit_code == 1
    assert "opening the log would cut" in result.stderr
    assert snapshot(path / "t-0") == before


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
@pytest.mark.parametrize("contents", ["0\n2\nt 0 0\nt 0 40\n", "gibberish"])
def test_a_checkpoint_that_cannot_be_relied_on_is_named_and_nothing_deleted(
    tmp_path: Path, name: str, contents: str
) -> None:
    path = logs(tmp_path)
    (path / name).write_text(contents)
    before = snapshot(path)
    result = run("retain", "--policy", "delete", "--retention-bytes", "1", path / "t-0")
    assert result.exit_code == 1
    assert name in result.stderr
    assert snapshot(path) == before
