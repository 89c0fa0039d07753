"""`seglog stats`: distributions, sizing and gauges."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog_cli.exit_codes import ExitCode
from seglog_cli.views.plots import bar, bars, curve
from tests.support.command_line import json_lines, run
from tests.support.compacted_directories import broker_directory

COMPACT = ("--set", "cleanup.policy=compact")


def test_distributions_are_those_of_the_log(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    (row,) = json_lines(run("stats", "--json", path / "t-0"))
    assert (row["type"], row["partition"], row["records"], row["distinct_keys"]) == ("statistics", "t-0", 120, 5)
    assert row["records_per_batch"] == [{"least": 4, "count": 24}]
    assert row["codecs"][0]["codec"] == "none"
    assert {key["key"] for key in row["frequent_keys"]} == {f"k{n}" for n in range(5)}


def test_a_plot_draws_a_bar_for_each_bucket(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    result = run("stats", "--plot", path / "t-0")
    assert "records a batch" in result.stdout
    assert f"4-7 {'█' * 32} 24" in result.stdout
    _, growth, drawn = result.stdout.partition("  growth (bytes that are still there")
    assert growth
    assert all(len(line) <= 80 for line in drawn.splitlines())
    assert "frequent keys (records)" in result.stdout


def test_bars_and_curves_are_in_proportion_and_begin_at_zero() -> None:
    assert [len(bar(value, 8)) for value in (0, 0.001, 4, 8)] == [0, 1, 16, 32]
    assert bars("t", [("a", 0, "0")]) == []
    drawn = curve("t", [0, 1, 2, 3], "from", "to", "3")[2:-1]
    filled = [sum(bin(ord(cell) - 0x2800).count("1") for cell in line if cell != " ") for line in drawn]
    assert len(drawn) == 6
    assert sum(filled) == 36 * (8 + 16 + 24)
    assert filled == sorted(filled)


def test_sizing_counts_keys_buffer_rounds_and_the_day(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 30)})
    small = ("--set", "log.cleaner.dedupe.buffer.size=480", "--set", "log.cleaner.io.buffer.load.factor=0.5")
    run("clean", "--policy", "compact", *small, path / "t-0")
    rows = json_lines(run("stats", "--json", "--sizing", "--write-rate", "1000", *COMPACT, *small, path / "t-0"))
    sizing = next(row for row in rows if row["type"] == "sizing")
    assert (sizing["slots"], sizing["capacity_keys"], sizing["kafka_rounds"]) == (20, 10, 3)
    assert sizing["needed_buffer_bytes"] == 60 * 24
    assert sizing["day_bytes"] == 86_400_000
    assert sizing["cleaner_bytes_per_second"] > 0
    assert sizing["keeps_up"] in (True, False)
    text = run("stats", "--sizing", *COMPACT, *small, path / "t-0").stdout
    assert "10 keys a round" in text
    assert "here one round of 3 index passes" in text


def test_gauges_go_to_a_file_on_request(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    run("clean", "--policy", "compact", path / "t-0")
    result = run("stats", *COMPACT, "--prometheus", tmp_path / "seglog.prom", path)
    assert result.exit_code == 0, result.stderr
    text = (tmp_path / "seglog.prom").read_text()
    assert f'kafka_log_logcleaner_max_clean_time_secs{{directory="{path}"}}' in text
    assert f'kafka_log_logcleanermanager_max_dirty_percent{{directory="{path}"}} 0\n' in text


def test_where_gauges_cannot_go_is_said_before_all_is_read(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (1, 5)})
    done = run("stats", "--prometheus", tmp_path / "nowhere" / "seglog.prom", path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"--prometheus: {tmp_path / 'nowhere'} is not a directory" in done.stderr


@pytest.mark.parametrize("command", ["stats", "cleaner"])
def test_gauges_replace_no_file_but_their_own(tmp_path: Path, command: str) -> None:
    path, once = broker_directory(tmp_path / "logs", {"t-0": (1, 5)}), ["--once"] if command == "cleaner" else []
    mine, directory, gauges = tmp_path / "passwords", tmp_path / "directory.prom", tmp_path / "seglog.prom"
    mine.write_text("root:x\n")
    directory.mkdir()
    for taken in (mine, directory):
        done = run(command, *once, *COMPACT, "--prometheus", taken, path)
        assert (done.exit_code, done.stdout) == (ExitCode.REFUSED, "")
        assert f"--prometheus: {taken} holds something else than gauges" in done.stderr
    assert mine.read_text() == "root:x\n"
    gauges.write_text("")
    for _ in range(2):
        assert run(command, *once, *COMPACT, "--prometheus", gauges, path).exit_code == 0
    assert gauges.read_text().startswith("# HELP kafka_log_logcleaner_")


def test_why_nothing_is_dirty_is_said_as_it_is(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)}) / "t-0"
    young = ("--set", "min.compaction.lag.ms=1000d", "--now", "2024-01-01T00:00:00Z")
    text = run("stats", "--sizing", *COMPACT, *young, path).stdout
    assert "nothing is cleanable: younger than min.compaction.lag.ms" in text and "active segment" not in text
