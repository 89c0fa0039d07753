"""Backups and prunes that are killed at any moment: every snapshot that is listed restores to what it was.

SEGLOG_BACKUP_KILLS sets how many processes are killed.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import machine_files
from seglog_rescue.backup.repository import Repository
from seglog_rescue.backup.restoring import restore_snapshots, verify_snapshots
from tests.support.command_line import COMMAND, ROOT, environment
from tests.support.log_files import batch, contents_below

KILLS = int(os.environ.get("SEGLOG_BACKUP_KILLS", "4"))
SEED = int(os.environ.get("SEGLOG_SEED", "7"))
PARTITIONS = ("large-0", *(f"small-{number}" for number in range(6)))


def grown(logs: Path, chance: random.Random, offset: int) -> None:
    """Appends a batch to some partitions, and sometimes writes one anew, as a compaction does."""
    for name in PARTITIONS:
        log = logs / name / "00000000000000000000.log"
        size = 1_500_000 if name == "large-0" else 2000
        if not log.exists() or chance.random() < 0.1:
            log.parent.mkdir(parents=True, exist_ok=True)
            temporary = log.with_suffix(".new")
            temporary.write_bytes(batch(offset, value=chance.randbytes(size)))
            temporary.rename(log)
        elif chance.random() < 0.7:
            with log.open("ab") as file:
                file.write(batch(offset, value=chance.randbytes(size)))


def killed_after(seconds: float, *arguments: str | Path) -> float | None:
    """Kills a command after a time; returns how long it took if it had ended before."""
    began = time.monotonic()
    command = [*COMMAND, *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), cwd=ROOT
    ) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    return time.monotonic() - began


@pytest.mark.slow
def test_every_listed_snapshot_restores_whatever_was_killed(tmp_path: Path) -> None:
    chance, logs, place = random.Random(SEED), tmp_path / "logs", tmp_path / "backup"
    expected: dict[str, dict[str, bytes]] = {}
    kills, usual, offset = 0, 3.0, 0
    while kills < KILLS:
        offset += 1
        grown(logs, chance, offset)
        words: list[str | Path] = ["backup", logs, "--to", place, "--uncommitted"]
        if chance.random() < 0.2 and expected:
            words = ["backup", "prune", place, "--keep-last", "2", "--grace", "0s"]
        took = killed_after(chance.uniform(0.3 * usual, 1.1 * usual), *words)
        kills += took is None
        usual = usual if took is None else 0.8 * usual + 0.2 * took
        if took is None and chance.random() < 0.2:
            usual *= 1.2  # so that some runs end
        repository = Repository(machine_files(), place)
        ids = repository.ids()
        expected = {identity: expected.get(identity, contents_below(logs)) for identity in ids}
        assert not verify_snapshots(repository, ids[-3:], 1.0, chance, lambda _size: None).problems
        for identity in chance.sample(ids, min(1, len(ids))):
            target = tmp_path / "new"
            snapshot = repository.read(identity)
            restore_snapshots(repository, [snapshot], LocalFileSystem(), target, lambda _size: None)
            assert contents_below(target) == expected[identity]
            shutil.rmtree(target)
    assert not verify_snapshots(repository, repository.ids(), 1.0, chance, lambda _size: None).problems
