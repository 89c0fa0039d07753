"""`seglog ls`: partitions, segments, leftovers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.command_line import clean_logs, json_lines, process, run
from tests.support.fixtures import fixture_copy, fixture_partitions


def test_every_partition_of_a_log_directory_is_listed(tmp_path: Path) -> None:
    lines = json_lines(run("ls", "--json", clean_logs(tmp_path)))
    partitions = [one for one in lines if one["type"] == "partition"]
    assert [one["partition"] for one in partitions] == fixture_partitions("4.3.0/clean")
    (orders,) = [one for one in partitions if one["partition"] == "orders-none-0"]
    assert (orders["start_offset"], orders["end_offset"], orders["segments"], orders["state"]) == (0, 790, 4, "live")
    segments = [one for one in lines if one["type"] == "segment" and one["partition"] == "orders-none-0"]
    assert [one["base_offset"] for one in segments] == [0, 350, 500, 750]
    assert [one["active"] for one in segments] == [False, False, False, True]
    assert orders["size"] == sum(one["size"] for one in segments)


def test_the_table_shows_the_same(tmp_path: Path) -> None:
    shown = run("ls", clean_logs(tmp_path)).stdout.splitlines()
    assert shown[0].split() == ["PARTITION", "STATE", "SEGMENTS", "SIZE", "START", "END", "NEWEST"]
    (orders,) = [line.split() for line in shown if line.startswith("orders-none-0 ")]
    assert orders[:3] == ["orders-none-0", "live", "4"]
    assert orders[5:7] == ["0", "790"]


def test_a_named_partition_shows_segments_and_leftovers(tmp_path: Path) -> None:
    log = clean_logs(tmp_path) / "orders-none-0"
    (log / "00000000000000000000.log.cleaned").write_bytes(b"")
    (log / "notes.txt").write_text("")
    shown = run("ls", log).stdout
    assert "00000000000000000350.log" in shown
    assert "leftover orders-none-0/00000000000000000000.log.cleaned" in shown
    assert "stranger orders-none-0/notes.txt" in shown


@pytest.mark.parametrize("command", ["ls", "stats"])
def test_a_segment_stands_for_its_partition_and_no_other_file_does(tmp_path: Path, command: str) -> None:
    logs = clean_logs(tmp_path)
    shown = json_lines(run(command, "--json", logs / "orders-none-0" / "00000000000000000350.log"))
    assert shown == json_lines(run(command, "--json", logs / "orders-none-0"))
    for name in (
        "meta.properties",
        "orders-none-0/leader-epoch-checkpoint",
        "orders-none-0/00000000000000000350.index",
    ):
        done = run(command, logs / name)
        assert (done.exit_code, done.stdout) == (10, "")
        assert f"{logs / name}: neither a segment nor a directory" in done.stderr


def test_offsets_of_a_07_log_are_byte_positions(tmp_path: Path) -> None:
    logs = fixture_copy("0.7", tmp_path)
    name = fixture_partitions("0.7")[0]
    first = json_lines(run("ls", "--json", logs / name))[0]
    assert (first["format"], first["end_offset"] - first["start_offset"]) == ("0.7", first["size"])


def test_names_that_are_no_utf8_are_escaped(tmp_path: Path) -> None:
    name = os.fsdecode(b"t\xff-0")
    log = tmp_path / name
    log.mkdir()
    (log / "00000000000000000000.log").write_bytes(b"no batch" * 4)
    for command, code in (("ls", 0), ("verify", 1), ("dump", 1)):
        done = process(command, log)
        assert done.returncode == code, done.stderr
        assert b"t\\xff-0" in done.stdout
