"""`retain --free` over several log directories of a killed broker whose disk has no room to recover any of them: those
that can give room come first, in the dry run as in the run."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seglog.configuration.keys import LogConfig
from seglog.errors import RefusedError
from seglog.log.directory import LogDirectory
from seglog.log.loader import plan_recovery
from seglog.operations.free_space import Offer, by_room
from seglog.operations.retain import Freed, FreeSpace, Retained, RetentionFailure, RetentionRules, retain_targets
from seglog.scan.listing import resolve_paths
from seglog.storage.filesystem import File, FileStatus, FileSystem, OpenMode, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from tests.crash.test_full_disk import BLOCK, FS, SEGMENTS, clock, crashed_broker
from tests.support.command_line import json_lines, run
from tests.support.compacted_directories import Topics
from tests.support.fates import filled
from tests.support.open_descriptors import needs_descriptors, open_below
from tests.support.other_users import needs_root
from tests.support.small_disk import SmallDisk

LAST = (SEGMENTS - 1) * 6  # base offset of the active segments
Outcome = Retained | RetentionFailure | Freed


class Disks(PassingFileSystem):
    """Small disks, each at its root."""

    def __init__(self, *disks: SmallDisk) -> None:
        super().__init__(LocalFileSystem())
        self._disks = disks

    def open(self, path: Path, mode: OpenMode) -> File:
        return self._disks[self._number(path)].open(path, mode)

    def free_bytes(self, path: Path) -> int:
        return self._disks[self._number(path)].free_bytes(path)

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        found = super().status(path, follow)
        return None if found is None else found._replace(device=self._number(path))

    def _number(self, path: Path) -> int:
        return next(number for number, disk in enumerate(self._disks) if path.is_relative_to(disk.root))


def killed(root: Path, *kinds: str) -> list[Path]:
    """The log directories of a killed broker, each named as its one partition: a `giver…` has closed segments, a
    `taker…` has only the active one."""
    root.mkdir(exist_ok=True)
    directories = [crashed_broker(root / kind, f"{kind}-0") for kind in kinds]
    for path in root.glob("taker*/*/*"):
        if path.stem.isdigit() and int(path.stem) < LAST:
            path.unlink()
    return directories


def freed_by(fs: FileSystem, directories: Sequence[Path], size: int, *, dry_run: bool = False) -> list[Outcome]:
    topics = Topics(cleanup_policy="delete")
    rules = RetentionRules(dry_run, free=FreeSpace(size), delay_ms=0)
    return list(retain_targets(fs, resolve_paths(FS, directories), lambda _: topics, clock(), rules))


def deletions(outcomes: Sequence[Outcome]) -> list[tuple[Path, int]]:
    """How many segments go in each log directory, in the order of the work."""
    return [(one.log_directory, len(one.plan.removed)) for one in outcomes if isinstance(one, Retained)]


KINDS = (("taker", "giver"), ("giver", "taker"), ("taker", "taker2", "giver"), ("taker", "giver", "giver2"))


@pytest.mark.parametrize("free", [0, BLOCK])
@pytest.mark.parametrize("kinds", KINDS, ids=" ".join)
def test_directories_that_can_give_room_come_first_in_the_dry_run_as_in_the_run(
    tmp_path: Path, kinds: tuple[str, ...], free: int
) -> None:
    directories = killed(tmp_path / "disk", *kinds)
    disk, size = SmallDisk(tmp_path / "disk", free), 5 * BLOCK
    planned, done = (freed_by(disk, directories, size, dry_run=dry_run) for dry_run in (True, False))
    assert not [one for one in (*planned, *done) if isinstance(one, RetentionFailure)]
    assert deletions(planned) == deletions(done)
    assert deletions(done)[0][0].name == "giver"
    assert all(one.reached for one in (*planned, *done) if isinstance(one, Freed))
    assert disk.free_bytes(directories[0]) >= size and disk.least_free >= 0
    assert all((directory / ".kafka_cleanshutdown").exists() for directory in directories), "all logs were recovered"


def test_room_for_recoveries_still_to_come_is_freed_too(tmp_path: Path) -> None:
    directories = killed(tmp_path / "disk", "taker", "taker2", "giver")
    disk = SmallDisk(tmp_path / "disk", 0)
    done = freed_by(disk, directories, BLOCK)
    assert not [one for one in done if isinstance(one, RetentionFailure)]
    assert disk.free_bytes(directories[0]) >= BLOCK


def test_each_disk_has_its_own_goal_and_order(tmp_path: Path) -> None:
    full, roomy = tmp_path / "full", tmp_path / "roomy"
    taker, giver = killed(full, "taker", "giver")
    (other,) = killed(roomy, "giver")
    disks = SmallDisk(full, 0), SmallDisk(roomy, 1 << 30)
    for dry_run in (True, False):
        done = freed_by(Disks(*disks), [taker, other, giver], 5 * BLOCK, dry_run=dry_run)
        assert not [one for one in done if isinstance(one, RetentionFailure)]
        assert [path for path, _ in deletions(done)] == [giver, other, taker]
        assert dict(deletions(done))[other] == 0 and dict(deletions(done))[giver] > 0


def test_it_is_refused_only_if_no_directory_can_give_room(tmp_path: Path) -> None:
    directories = killed(tmp_path / "disk", "taker", "taker2")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}
    done = freed_by(SmallDisk(tmp_path / "disk", 0), directories, 5 * BLOCK)
    failures = [one for one in done if isinstance(one, RetentionFailure)]
    assert [one.directory.parent for one in failures] == directories
    assert all(isinstance(one.error, RefusedError) and "0 are free" in str(one.error) for one in failures)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}
    assert after == before


class ClosedToTheUser(SmallDisk):
    """A disk on which the files of takers may not be opened."""

    def open(self, path: Path, mode: OpenMode) -> File:
        if path.parent.name.startswith("taker"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return super().open(path, mode)


def test_a_directory_that_cannot_be_read_gives_nothing_and_stops_nobody(tmp_path: Path) -> None:
    taker, giver = killed(tmp_path / "disk", "taker", "giver")
    done = freed_by(ClosedToTheUser(tmp_path / "disk", 0), [taker, giver], 5 * BLOCK)
    assert [one.directory.parent for one in done if isinstance(one, RetentionFailure)] == [taker]
    assert dict(deletions(done))[giver] > 0


def test_with_room_for_all_the_order_is_that_of_the_command(tmp_path: Path) -> None:
    directories = killed(tmp_path / "disk", "taker", "giver")
    done = freed_by(SmallDisk(tmp_path / "disk", 1 << 30), directories, 1 << 10)
    assert [path for path, _ in deletions(done)] == directories


@pytest.mark.parametrize(
    ("offers", "free", "order"),
    [
        ([Offer(0, 5, 5), Offer(9, 4, 4)], 0, [1, 0]),
        ([Offer(1, 5, 5), Offer(9, 4, 4)], 0, [1, 0]),  # gives something, and too little for itself
        ([Offer(1, 5, 5), Offer(9, 4, 4)], 4, [0, 1]),
        ([Offer(0, 0, 0), Offer(9, 4, 4)], 0, [0, 1]),  # was closed properly
        ([Offer(0, 2, 2), Offer(3, 9, 1), Offer(4, 9, 1)], 0, [2, 0, 1]),
        ([Offer(0, 5, 5), Offer(0, 5, 5)], 0, [0, 1]),
    ],
)
def test_the_next_directory_is_the_first_with_enough_room(offers: list[Offer], free: int, order: list[int]) -> None:
    assert by_room(range(len(offers)), offers, free) == order


def test_json_rows_of_two_directories_have_the_same_order_in_the_dry_run_as_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker, giver = killed(tmp_path / "disk", "taker", "giver")
    monkeypatch.setattr("seglog_cli.session.Session.fs", SmallDisk(tmp_path / "disk", 0))
    arguments = ("retain", "--json", "--free", str(5 * BLOCK), "--set", "cleanup.policy=delete", taker, giver)
    planned, done = run(*arguments, "--dry-run"), run(*arguments)
    assert (planned.exit_code, done.exit_code) == (0, 0), done.stderr
    rows = [json_lines(result) for result in (planned, done)]
    assert [[row["type"] for row in each] for each in rows] == [["retention", "freed"] * 2] * 2
    assert rows[0][0]["deleted_segments"] == rows[1][0]["deleted_segments"] != []
    assert [row["log_directory"] for row in rows[1] if row["type"] == "freed"] == [str(giver), str(taker)]


# --- removed files take room while they are open


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={8 << 20}", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@needs_root
def test_a_real_full_disk_has_the_room_of_removed_segments_in_the_same_run(small_disk: Path) -> None:
    directories = killed(small_disk, "taker", "giver")
    filled(small_disk, 0)
    done = freed_by(FS, directories, 5 * BLOCK)
    assert not [one for one in done if isinstance(one, RetentionFailure)]
    assert all(one.reached for one in done if isinstance(one, Freed))


@needs_descriptors
def test_a_tried_log_holds_no_file_open_afterwards(tmp_path: Path) -> None:
    (path,) = killed(tmp_path / "disk", "giver")
    config = LogConfig(cleanup_policy=frozenset({"delete"}))
    with LogDirectory.open(path, fs=FS, clock=clock(), config_of=lambda _: config, writable=True) as directory:
        with directory.try_log(path / "giver-0") as tried:
            assert tried.recovery.room is not None and tried.recovery.room.written
        plan_recovery(FS, path / "giver-0", clock(), replace(directory.load_options(path / "giver-0"), writable=True))
        assert open_below(path / "giver-0") == []
