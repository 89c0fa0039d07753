"""Every reading command takes a path in tiered storage, and shows the same as for the partition itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from seglog.format.checkpoint import format_leader_epochs
from tests.support.command_line import clean_logs, ended, run
from tests.support.consumers import librdkafka_rows
from tests.support.fixtures import CLEAN, clean_partition
from tests.support.serving import local_rows, served
from tests.support.tiers import SEALED, private_pem, tier_segments, write_aiven, write_local_tiered

NAME = "customers-uncleaned-0"


@pytest.fixture
def genuine(tmp_path: Path) -> Path:
    """Returns the closed segments of a partition that a broker wrote, with their other files."""
    directory = clean_partition(NAME, tmp_path / "logs")
    for path in directory.glob("00000000000000002120.*"):
        if path.suffix != ".snapshot":
            path.unlink()
    for name in ("partition.metadata", "00000000000000002400.snapshot"):
        (directory / name).unlink()
    epochs = tier_segments(CLEAN / NAME)[-1].epochs  # a later one is of what the tier does not have yet
    (directory / "leader-epoch-checkpoint").write_bytes(format_leader_epochs(epochs))
    return directory


@pytest.fixture
def tier(tmp_path: Path) -> list[str]:
    """Makes the same in Aiven's layout, encrypted; returns it and the option that opens it."""
    segments = tier_segments(CLEAN / NAME)
    directory = write_aiven(tmp_path / "tier", "customers-uncleaned", 0, segments, SEALED)
    key = tmp_path / "key.pem"
    key.write_bytes(private_pem())
    return [str(directory), "--tier-key", f"key1={key}"]


@pytest.mark.parametrize(
    "command",
    [
        ["dump", "--json"],
        ["read", "--json", "--from-offset", "395", "--limit", "10"],
        ["verify", "--json"],
        ["stats", "--json"],
        ["txn", "--json"],
        ["explain", "--json"],
    ],
    ids=lambda words: words[0],
)
def test_reading_commands_show_the_partition(genuine: Path, tier: list[str], command: list[str]) -> None:
    local, found = run(command[0], str(genuine), *command[1:]), run(command[0], *tier, *command[1:])
    assert (found.exit_code, found.stdout) == (local.exit_code, local.stdout)


def test_doctor_judges_a_tier_by_its_partitions(tier: list[str]) -> None:
    directory, *options = tier
    healthy = run("doctor", str(Path(directory).parent), *options)
    assert (healthy.exit_code, healthy.stdout) == (0, "1 partition: a Kafka 4.3 broker would start; nothing wrong\n")
    refused = run("doctor", *tier)
    assert refused.exit_code == 10 and "a partition, not a log directory" in refused.stderr


@pytest.mark.parametrize("state", ["missing", "empty", "cut", "zeros", "of an unknown version"])
def test_doctor_names_a_transaction_index_that_no_start_rebuilds_in_a_tier_and_fetch_makes_it_anew(
    tmp_path: Path, state: str
) -> None:
    whole = tier_segments(CLEAN / "payments-0")
    right = next(one for one in whole if one.txnindex)
    data = right.txnindex or b""
    wrong = {"empty": b"", "cut": data[:-5], "zeros": bytes(len(data)), "of an unknown version": b"\1" + data[1:]}
    segments = [replace(one, txnindex=wrong.get(state)) if one is right else one for one in whole]
    tier = write_local_tiered(tmp_path / "tier", "payments", 0, segments)
    found = run("doctor", "--json", str(tier.parent))
    rows = [row for row in map(json.loads, found.stdout.splitlines()) if row["type"] == "diagnosis"]
    (row,) = [row for row in rows if row["code"] == "ABORTED_EXPOSED"]
    assert found.exit_code == 1 and row["file"] == f"{right.start:020d}.txnindex"
    assert "from the tier" in row["broker"] and row["command"] == f"seglog fetch {tier} -o restored"
    fetched = run("fetch", str(tier), "-o", str(tmp_path / "restored"))
    assert fetched.exit_code == 0 and "was made anew from the records" in fetched.stderr
    made = tmp_path / "restored" / "payments-0" / f"{right.start:020d}.txnindex"
    assert made.read_bytes() == (CLEAN / "payments-0" / made.name).read_bytes() == data
    assert (
        run("doctor", "--quick", str(write_local_tiered(tmp_path / "sound", "payments", 0, whole).parent)).exit_code
        == 0
    )


