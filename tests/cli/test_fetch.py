"""`seglog fetch`: partitions from a tier as a broker kept them, and refusals if something is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import json_lines, run
from tests.support.fixtures import CLEAN
from tests.support.log_files import files_of
from tests.support.object_server import object_server
from tests.support.tiers import SEALED, private_pem, tier_segments, write_aiven, write_local_tiered

NAME = "customers-uncleaned-0"
GENUINE = CLEAN / NAME


@pytest.fixture
def sealed(tmp_path: Path) -> list[str]:
    """Makes a compressed and encrypted tier; returns it and the option that opens it."""
    write_aiven(tmp_path / "tier", "customers-uncleaned", 0, tier_segments(GENUINE), SEALED)
    (tmp_path / "key.pem").write_bytes(private_pem())
    return [str(tmp_path / "tier"), "--tier-key", str(tmp_path / "key.pem")]


def test_a_fetched_partition_has_the_brokers_files_and_verifies(tmp_path: Path, sealed: list[str]) -> None:
    result = run("fetch", "--json", *sealed, "-o", tmp_path / "restored")
    (row,) = json_lines(result)
    target = tmp_path / "restored" / NAME
    assert (result.exit_code, row["type"], row["segments"], row["first_offset"]) == (0, "fetched", 4, 0)
    genuine = {name: data for name, data in files_of(GENUINE).items() if name < f"{2120:020d}."}
    found = files_of(target)
    assert {name: found[name] for name in genuine} == genuine
    assert found.keys() - genuine == {f"{2120:020d}.snapshot", "leader-epoch-checkpoint"}
    assert run("verify", target).exit_code == 0
    again = run("fetch", *sealed, "-o", target)
    assert (again.exit_code, f"{row['files']} files already there" in again.stdout) == (0, True)
    assert files_of(target) == found
    (target / f"{2120:020d}.snapshot").unlink()
    refused = run("fetch", *sealed, "-o", target)
    assert refused.exit_code == 12 and "if an earlier run made it, it is complete" in refused.stderr


def test_with_the_local_part_the_whole_partition_comes(tmp_path: Path) -> None:
    segments = tier_segments(GENUINE)
    directory = write_aiven(tmp_path / "tier", "customers-uncleaned", 0, segments[:3])
    local = tmp_path / "logs" / NAME
    local.mkdir(parents=True)
    for name, data in files_of(GENUINE).items():
        if not name.startswith((f"{0:020d}.", f"{400:020d}.")):
            (local / name).write_bytes(data)
    assert run("fetch", directory, "--local", local.parent, "-o", tmp_path / "new" / NAME).exit_code == 0
    wanted = {name: data for name, data in files_of(GENUINE).items() if name != "partition.metadata"}
    assert files_of(tmp_path / "new" / NAME) == wanted


def test_what_lacks_offsets_comes_only_when_that_is_allowed(tmp_path: Path) -> None:
    segments = tier_segments(GENUINE)
    directory = write_local_tiered(tmp_path, "customers-uncleaned", 0, [segments[0], segments[2]])
    target = tmp_path / "new" / NAME
    result = run("fetch", directory, "-o", target)
    assert result.exit_code == 12 and "offsets 400 to 799 are in no segment" in result.stderr
    assert not target.exists()
    result = run("fetch", directory, "-o", target, "--allow-gaps")
    assert result.exit_code == 3 and len(list(target.glob("*.log"))) == 2


def test_one_place_takes_one_partition(tmp_path: Path) -> None:
    segments = tier_segments(GENUINE)
    for number in (0, 1):
        write_local_tiered(tmp_path, "t", number, segments[:1])
    result = run("fetch", tmp_path, "-o", tmp_path / "new" / "t-0")
    assert result.exit_code == 2 and "and the sources are 2: name a log directory" in result.stderr
    assert run("fetch", tmp_path, "-o", tmp_path / "new").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir() if path.is_dir()) == ["t-0", "t-1"]


def test_a_tier_in_a_bucket_is_read_and_fetched_by_its_url(
    tmp_path: Path, sealed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = tmp_path / "tier"
    with object_server() as server:
        for path in tier.rglob("*.*"):
            server.objects[f"bkt/backup/{path.relative_to(tier)}"] = path.read_bytes()
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        url = ["s3://bkt/backup", *sealed[1:]]
        local, found = run("dump", "--json", *sealed), run("dump", "--json", *url)
        assert (found.exit_code, found.stdout) == (0, local.stdout), found.stderr
        assert run("fetch", *url, "-o", tmp_path / "restored").exit_code == 0
        assert run("fetch", *sealed, "-o", tmp_path / "local").exit_code == 0
    assert files_of(tmp_path / "restored" / NAME) == files_of(tmp_path / "local" / NAME)
