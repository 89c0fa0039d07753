"""`seglog metadata`: the tree, JSON lines, two voters compared, damage."""

from __future__ import annotations

from pathlib import Path

from tests.support.broken.wounded_starts import CONTROLLER_PORT, METADATA, made, snapshot_name, sound
from tests.support.command_line import clean_logs, json_lines, run
from tests.support.metadata_records import metadata_record, topic_id, write_metadata_log


def topics(*names: str) -> list[bytes]:
    return [metadata_record("TOPIC_RECORD", name=name, topicId=topic_id(i)) for i, name in enumerate(names)]


def test_the_tree_has_each_partition_as_kafkas_own_shell_shows_it(tmp_path: Path) -> None:
    shown = run("metadata", clean_logs(tmp_path)).stdout
    assert "  payments: id LmJw3mzNRLKN9J4nsHbwPQ\n    configs: segment.ms 3000\n    partitions\n" in shown
    assert (
        "      0: replicas 1, isr none, eligible 1, last_known_eligible 1, leader -1, leader_recovery recovering,"
        " leader_epoch 3, partition_epoch 4, directories nIppSnnOtj9TkVH3xtavWg\n"
    ) in shown
    assert "next_producer_id: 2000\n" in shown


def test_json_has_a_line_for_each_thing(tmp_path: Path) -> None:
    rows = json_lines(run("metadata", "--json", "--at", "30", clean_logs(tmp_path)))
    assert {row["type"] for row in rows} == {"metadata", "controller", "broker", "topic", "partition", "config"}
    (partition,) = [row for row in rows if row["type"] == "partition" and row["topic"] == "orders-none"]
    assert (partition["partition"], partition["isr"], partition["leader_epoch"]) == (0, [1], 0)
    assert rows[0]["end_offset"] == 31


def test_voters_are_compared_at_the_smaller_end_of_both(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write_metadata_log(one, topics("a", "b"))
    write_metadata_log(other, topics("a", "x", "y"))
    result = run("metadata", "--diff", other, one)
    assert result.exit_code == 1
    assert f"topics/b/id: {topic_id(1)} | -\n" in result.stdout
    assert "topics/y" not in result.stdout
    write_metadata_log(other, topics("a", "b", "c"))
    result = run("metadata", "--diff", other, one)
    assert (result.exit_code, result.stdout) == (0, f"{one} | {other}: no difference up to offset 1\n")


def test_damage_ends_it_with_three_and_the_place(tmp_path: Path) -> None:
    directory = write_metadata_log(tmp_path, topics("a", "b"))
    file = directory / f"{0:020d}.log"
    file.write_bytes(file.read_bytes()[:-3])
    result = run("metadata", tmp_path)
    assert result.exit_code == 3
    assert f"warning: {file}: position " in result.stderr
    assert "the log up to offset 0, 1 record\n" in result.stdout


def test_voters_are_shown_with_the_ids_of_their_directories_and_their_addresses(tmp_path: Path) -> None:
    (logs,) = made(sound("dynamic"), tmp_path)
    directory_id = logs.joinpath("meta.properties").read_text().partition("directory.id=")[2].split()[0]
    (row,) = [row for row in json_lines(run("metadata", "--json", logs)) if row["type"] == "voter"]
    address = f"127.0.0.1:{CONTROLLER_PORT}"
    features = {"kraft.version": "0-1"}
    assert row == {
        "type": "voter",
        "id": 1,
        "directory_id": directory_id,
        "listeners": {"CONTROLLER": address},
        "features": features,
    }
    assert f"  1: directory_id {directory_id}\n    listeners: CONTROLLER {address}\n" in run("metadata", logs).stdout
    first = logs / METADATA / snapshot_name(0, 0)
    assert f"  1: directory_id {directory_id}\n" in run("metadata", first).stdout
    assert "\nvoters\n" not in run("metadata", made(sound("clean"), tmp_path / "static")[0]).stdout


def test_a_log_without_records_has_no_last_offset(tmp_path: Path) -> None:
    (logs,) = made(sound("dynamic"), tmp_path)
    (logs / METADATA / f"{0:020d}.log").write_bytes(b"")
    assert f"snapshot {snapshot_name(0, 0)} and an empty log, 0 records\n" in run("metadata", logs).stdout