def test_ls_explain_and_export_take_a_tier(genuine: Path, tier: list[str], tmp_path: Path) -> None:
    local = [json.loads(line) for line in run("ls", "--json", str(genuine)).stdout.splitlines()]
    found = [json.loads(line) for line in run("ls", "--json", *tier).stdout.splitlines()]
    for field in ("partition", "segments", "start_offset", "end_offset", "size"):
        assert [row.get(field) for row in local] == [row.get(field) for row in found]
    assert "offsets 0 to 2119 are in the log" in run("explain", *tier, "--quick").stdout
    for source, name in (([str(genuine)], "local.csv"), (tier, "tier.csv")):
        assert run("export", *source, "-o", str(tmp_path / name)).exit_code == 0
    assert (tmp_path / "local.csv").read_bytes() == (tmp_path / "tier.csv").read_bytes()


def test_what_a_tier_lacks_is_reported_and_changes_the_exit_code(tmp_path: Path) -> None:
    segments = tier_segments(CLEAN / NAME)
    directory = write_local_tiered(tmp_path, "customers-uncleaned", 0, [segments[0], segments[2]])
    found = run("verify", str(directory), "--level", "crc")
    assert found.exit_code == 1 and "offsets 400 to 799 are in no segment" in found.stderr
    found = run("dump", str(directory))
    assert found.exit_code == 3 and "offsets 400 to 799 are in no segment" in found.stderr


def test_options_of_tiers_need_a_tier(genuine: Path) -> None:
    found = run("dump", str(genuine), "--local", str(genuine.parent))
    assert found.exit_code == 2 and "--local is only for a PATH in tiered storage" in found.stderr


def test_copies_are_compared_where_they_lie(genuine: Path, tier: list[str], tmp_path: Path) -> None:
    for level in ("bytes", "batches", "view"):
        found = run("diff", "--level", level, str(genuine), *tier)
        assert (found.exit_code, found.stderr) == (0, ""), found.stdout
    segments = tier_segments(CLEAN / NAME)
    lacking = write_local_tiered(tmp_path / "lacking", "customers-uncleaned", 0, [segments[0], segments[2]])
    found = run("diff", str(genuine), str(lacking))
    assert found.exit_code == 1 and "offsets 400 to 799 are in no segment" in found.stderr


def test_what_makes_a_log_reads_a_tier(genuine: Path, tier: list[str], tmp_path: Path) -> None:
    made = []
    for number, source in enumerate(([str(genuine)], tier)):
        place = tmp_path / f"made{number}"
        place.mkdir()
        for command in (["convert", "--codec", "lz4", "-o", place / NAME], ["salvage", "-o", place / "rescued-0"]):
            assert run(*command, *source).exit_code == 0
        made.append({path.relative_to(place): path.read_bytes() for path in place.rglob("*.log")})
    assert made[0] == made[1] and len(made[0]) >= 2


def test_what_is_made_of_a_tier_that_lacks_something_changes_the_exit_code(tmp_path: Path) -> None:
    segments = tier_segments(CLEAN / NAME)
    directory = write_local_tiered(tmp_path, "customers-uncleaned", 0, [segments[0], segments[2]])
    for command, name in (("convert", NAME), ("salvage", "rescued-0")):
        found = run(command, str(directory), "-o", str(tmp_path / command / name))
        assert found.exit_code == 3 and "offsets 400 to 799 are in no segment" in found.stderr


def test_clients_of_serve_read_a_tier(genuine: Path, tier: list[str]) -> None:
    with seglog.open_log(genuine) as log:
        expected = local_rows(log)
    with served(*tier) as (_, said):
        place = ("customers-uncleaned", 0)
        assert librdkafka_rows(said["listen"], [place], "read_uncommitted")[place] == expected


def test_groups_measure_their_lag_against_a_tier(genuine: Path, tier: list[str], tmp_path: Path) -> None:
    logs = clean_logs(tmp_path / "cluster")
    offsets = [str(path) for path in sorted(logs.glob("__consumer_offsets-*"))]
    local, found = run("groups", "--json", *offsets, str(genuine)), run("groups", "--json", *offsets, *tier)
    assert (found.exit_code, found.stdout) == (local.exit_code, local.stdout)


def test_the_local_part_is_not_named_beside_its_tier(genuine: Path, tier: list[str]) -> None:
    for path in (genuine, genuine.parent):
        found = ended("ls", *tier, "--local", genuine.parent, path)
        assert found.code == 12 and b"is the local part (--local) of the tier" in found.stderr


def test_a_key_that_cannot_be_read_is_wrong_usage(tier: list[str], tmp_path: Path) -> None:
    for key in (tmp_path / "missing.pem", tmp_path):
        done = run("ls", tier[0], "--tier-key", f"key1={key}")
        assert done.exit_code == 2, done.output
        assert f"--tier-key key1={key}: {key} cannot be read: " in done.output
