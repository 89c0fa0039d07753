"""A log is checked, digested and stored in one pass, in whatever order its reader goes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.storage.local import LocalFileSystem
from seglog.storage.metered_files import GatedFileSystem, ReadMeter
from seglog.storage.routing import machine_files
from seglog_rescue.backup.copying import CopiedFile
from seglog_rescue.backup.repository import Repository, digest_of
from seglog_rescue.backup.restoring import restore_snapshots
from seglog_rescue.backup.sending import PACK_BYTES, Sender
from seglog_rescue.operations.backup import BackupRequest, backup
from seglog_stores.formats.snapshot_manifest import FILE_BYTES_LIMIT
from tests.support.log_files import batch
from tests.support.manual_clock import ManualClock

FS = LocalFileSystem()
START_MS = 1_700_000_000_000


@pytest.mark.parametrize("seed", range(20))
def test_the_copy_and_its_digest_are_those_of_the_stored_range(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data, path = chance.randbytes(chance.randrange(1, 700_000)), tmp_path / "log"
    path.write_bytes(data)
    start = chance.choice([0, chance.randrange(len(data))])
    end = chance.choice([len(data), chance.randrange(start, len(data) + 1)])
    with FS.open(path, "r") as below, FS.open(tmp_path / "copy", "create_new") as target:
        file = CopiedFile(below, start, target)
        for _ in range(chance.randrange(12)):
            at, size = chance.randrange(len(data)), chance.randrange(1, 200_000)
            if chance.random() < 0.5:
                assert file.read_at(at, size) == data[at : at + size]
            else:
                buffer = bytearray(size)
                count = file.read_into(at, buffer)
                assert buffer[:count] == data[at : at + size]
        assert file.finish(end) == digest_of(below, start, end)
    assert (tmp_path / "copy").read_bytes() == data[start:end]


def test_a_file_that_becomes_shorter_is_no_copy(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(300_000))
    with FS.open(path, "r") as below:
        file = CopiedFile(below, 0, None)
        file.read_at(0, 100_000)
        with path.open("r+b") as changed:
            changed.truncate(200_000)
        with pytest.raises(RefusedError, match="is shorter than it was"):
            file.finish(300_000)


def restored(place: Path, target: Path, identity: str) -> bytes:
    """The log that a snapshot has."""
    repository = Repository(machine_files(), place)
    restore_snapshots(repository, [repository.read(identity)], FS, target, lambda _size: None)
    return (target / "orders-0" / "00000000000000000000.log").read_bytes()


def test_a_new_log_and_what_a_log_grew_by_are_read_once(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "orders-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    request = BackupRequest([tmp_path / "logs"], tmp_path / "backup", uncommitted=True)
    for at, count in enumerate((200, 100)):
        new = b"".join(batch(200 * at + i, value=bytes(30_000)) for i in range(count))
        with log.open("ab") as file:
            file.write(new)
        counts: list[int] = []
        fs = GatedFileSystem(FS, ReadMeter(counts.append, lambda _what: None))
        outcome = backup(fs, machine_files(), ManualClock(START_MS + at * 1000), request)
        assert len(new) <= sum(counts) <= len(new) * 1.05
        assert restored(tmp_path / "backup", tmp_path / f"new{at}", outcome.snapshot.id) == log.read_bytes()
    assert not list((tmp_path / "backup").rglob("*.part"))


def test_what_lies_beyond_the_high_watermark_is_read_and_not_stored(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    log = logs / "orders-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    batches = [batch(i, value=bytes(400_000)) for i in range(8)]
    log.write_bytes(b"".join(batches))
    for at, mark in enumerate((2, 5, 7)):  # a piece of a pack, an object, and a piece again
        (logs / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {mark}\n")
        request = BackupRequest([logs], tmp_path / "backup")
        outcome = backup(FS, machine_files(), ManualClock(START_MS + at * 1000), request)
        stored = restored(tmp_path / "backup", tmp_path / f"new{at}", outcome.snapshot.id)
        assert len(stored) == mark * len(batches[0])
        assert stored == b"".join(batches[:mark])
    assert not list((tmp_path / "backup").rglob("*.part"))


def test_a_file_too_large_for_a_manifest_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"few")
    status = FS.status(path)
    assert status is not None
    with FS.open(path, "r") as file, pytest.raises(RefusedError, match=f"{path}: {FILE_BYTES_LIMIT + 1} bytes"):
        Sender(None, set()).extended(path.name, file, FILE_BYTES_LIMIT + 1, status, None, "orders-0/_")


def test_a_checkpoint_of_any_size_is_held_a_pack_at_a_time(tmp_path: Path) -> None:
    """A sparse file in the place of a checkpoint was read whole: 2 GiB took 4.2."""
    size = 2 * PACK_BYTES + 5
    log = tmp_path / "logs" / "orders-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(batch(0))
    with (tmp_path / "logs" / "cleaner-offset-checkpoint").open("wb") as file:
        file.write(b"0\n")
        file.truncate(size)
    request = BackupRequest([tmp_path / "logs"], tmp_path / "backup")
    snapshot = backup(FS, machine_files(), ManualClock(START_MS), request).snapshot
    (stored,) = [file for file in snapshot.directories[0].files if file.name == "cleaner-offset-checkpoint"]
    assert [extent.size for extent in stored.extents] == [PACK_BYTES, PACK_BYTES, 5]
    repository = Repository(machine_files(), tmp_path / "backup")
    restore_snapshots(repository, [repository.read(snapshot.id)], FS, tmp_path / "made", lambda _size: None)
    made = (tmp_path / "made" / "cleaner-offset-checkpoint").read_bytes()
    assert made == (tmp_path / "logs" / "cleaner-offset-checkpoint").read_bytes() and len(made) == size
