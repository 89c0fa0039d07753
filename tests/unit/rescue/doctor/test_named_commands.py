"""The commands that doctor names are run as they stand: a shell takes them apart, and they mend."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.settings import DirectorySettings, load_settings
from seglog.format.checkpoint import PartitionMetadata, format_partition_metadata
from seglog.rescue.doctor.doctor import Diagnosis, Doctor
from tests.support.command_line import run
from tests.support.fixtures import fixture_copy
from tests.support.log_files import FS
from tests.support.target_directories import target_directory

NOW_MS = 1_700_000_000_000


def diagnose(path: Path, *overrides: str) -> list[Diagnosis]:
    given = load_settings(FS, overrides=list(overrides), environment={}, config=None, working_directory=path)
    return list(Doctor(FS, [path], FixedClock(NOW_MS), lambda each: DirectorySettings(FS, each, given), deep=False))


def run_command(command: str, aside: Path) -> list[int]:
    """Runs a command that a diagnosis names in a shell's way, and returns the exit codes."""
    command = command.replace("SOMEWHERE-OUTSIDE-LOG.DIRS", shlex.quote(str(aside)))
    ended = []
    for words in (shlex.split(part) for part in command.split(" && ")):
        done = subprocess.run(words, check=False) if words[0] == "mv" else run(*words[1:])
        ended.append(done.returncode if isinstance(done, subprocess.CompletedProcess) else done.exit_code)
    return ended


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
    assert "create the topic -new, and stop" in row.message
    assert run_command(row.command, aside) == [0, 12]  # no broker has made the topic: nothing is changed
    (aside / "-new-0").rename(logs / "-new-0")
    # stands for a broker that started and made the topic: another directory, whose metadata is not here
    target = target_directory(FS, tmp_path / "target", ["-new-0"])
    assert run_command(
        row.command.replace(f"--into {shlex.quote(str(logs))}", f"--into {shlex.quote(str(target))}"), aside
    ) == [0, 0]
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
    assert run_command(row.command, tmp_path) == [0]
    assert "SNAPSHOT_MISSING" not in {row.code for row in diagnose(logs, tiered)}
