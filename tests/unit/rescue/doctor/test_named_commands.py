"""The commands that doctor names are run as they stand: a shell takes them apart, and they mend."""

from __future__ import annotations

import shlex
import shutil
import uuid
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.settings import DirectorySettings, load_settings
from seglog.format.checkpoint import PartitionMetadata, format_partition_metadata
from seglog_rescue.doctor.doctor import Diagnosis, Doctor
from seglog_rescue.doctor.mends import ASIDE, TOOLS
from tests.support.command_line import run
from tests.support.fixtures import fixture_copy
from tests.support.log_files import FS
from tests.support.named_commands import run_named
from tests.support.target_directories import target_directory

NOW_MS = 1_700_000_000_000


def diagnose(path: Path, *overrides: str) -> list[Diagnosis]:
    given = load_settings(FS, overrides=list(overrides), environment={}, config=None, working_directory=path)
    return list(Doctor(FS, [path], FixedClock(NOW_MS), lambda each: DirectorySettings(FS, each, given), deep=False))


@pytest.mark.parametrize("has_id", [True, False], ids=["unknown topic", "no topic id"])
def test_the_records_of_a_stray_partition_come_into_a_topic_that_a_broker_has_made(
    tmp_path: Path, has_id: bool
) -> None:
    """It is named so that a shell could take it for options and blanks."""
    logs, aside = fixture_copy("4.3.0/clean", tmp_path / "with blanks"), tmp_path / "set aside"
    shutil.copytree(logs / "orders-none-0", logs / "-new-0")
    aside.mkdir()
    (logs / "-new-0" / "partition.metadata").unlink()
    if has_id:
        (logs / "-new-0" / "partition.metadata").write_bytes(
            format_partition_metadata(PartitionMetadata(uuid.UUID(int=9)))
        )
    (row,) = [row for row in diagnose(logs) if row.code == "STRAY_PARTITION"]
    assert "create the topic -new, stop the broker, and seglog transplant " in row.message
    assert run_named(row.command, aside) == [0]
    command = "seglog transplant " + row.message.partition(" seglog transplant ")[2]
    assert run_named(command, aside) == [12]  # no broker has made the topic: nothing is changed
    # stands for a broker that started and made the topic: another directory, whose metadata is not here
    target = target_directory(FS, tmp_path / "target", ["-new-0"])
    command = command.replace(f"--into {shlex.quote(str(logs))}", f"--into {shlex.quote(str(target))}")
    assert run_named(command, aside) == [0]
    assert run("read", target / "-new-0").stdout == run("read", logs / "orders-none-0").stdout


@pytest.mark.parametrize("is_clean", [True, False])
def test_reindex_makes_the_snapshots_without_which_a_tiered_log_is_not_copied(tmp_path: Path, is_clean: bool) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    name = "orders-none-0"
    first, second, *_ = sorted((logs / name).glob("*.snapshot"))
    tiered = "remote.storage.enable=true"
    assert [row for row in diagnose(logs, tiered) if row.code == "SNAPSHOT_MISSING"] == []
    if not is_clean:
        (logs / ".kafka_cleanshutdown").unlink()  # the recovery begins at the last recovery point, above these
    first.unlink()
    second.unlink()
    (row,) = [row for row in diagnose(logs, tiered) if row.code == "SNAPSHOT_MISSING"]
    assert (row.partition, row.file, row.count) == (name, first.name, 2)
    assert "SNAPSHOT_MISSING" not in {row.code for row in diagnose(logs)}  # of no tiered topic
    assert run_named(row.command, tmp_path) == [0]
    assert "SNAPSHOT_MISSING" not in {row.code for row in diagnose(logs, tiered)}


def wounded(root: Path) -> Path:
    """A log directory with blanks in its path, in which many things are wrong, each in a partition of its own."""
    logs = fixture_copy("4.3.0/clean", root / "with blanks")
    names = iter(("-giveaway-0", "-r-0", "a b-0", "it's-0", "--help-0", "-n-0"))

    def copy() -> Path:
        made = logs / next(names)
        shutil.copytree(logs / "orders-none-0", made)
        return made

    damaged = bytearray((log := copy() / f"{0:020d}.log").read_bytes())
    damaged[100] ^= 1
    log.write_bytes(damaged)
    index = copy() / f"{0:020d}.index"
    index.write_bytes(index.read_bytes() + bytes(64))
    (copy() / f"{0:020d}.timeindex").unlink()
    (copy() / "leader-epoch-checkpoint").write_bytes(b"x\n")
    (copy() / "x.log").touch()
    with (copy() / f"{790:020d}.log").open("wb") as file:
        file.write(b"no batch" * 10)
    (logs / "-stranger").mkdir()
    shutil.copytree(logs / "both-0", logs / f"-both-0.{'0' * 32}-stray")
    (logs / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\n-t 0 x\n")
    return logs


@pytest.mark.slow
@pytest.mark.parametrize("is_relative", [False, True])
def test_a_shell_takes_every_named_command_apart_into_paths_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_relative: bool
) -> None:
    logs = wounded(tmp_path)
    monkeypatch.chdir(logs.parent)
    rows = [row for row in diagnose(Path(logs.name) if is_relative else logs) if row.command.startswith(TOOLS)]
    assert len({row.code for row in rows}) >= 7, {row.code for row in rows}
    for row in rows:
        for part in row.command.split(" && "):
            words = shlex.split(part)
            named = [word for word in words[1:] if ("/" in word or word == logs.name) and str(ASIDE) not in word]
            assert named, row
            made = (
                named[1:] if words[0] == "mv" else [word for word in named if word.endswith((".rebuilt", ".restored"))]
            )
            for word in named:
                assert not word.startswith("-"), row
                assert (Path(word).parent if word in made else Path(word)).exists(), row
            if words[0] == "seglog":
                assert run(*words[1:], "--help").exit_code == 0
            if words[1] in ("repair", "reindex"):
                assert run(*words[1:], "--dry-run").exit_code not in (2, 10, 70, 74), row
