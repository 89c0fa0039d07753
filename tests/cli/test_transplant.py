"""`seglog transplant`: output, JSON lines, exit codes, refusals, and undo."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.format.checkpoint import PartitionMetadata, format_partition_metadata
from seglog.format.uuids import format_uuid
from seglog.storage.local import LocalFileSystem
from seglog.storage.lock import DirectoryLock
from tests.support.command_line import ended, json_lines, run
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.group_records import TOPIC_ID as SHARED_TOPIC_ID
from tests.support.group_records import share_snapshot
from tests.support.log_files import contents_below
from tests.support.metadata_records import metadata_record, write_metadata_log
from tests.support.open_logs import opened_log
from tests.support.target_directories import TOPIC_ID, everything, partitions_in, target_directory

FS = LocalFileSystem()
NAME = "4.3.0/killed"
NOW = str(fixture_now_ms(NAME))


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    return fixture_copy(NAME, tmp_path / "old")


@pytest.fixture
def target(tmp_path: Path, dead: Path) -> Path:
    return target_directory(FS, tmp_path / "new" / "logs", partitions_in(dead))


def read(partition: Path, *more: str) -> list[dict[str, Any]]:
    """Returns its records, without the fields that a transplant changes."""
    rows = json_lines(run("read", "--from-offset", "0", "--json", *more, partition))
    renamed = ("partition", "producer_id", "producer_epoch", "sequence", "leader_epoch")
    commits = ("value", "value_b64") if partition.name.startswith("__consumer_offsets") else ()
    return [{name: value for name, value in one.items() if name not in (*renamed, *commits)} for one in rows]


def test_topics_that_the_new_cluster_lacks_are_named_in_one_sentence(dead: Path, tmp_path: Path) -> None:
    there = [name for name in partitions_in(dead) if not name.startswith(("orders-", "customers-", "__consumer"))]
    target = target_directory(FS, tmp_path / "new" / "logs", [*there, "__consumer_offsets-0"])
    before = everything(target)
    refused = run("transplant", "--dry-run", dead, "--into", target, "--now", NOW)
    assert refused.exit_code == 12
    offsets, topics, *_ = refused.stderr.split("; ")  # after them, what stands against those that are there
    assert "no __consumer_offsets-1, so a broker would set it aside as a stray" in offsets
    assert "the old offsets.topic.num.partitions" in offsets
    assert "no customers-0, customers-1, customers-uncleaned-0, orders-gzip-0, orders-lz4-0, orders-none-0" in topics
    assert "set them aside as strays: start the broker, make the topics with the same numbers of partitions" in topics
    assert everything(target) == before


def test_a_killed_brokers_directory_is_transplanted_in_full_and_restored_by_undo(dead: Path, target: Path) -> None:
    source, empty = everything(dead), everything(target)
    planned = json_lines(run("transplant", dead, "--into", target, "--dry-run", "--json", "--now", NOW))
    assert everything(target) == empty
    assert not (target.parent / ".seglog-quarantine").exists()
    found = json_lines(run("transplant", dead, "--into", target, "--json", "--now", NOW))
    assert everything(dead) == source
    steps = [[one["steps"] for one in rows if one["type"] == "transplant"] for rows in (planned, found)]
    assert steps[0] == steps[1]
    summary = found[-1]
    assert (summary["type"], summary["exit_code"], summary["partitions"]) == ("summary", 0, len(partitions_in(dead)))
    assert (summary["transactions_aborted"], summary["transactions_committed"]) == (2, 0)
    assert any("start the broker" in step for step in summary["next"])
    left_out = {Path(one["path"]).name for one in found if one["type"] == "left_out"}
    assert left_out == {"__cluster_metadata-0", "__transaction_state-0", "__transaction_state-1"}
    for name in ("orders-lz4-0", "customers-1", "payments-0", "payments-compact-0"):
        assert read(target / name) == read(dead / name)
    committed = ("--isolation", "read_committed")
    assert read(target / "payments-0", *committed) == read(dead / "payments-0", *committed)
    assert (target / "payments-0" / "partition.metadata").read_bytes() == format_partition_metadata(
        PartitionMetadata(TOPIC_ID)
    )
    verified = run("verify", target)
    assert (verified.exit_code, "nothing wrong" in verified.output) == (0, True), verified.output
    again = run("transplant", dead, "--into", target, "--now", NOW)
    assert (again.exit_code, "nothing to do" in again.stdout) == (0, True)
    undone = run("undo", summary["run"], "--quarantine", target.parent / ".seglog-quarantine")
    assert undone.exit_code == 0
    after = {name: data for name, (_, _, data) in everything(target).items()}
    assert after == {**{name: data for name, (_, _, data) in empty.items()}, ".lock": b""}


def test_the_text_says_what_is_done_and_what_comes_next(dead: Path, target: Path) -> None:
    result = run("transplant", dead / "payments-0", "--into", target, "--now", NOW)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"payments-0 from {dead / 'payments-0'}"
    assert any("by ABORT at offset 399: its coordinator had not committed it" in line for line in lines)
    assert any("1 open transaction ended by ABORT" in line for line in lines)
    assert f"  1. start the broker of {target}; its log reports payments-0: logEndOffset=400" in lines
    assert any("seglog undo" in line for line in lines[-1:])


def test_a_topic_gets_its_new_name_and_others_stay(dead: Path, target: Path) -> None:
    shutil.copytree(target / "clicks-0", target / "restored-0")
    result = json_lines(run("transplant", dead, "--into", target, "--topic", "clicks=restored", "--json"))
    assert [one["partition"] for one in result if one["type"] == "transplant"] == ["restored-0"]
    assert read(target / "restored-0") == read(dead / "clicks-0")
    assert not read(target / "clicks-0")


def refused(code: int, words: str, *arguments: str | Path) -> None:
    done = ended("transplant", *arguments)
    text = done.stderr.decode()
    assert (done.code, words in text) == (code, True), text
    assert "Traceback" not in text


def test_what_would_lose_data_is_refused_and_nothing_changes(dead: Path, target: Path) -> None:
    source = dead / "orders-lz4-0"
    (target / ".kafka_cleanshutdown").rename(target / "aside")
    before = everything(target)
    for more in ([], ["--dry-run"]):
        refused(12, "was not stopped cleanly", source, "--into", target, *more)
    (target / "aside").rename(target / ".kafka_cleanshutdown")
    with DirectoryLock(target):
        refused(11, "is locked by", source, "--into", target)
    other = dead.parent / "other-0"
    shutil.copytree(source, other)
    refused(12, "make the topic with the same number of partitions", other, "--into", target)
    refused(12, "no source has a partition of this topic", source, "--into", target, "--topic", "nothing=more")
    refused(12, "is not transplanted: the new cluster hands out", dead / "__transaction_state-0", "--into", target)
    refused(12, "lies in the target log directory", target / "orders-lz4-0", "--into", target)
    refused(12, "would both become", source, "--into", target, shutil.copytree(source, dead.parent / "x" / source.name))
    refused(12, "is a file", next(source.glob("*.log")), "--into", target)
    refused(2, "not OLD or OLD=NEW", source, "--into", target, "--topic", "=x")
    refused(10, "no such", source, "--into", target / "nowhere")
    path = max(source.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    refused(12, "seglog repair", source, "--into", target)
    now = everything(target)
    assert {name for name in {*now, *before} if now.get(name) != before.get(name)} <= {
        "aside",
        ".kafka_cleanshutdown",
        ".lock",
    }


def test_other_data_in_the_target_is_refused(dead: Path, target: Path) -> None:
    assert run("append", target / "clicks-0", input_text="news\n").exit_code == 0
    refused(12, "holds other data, which would be lost", dead / "clicks-0", "--into", target)


def test_where_groups_have_committed_the_refusal_says_how_the_old_ones_get_their_offsets(
    dead: Path, target: Path
) -> None:
    shutil.copy(dead / "orders-lz4-0" / f"{0:020}.log", target / "__consumer_offsets-0" / f"{0:020}.log")
    refused(12, "--format reset-csv", dead, "--into", target)
    command = ["transplant", dead, "--into", target, "--topic", "orders-lz4", "--topic", "payments", "--now", NOW]
    assert run(*command).exit_code == 0


def test_another_number_of_partitions_is_refused(dead: Path, target: Path) -> None:
    shutil.copytree(target / "customers-0", target / "customers-2")
    refused(12, "customers had 2 partitions, and customers has 3", dead / "customers-0", "--into", target)


def test_a_disk_without_room_is_refused(dead: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda _fs, _path: 1000)
    before = everything(target)
    refused(12, "bytes of disk space are needed, and 1000 are free", dead / "clicks-0", "--into", target)
    assert {name for name in everything(target) if name not in before} <= {".lock"}


def test_a_transplant_that_the_disk_ends_is_taken_back_and_says_so(
    dead: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rename, failed = contents_below(target), LocalFileSystem.rename, []

    def once(fs: LocalFileSystem, source: Path, to: Path) -> None:
        if to.parent.parent == target and not failed:
            failed.append(to)
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(to))
        rename(fs, source, to)

    monkeypatch.setattr(LocalFileSystem, "rename", once)
    done = ended("transplant", dead, "--into", target, "--now", NOW)
    assert failed
    assert done.code == 74
    assert f"the transplant failed and was taken back: {failed[0]}: {os.strerror(errno.EIO)}" in done.stderr.decode()
    assert contents_below(target) == before


def test_a_directory_that_is_no_brokers_gets_no_lock_file_and_quiet_is_one_line_a_partition(
    dead: Path, target: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "notes").mkdir(parents=True)
    refused = run("transplant", "--now", NOW, dead, "--into", other)
    assert refused.exit_code == 12 and "not a broker's log directory" in refused.stderr
    assert [path.name for path in other.iterdir()] == ["notes"]
    planned = run("-q", "transplant", "--now", NOW, "--dry-run", dead, "--into", target).stdout.splitlines()
    assert not [line for line in planned if line.startswith("  ")]


def test_a_share_group_that_begins_anew_is_named_with_its_progress_and_what_brings_it_on(
    dead: Path, target: Path
) -> None:
    topic = dead / "orders-none-0"
    (topic / "partition.metadata").write_text(f"version: 0\ntopic_id: {format_uuid(SHARED_TOPIC_ID)}\n")
    with opened_log(dead / "__share_group_state-0") as log:
        for group, number in (("mixed", 0), ("of a partition that is not taken", 9)):
            log.append([share_snapshot(group, start=10, delivered=3, batches=[(12, 14)], partition=number)])
    done = run("transplant", "--dry-run", dead, "--into", target, "--json", "--now", NOW)
    (line,) = [line for line in done.stderr.splitlines() if "share group" in line and "begins anew" in line]
    assert "share group mixed begins anew" in line
    assert "It had finished with orders-none-0 below offset 10 and 3 records beyond it." in line
    assert "--reset-offsets --group mixed --topic orders-none --to-earliest --execute" in line
    renamed = run("transplant", "--dry-run", dead, "--into", target, "--topic", "orders-none=orders-lz4", "--now", NOW)
    assert "--group mixed --topic orders-lz4 --to-earliest" in renamed.stderr
    other = run("transplant", "--dry-run", dead, "--into", target, "--topic", "orders-lz4", "--now", NOW)
    assert "share group" not in other.stderr


def test_a_groups_own_settings_are_named_with_the_command_that_sets_them(dead: Path, target: Path) -> None:
    shutil.rmtree(dead / "__cluster_metadata-0")
    value = {"resourceType": 32, "resourceName": "group-1", "name": "consumer.session.timeout.ms", "value": "50000"}
    write_metadata_log(dead, [metadata_record("CONFIG_RECORD", **value)])
    done = run("transplant", "--dry-run", dead, "--into", target, "--now", NOW)
    (line,) = [line for line in done.stderr.splitlines() if "settings of its own" in line]
    assert "--entity-type groups --entity-name group-1 --alter --add-config consumer.session.timeout.ms=50000" in line
    other = run("transplant", "--dry-run", dead, "--into", target, "--topic", "clicks", "--now", NOW)
    assert "settings of its own" not in other.stderr
