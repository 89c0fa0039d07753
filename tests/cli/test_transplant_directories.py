"""`seglog transplant` into a broker with several log directories."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.clock import Clock
from seglog.errors import RefusedError
from seglog.format.uuids import format_uuid
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record
from seglog_rescue.transplant.apply import TransplantOutcome, carry_out
from seglog_rescue.transplant.plan import TransplantPlan
from tests.support.command_line import json_lines, run
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.lost_clusters import directory_id
from tests.support.metadata_records import write_metadata_log
from tests.support.target_directories import TOPIC_ID, everything, partitions_in, target_directory

FS = LocalFileSystem()
NAME = "4.3.0/killed"
NOW = str(fixture_now_ms(NAME))


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    return fixture_copy(NAME, tmp_path / "old")


def contents(root: Path) -> dict[str, bytes]:
    """Everything below, without the locks that a command leaves."""
    return {name: data for name, (_, _, data) in everything(root).items() if not name.endswith(".lock")}


def records(partition: Path) -> list[tuple[int, object]]:
    rows = json_lines(run("read", "--from-offset", "0", "--json", partition))
    return [(row["offset"], row.get("value", row.get("value_b64"))) for row in rows if row["type"] == "record"]


@pytest.fixture
def disks(tmp_path: Path, dead: Path) -> tuple[Path, Path]:
    """The two log directories of a stopped broker, which has every second partition in the second one."""
    names = partitions_in(dead)
    made = tuple(target_directory(FS, tmp_path / "new" / f"d{i}", names[i::2]) for i in range(2))
    for number, path in enumerate(made):
        with (path / "meta.properties").open("a") as file:
            file.write(f"directory.id={format_uuid(directory_id(1, number))}\n")
    return made  # type: ignore[return-value]


def test_each_partition_goes_into_the_log_directory_where_the_broker_has_it(
    dead: Path, disks: tuple[Path, Path], tmp_path: Path
) -> None:
    into = ("--into", disks[0], "--into", disks[1], "--now", NOW)
    empty = everything(tmp_path / "new")
    planned = json_lines(run("transplant", "--dry-run", "--json", dead, *into))
    assert everything(tmp_path / "new") == empty
    done = json_lines(run("transplant", "--json", dead, *into))
    for rows in (planned, done):
        assert rows[-1].get("exit_code") == 0, rows
        places = {row["partition"]: Path(row["log_directory"]) for row in rows if row["type"] == "transplant"}
        assert places == {name: disks[i % 2] for i, name in enumerate(partitions_in(dead))}
        left_out = [Path(row["path"]).name for row in rows if row["type"] == "left_out"]
        assert sorted(left_out) == ["__cluster_metadata-0", "__transaction_state-0", "__transaction_state-1"]
    for i, name in enumerate(partitions_in(dead)):
        assert name.startswith("__") or records(disks[i % 2] / name) == records(dead / name)
    assert len(done[-1]["runs"]) == 2 and done[-1]["run"] == done[-1]["runs"][0]
    again = run("transplant", dead, *into)
    assert (again.exit_code, "nothing to do" in again.stdout) == (0, True)
    for name in done[-1]["runs"]:
        assert run("undo", name, "--quarantine", tmp_path / "new" / ".seglog-quarantine").exit_code == 0
    shutil.rmtree(tmp_path / "new" / ".seglog-quarantine")
    assert contents(tmp_path / "new") == {name: data for name, (_, _, data) in empty.items()}


def test_a_partition_in_a_log_directory_that_was_not_named_is_said_to_be_there(
    dead: Path, disks: tuple[Path, Path]
) -> None:
    name = next(name for name in partitions_in(dead) if (disks[1] / name).exists() and name.startswith("orders-"))
    topic_id, identity = format_uuid(TOPIC_ID), format_uuid(directory_id(1, 1))
    fields = {"partitionId": 0, "topicId": topic_id, "replicas": [1], "isr": [1], "leader": 1, "leaderEpoch": 0}
    fields |= {"removingReplicas": [], "addingReplicas": [], "partitionEpoch": 0, "directories": [identity]}
    topic = encode_metadata_record("TOPIC_RECORD", {"name": name.rpartition("-")[0], "topicId": topic_id})
    write_metadata_log(disks[0], [topic, encode_metadata_record("PARTITION_RECORD", fields)])
    before = contents(disks[0])
    result = run("transplant", dead / name, "--into", disks[0])
    assert result.exit_code == 12 and contents(disks[0]) == before
    assert f"{name} is in another log directory of this broker (directory.id {identity})" in result.stderr
    assert "one more --into" in result.stderr
    both = run("transplant", dead / name, "--into", disks[0], "--into", disks[1])
    assert both.exit_code == 0, both.output
    assert records(disks[1] / name) == records(dead / name)


def test_log_directories_of_two_brokers_are_not_taken_for_those_of_one(dead: Path, disks: tuple[Path, Path]) -> None:
    file = disks[1] / "meta.properties"
    file.write_text(file.read_text().replace("node.id=1", "node.id=2"))
    result = run("transplant", dead, "--into", disks[0], "--into", disks[1])
    assert result.exit_code == 12 and "belong to two brokers (node.id 1 and 2)" in result.stderr


def test_a_failure_in_the_second_log_directory_takes_the_first_one_back(
    dead: Path, disks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(disks[0])

    def carried_out(fs: FileSystem, clock: Clock, plan: TransplantPlan, *rest: Any) -> TransplantOutcome:
        if plan.log_directory == disks[1]:
            raise RefusedError("no room")
        return carry_out(fs, clock, plan, *rest)

    monkeypatch.setattr("seglog_rescue.transplant.apply.carry_out", carried_out)
    assert run("transplant", dead, "--into", disks[0], "--into", disks[1], "--now", NOW).exit_code == 12
    assert contents(disks[0]) == before
