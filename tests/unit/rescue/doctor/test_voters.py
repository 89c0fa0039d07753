"""`doctor` on a dynamic quorum: whether `meta.properties` is that of the voter that the metadata names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from seglog.verification.codes import Severity
from seglog_rescue.doctor.cases import Diagnosis
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record, metadata_snapshot
from tests.support.broken.wounded_starts import METADATA, Change, made, replaced, snapshot_name, sound, voter, voting
from tests.support.command_line import json_lines, run
from tests.support.named_commands import run_named
from tests.unit.rescue.doctor.test_doctor import diagnose

META = "meta.properties"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAfw"


def lines_without(beginning: str, *added: str) -> Change:
    def change(path: Path) -> None:
        lines = [line for line in path.read_text().splitlines() if not line.startswith(beginning)]
        path.write_text("\n".join([*added, *lines]))

    return change


def told(*directories: Path) -> list[Diagnosis]:
    return [row for row in diagnose(*directories) if row.code == "NOT_THE_VOTER"]


def identity(logs: Path) -> dict[str, str]:
    lines = (logs / META).read_text().splitlines()
    return dict(line.replace(" ", "").split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return made(sound("dynamic"), tmp_path)[0]


def test_the_voter_itself_would_start(logs: Path) -> None:
    assert not [row for row in diagnose(logs) if row.gravity is not Severity.NOTE]


@pytest.mark.parametrize(
    ("wound", "said"),
    [
        (
            lines_without("directory.id", f"directory.id={OTHER_ID}"),
            f"it has directory.id {OTHER_ID}, but node 1 votes",
        ),
        (lines_without("directory.id", f"directory.id = {OTHER_ID}"), f"it has directory.id {OTHER_ID}, but node 1"),
        (lines_without("directory.id"), "it has no directory.id, but node 1 votes with directory.id"),
        (replaced("node.id=1", "node.id=7"), "is the one with which node 1 votes"),
    ],
)
def test_an_identity_that_is_not_the_only_voters_blocks_and_the_command_gives_it_back(
    wound: Change, said: str, logs: Path
) -> None:
    before = identity(logs)
    wound(logs / META)
    (row,) = told(logs)
    assert (row.gravity, row.partition, row.file) == (Severity.BLOCKER, "", META)
    assert said in row.message
    run_named(row.command, logs.parent)
    assert identity(logs) == before
    assert not told(logs)


def test_the_wrong_node_id_of_the_only_voter_makes_no_partition_a_stray_in_any_of_its_directories(logs: Path) -> None:
    other = logs.parent / "other"
    other.mkdir()
    shutil.move(logs / "clicks-0", other / "clicks-0")
    shutil.copy(logs / META, other)
    lines_without("directory.id", f"directory.id={OTHER_ID}")(other / META)
    for directory in (logs, other):
        replaced("node.id=1", "node.id=7")(directory / META)
    rows = diagnose(logs, other)
    assert [row.code for row in rows if row.gravity is Severity.BLOCKER] == ["NOT_THE_VOTER"]
    assert not [row for row in rows if row.code == "STRAY_PARTITION"], "no start gets as far as to the partitions"
    voting(voter(2, OTHER_ID))(logs)
    strays = {row.partition for row in diagnose(logs, other) if row.code == "STRAY_PARTITION"}
    assert {"clicks-0", "payments-0"} <= strays, "with other voters it does, and sets aside what is node 1's"


def test_of_several_voters_the_others_go_on(logs: Path) -> None:
    voting(voter(2, OTHER_ID), voter(3, OTHER_ID))(logs)
    lines_without("directory.id")(logs / META)
    (row,) = told(logs)
    assert row.gravity is Severity.DANGER
    assert "add-controller" in row.broker


def test_a_broker_that_is_no_voter_has_a_copy_of_the_log_as_well(logs: Path) -> None:
    lines_without("directory.id", f"directory.id={OTHER_ID}")(logs / META)
    replaced("node.id=1", "node.id=7")(logs / META)
    assert not told(logs)


def test_a_static_quorum_asks_for_no_directory_id(tmp_path: Path) -> None:
    (logs,) = made(sound("clean"), tmp_path)
    lines_without("directory.id")(logs / META)
    assert not told(logs)


def test_a_voter_without_a_directory_id_is_any_directory_of_its_node(logs: Path) -> None:
    shutil.rmtree(logs.parent)
    logs.parent.mkdir()
    made(sound("clean"), logs.parent)
    lines_without("directory.id", "directory.id=AAAAAAAAAAAAAAAAAAAAAA")(logs / META)
    voting()(logs)
    lines_without("directory.id", f"directory.id={OTHER_ID}")(logs / META)
    assert not told(logs)


def test_what_names_the_voters_may_be_gone_damaged_or_empty(logs: Path) -> None:
    lines_without("directory.id")(logs / META)
    first = logs / METADATA / snapshot_name(0, 0)
    data = first.read_bytes()
    for cut in (0, 30, 70, 100, len(data) - 1):
        first.write_bytes(data[:cut])
        diagnose(logs)  # says something, and does not fail
    first.unlink()
    assert not told(logs)


def test_a_lost_identity_of_a_voter_is_written_with_its_directory_id(tmp_path: Path) -> None:
    directories = made(sound("two"), tmp_path)
    voting()(directories[0])
    before = identity(directories[0])
    (directories[0] / META).unlink()
    (row,) = [row for row in diagnose(*directories) if row.code == "META_PROPERTIES_MISSING"]
    subprocess.run(["bash", "-c", row.command], check=True)
    assert identity(directories[0]) == before
    assert not [row for row in diagnose(*directories) if row.gravity is Severity.BLOCKER]


@pytest.mark.parametrize(("base", "option"), [("clean", ""), ("dynamic", " --no-initial-controllers")])
def test_a_new_empty_directory_is_formatted_with_the_clusters_id(base: str, option: str, tmp_path: Path) -> None:
    (logs,) = made(sound(base), tmp_path)
    new = tmp_path / "new"
    new.mkdir()
    (row,) = [row for row in diagnose(logs, new) if row.code == "META_PROPERTIES_MISSING"]
    assert f"format --ignore-formatted{option} --cluster-id={identity(logs)['cluster.id']} -c" in row.command


@pytest.mark.parametrize(
    ("servers", "more", "gravity"),
    [
        ("a:9093", {}, Severity.BLOCKER),
        ("a:9093,b:9093", {}, Severity.DANGER),
        ("a:9093", {"process.roles": "broker"}, None),
        ("a:9093", {"controller.quorum.voters": "1@a:9093"}, None),
    ],
)
def test_a_controller_of_a_dynamic_quorum_needs_somebody_with_a_vote(
    servers: str, more: dict[str, str], gravity: Severity | None, logs: Path
) -> None:
    known = {"process.roles": "broker,controller", "controller.quorum.bootstrap.servers": servers, **more}
    assert not [row for row in diagnose(logs, settings=known) if row.code == "VOTERS_UNKNOWN"]
    (logs / METADATA / snapshot_name(0, 0)).unlink()
    rows = [row for row in diagnose(logs, settings=known) if row.code == "VOTERS_UNKNOWN"]
    assert [row.gravity for row in rows] == ([] if gravity is None else [gravity])


@pytest.mark.parametrize("kafka", ["4.3", "4.4"])
@pytest.mark.parametrize("where", ["bootstrap.checkpoint", f"{METADATA}/{snapshot_name(0, 0)}", "both"])
def test_topics_where_the_release_does_not_look_for_them_are_named(where: str, kafka: str, tmp_path: Path) -> None:
    """4.4 formats with feature levels in the first snapshot, beside which it does not read `bootstrap.checkpoint`."""
    (logs,) = made(sound("clean"), tmp_path)
    level = encode_metadata_record("FEATURE_LEVEL_RECORD", {"name": "metadata.version", "featureLevel": 25})
    topic = encode_metadata_record("TOPIC_RECORD", {"name": "x", "topicId": "AAAAAAAAAAAAAAAAAAAAZg"})
    shutil.rmtree(logs / METADATA)
    (logs / METADATA).mkdir()
    for name in ("bootstrap.checkpoint", f"{METADATA}/{snapshot_name(0, 0)}"):
        records = [level, topic] if where in (name, "both") else [level]
        (logs / name).write_bytes(metadata_snapshot(records, 1_700_000_000_000))
    rows = json_lines(run("doctor", "--json", "--kafka-version", kafka, logs))
    passed = "bootstrap.checkpoint" if kafka == "4.4" else f"{METADATA}/{snapshot_name(0, 0)}"
    assert ("BOOTSTRAP_PASSED_OVER" in {row.get("code") for row in rows}) == (where == passed)


def test_topics_in_the_first_snapshot_alone_are_known_to_4_4(tmp_path: Path) -> None:
    (logs,) = made(sound("clean"), tmp_path)
    rebuilt = run("rebuild", logs, "-o", tmp_path / "made")
    assert rebuilt.exit_code == 0, rebuilt.output
    shutil.rmtree(logs / METADATA)
    (logs / "bootstrap.checkpoint").unlink()
    shutil.copytree(tmp_path / "made" / METADATA, logs / METADATA)
    told = {kafka: run("doctor", "--kafka-version", kafka, logs).stdout for kafka in ("4.3", "4.4")}
    assert "BOOTSTRAP_PASSED_OVER" in told["4.3"]
    assert "-stray" not in told["4.4"] and "METADATA_MISSING" not in told["4.4"]
