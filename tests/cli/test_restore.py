"""`seglog restore`: directories that were set aside, and data that repairs removed, become partitions again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.format.filenames import PartitionDirectoryName, PartitionState
from seglog.model import TopicPartition
from seglog.storage.local import LocalFileSystem
from tests.support.command_line import json_lines, run
from tests.support.fixtures import fixture_copy
from tests.support.log_files import batch, files_of
from tests.support.lost_clusters import TOPIC_IDS, broker_directory, changed_id
from tests.support.target_directories import everything, target_directory

UUID = "6b9f2c7d3e5a4f0c8d1b2a3c4d5e6f70"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAEQ"


def logs_of(partition: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(partition.glob("*.log"))}


def log_directory(tmp_path: Path, records: int = 6) -> Path:
    """Makes a log directory with `orders-0` of two segments."""
    made = broker_directory(tmp_path / "kafka", 1, {"orders-0": [0] * records})
    half = records // 2
    for base, last in ((0, half), (half, records)):
        (made / "orders-0" / f"{base:020}.log").write_bytes(b"".join(batch(i) for i in range(base, last)))
    return made


def restored(*arguments: str | Path) -> list[dict[str, Any]]:
    return json_lines(run("restore", "--json", *arguments))


@pytest.mark.parametrize("state", ["delete", "stray", "future"])
def test_a_directory_that_a_broker_set_aside_is_a_partition_that_a_cluster_takes(tmp_path: Path, state: str) -> None:
    source = fixture_copy("4.3.0/clean", tmp_path / "old")
    aside = source / f"customers-0.{UUID}-{state}"
    (source / "customers-0").rename(aside)
    before = everything(source)
    (row, *left_out, summary) = restored(source, "-o", tmp_path / "new")
    assert (row["partition"], row["directory"]) == ("customers-0", str(tmp_path / "new" / "customers-0"))
    assert {Path(one["path"]).name for one in left_out} >= {"orders-lz4-0"} and summary["exit_code"] == 0
    assert everything(source) == before
    assert logs_of(tmp_path / "new" / "customers-0") == logs_of(aside)
    assert run("verify", tmp_path / "new").exit_code == 0
    target = target_directory(LocalFileSystem(), tmp_path / "target" / "logs", ["customers-0"])
    taken = run("transplant", tmp_path / "new", "--into", target)
    assert taken.exit_code == 0, taken.output


def test_what_a_truncation_took_out_and_what_it_left_are_the_log_again(tmp_path: Path) -> None:
    logs = log_directory(tmp_path)
    partition = logs / "orders-0"
    before = logs_of(partition)
    cut = json_lines(run("truncate", partition, "--to-offset", "2", "--json"))[-1]
    (folder,) = (logs.parent / ".seglog-quarantine").iterdir()
    assert folder.name == cut["run"] and logs_of(partition) != before
    (row, _) = restored(folder, partition, "-o", tmp_path / "new")
    assert (row["log_start_offset"], row["log_end_offset"], row["missing"], row["copies"]) == (0, 6, [], 0)
    assert logs_of(tmp_path / "new" / "orders-0") == before


def test_parts_that_overlap_are_joined_and_what_they_share_is_taken_once(tmp_path: Path) -> None:
    logs = log_directory(tmp_path)
    whole = logs_of(logs / "orders-0")
    one, other = logs / f"orders-0.{UUID}-stray", tmp_path / "copy" / "orders-0"
    shutil.copytree(logs / "orders-0", one)
    shutil.copytree(logs / "orders-0", other)
    (other / f"{0:020}.log").unlink()
    last = one / f"{3:020}.log"
    last.write_bytes(batch(3) + batch(4))
    (row, _) = restored(one, other, "-o", tmp_path / "new")
    assert (row["batches"], row["copies"], row["missing"]) == (6, 2, [])
    assert logs_of(tmp_path / "new" / "orders-0") == whole


def test_parts_that_contradict_each_other_are_refused_with_files_and_offsets(tmp_path: Path) -> None:
    logs = log_directory(tmp_path)
    other = tmp_path / "copy" / "orders-0"
    shutil.copytree(logs / "orders-0", other)
    (other / f"{3:020}.log").write_bytes(batch(3) + batch(4, value=b"other") + batch(5))
    done = run("restore", logs / "orders-0", other, "-o", tmp_path / "new")
    assert done.exit_code == 12 and not (tmp_path / "new").exists()
    assert f"{logs / 'orders-0' / f'{3:020}.log'} (offsets 4 to 4 at position" in done.stderr
    assert f"{other / f'{3:020}.log'} (offsets 4 to 4 at position" in done.stderr
    shutil.rmtree(other)
    shutil.copytree(logs / "orders-0", other)
    changed_id(other, OTHER_ID)
    done = run("restore", logs / "orders-0", other, "-o", tmp_path / "new")
    assert (done.exit_code, "orders-0 has several topic ids" in done.stderr) == (12, True)


def test_a_leader_epoch_that_differs_is_a_contradiction_although_no_checksum_covers_it(tmp_path: Path) -> None:
    logs = log_directory(tmp_path)
    other = tmp_path / "copy" / "orders-0"
    shutil.copytree(logs / "orders-0", other)
    (other / f"{0:020}.log").write_bytes(batch(0, epoch=3) + batch(1) + batch(2))
    assert run("restore", logs / "orders-0", other, "-o", tmp_path / "new").exit_code == 12


def test_gaps_between_parts_and_damage_are_named_and_what_is_good_is_there(tmp_path: Path) -> None:
    logs = log_directory(tmp_path, 8)
    one, other = tmp_path / "a" / "orders-0", tmp_path / "b" / "orders-0"
    for made, first, last in ((one, 0, 2), (other, 4, 8)):
        made.mkdir(parents=True)
        (made / f"{first:020}.log").write_bytes(b"".join(batch(i) for i in range(first, last)))
    damaged = other / f"{4:020}.log"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 4 + 70] ^= 1  # offset 5
    damaged.write_bytes(data)
    done = run("restore", "--json", one, other, "-o", tmp_path / "new")
    (row, summary) = json_lines(done)
    assert done.exit_code == 1 and (summary["gaps"], summary["damaged"]) == (2, 1)
    assert [(gap["first_offset"], gap["last_offset"]) for gap in row["missing"]] == [(2, 3), (5, 5)]
    assert row["damaged"] == [{"file": str(damaged), "position": len(data) // 4, "length": len(data) // 4}]
    found = json_lines(run("read", "--from-offset", "0", "--json", tmp_path / "new" / "orders-0"))
    assert [each["offset"] for each in found] == [0, 1, 4, 6, 7]
    assert (logs / "orders-0").exists()


def test_what_compaction_left_out_is_no_gap(tmp_path: Path) -> None:
    part = broker_directory(tmp_path / "kafka", 1, {"orders-0": []}) / "orders-0"
    (part / f"{0:020}.log").write_bytes(batch(0) + batch(7) + batch(9))
    (part / f"{20:020}.log").write_bytes(b"")
    (row, summary) = restored(part, "-o", tmp_path / "new")
    assert (row["missing"], summary["exit_code"], row["log_end_offset"]) == ([], 0, 20)
    assert logs_of(tmp_path / "new" / "orders-0") == logs_of(part)


def test_a_dry_run_makes_nothing_and_an_empty_log_keeps_its_end(tmp_path: Path) -> None:
    logs = broker_directory(tmp_path / "kafka", 1, {"orders-0": []})
    (logs / "orders-0" / f"{0:020}.log").rename(logs / "orders-0" / f"{55:020}.log")
    (logs / "orders-0").rename(logs / f"orders-0.{UUID}-delete")
    planned = run("restore", "--dry-run", logs, "-o", tmp_path / "new")
    assert (planned.exit_code, (tmp_path / "new").exists()) == (0, False)
    assert f"orders-0 would go to {tmp_path / 'new' / 'orders-0'}\n" in planned.stdout
    assert "empty; the log continues at offset 55" in planned.stdout
    assert run("restore", logs, "-o", tmp_path / "new").exit_code == 0
    assert list(logs_of(tmp_path / "new" / "orders-0")) == [f"{55:020}.log"]
    assert "orders" in TOPIC_IDS


def test_places_that_cannot_be_are_refused_and_nothing_is_made(tmp_path: Path) -> None:
    logs = log_directory(tmp_path)
    source = logs / "orders-0"
    other = broker_directory(tmp_path / "other", 2, {"clicks-0": [0]})
    assert run("restore", logs, "-o", tmp_path / "new").exit_code == 10  # nothing was set aside
    assert run("restore", source / f"{0:020}.log", "-o", tmp_path / "new").exit_code == 10
    stray = run("restore", source, "-o", other)
    assert (stray.exit_code, "is a broker's log directory" in stray.stderr) == (12, True)
    assert run("restore", source, "-o", source / "new").exit_code == 12
    assert not (tmp_path / "new").exists()
    assert run("restore", source, "-o", tmp_path / "new").exit_code == 0
    made = tmp_path / "new" / "orders-0" / f"{0:020}.log"
    made.write_bytes(made.read_bytes() + batch(99))
    again = run("restore", source, "-o", tmp_path / "new")
    assert (again.exit_code, "is there already and not empty" in again.stderr) == (12, True)


def test_a_run_that_was_killed_is_gone_on_with_and_what_it_made_stays(tmp_path: Path) -> None:
    logs = broker_directory(tmp_path / "kafka", 1, {"orders-0": [0] * 3, "orders-1": [0] * 3})
    for name in ("orders-0", "orders-1"):
        (logs / name).rename(logs / f"{name}.{UUID}-stray")
    assert run("restore", logs, "-o", tmp_path / "new").exit_code == 0
    whole = files_of(tmp_path / "new" / "orders-0")
    shutil.rmtree(tmp_path / "new" / "orders-1")
    first, second, _ = restored(logs, "-o", tmp_path / "new")
    assert (first["already_there"], second["already_there"]) == (True, False)
    assert files_of(tmp_path / "new" / "orders-0") == whole
    assert logs_of(tmp_path / "new" / "orders-1") == logs_of(tmp_path / "new" / "orders-0")
    again = run("restore", logs, "-o", tmp_path / "new")
    assert f"orders-1 is already in {tmp_path / 'new' / 'orders-1'}\n" in again.stdout
    last = tmp_path / "new" / "orders-1" / f"{0:020}.log"
    last.write_bytes(last.read_bytes()[:-1] + b"?")
    assert run("restore", logs, "-o", tmp_path / "new").exit_code == 12


@pytest.mark.parametrize("state", [PartitionState.DELETED, PartitionState.STRAY])
def test_a_topic_whose_name_a_broker_cut_gets_its_whole_name_or_is_not_restored(
    tmp_path: Path, state: PartitionState
) -> None:
    topic = "a" * 240 + "-payments"
    source = log_directory(tmp_path)
    aside = source / str(PartitionDirectoryName(TopicPartition(topic, 0), state, UUID))
    (source / "orders-0").rename(aside)
    assert len(aside.name) == 255
    for path in (source, aside):
        refused = run("restore", path, "-o", tmp_path / "new")
        assert refused.exit_code == 12 and not (tmp_path / "new").exists()
        assert f"{aside}: a broker cuts names that are too long" in refused.stderr and "--topic" in refused.stderr
    (row, _) = restored(aside, "-o", tmp_path / "new", "--topic", "orders", "--topic", topic)
    assert row["partition"] == f"{topic}-0" and logs_of(tmp_path / "new" / f"{topic}-0") == logs_of(aside)
    refused = run("restore", aside, "-o", tmp_path / "other", "--topic", topic, "--topic", topic[:-1])
    assert refused.exit_code == 12 and "several topics" in refused.stderr


def test_a_name_that_a_broker_had_room_for_needs_no_other(tmp_path: Path) -> None:
    source = log_directory(tmp_path)
    name = PartitionDirectoryName(TopicPartition("b" * 212, 0), PartitionState.DELETED, UUID)
    (source / "orders-0").rename(source / str(name))
    (row, _) = restored(source, "-o", tmp_path / "new")
    assert row["partition"] == "b" * 212 + "-0"
