"""What is made beside its place: whole under its name or not there, and what killed attempts left goes."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seglog.errors import LockedError, RefusedError
from seglog.format.filenames import UNFINISHED_PREFIX, UNFINISHED_SUFFIX
from seglog.repairs.undo.beside import (
    NewFile,
    access_for,
    is_log_directory,
    log_directory_lock,
    new_directory,
    remove_unfinished,
    require_free,
)
from seglog.storage.filesystem import File, FileSystem, OpenMode, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from seglog.storage.lock import DirectoryLock
from tests.support.log_files import batch, write_segment

FS = LocalFileSystem()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@contextmanager
def held(path: Path) -> Iterator[None]:
    """The lock of somebody who is at work on it."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def attempt_in(parent: Path, name: str = "0a1b2c3d") -> Path:
    """What an attempt left that was killed."""
    staging = parent / f"{UNFINISHED_PREFIX}{name}{UNFINISHED_SUFFIX}"
    (staging / "t-0").mkdir(parents=True)
    (staging / "t-0" / "half").write_bytes(b"x")
    (staging / ".in-use").touch()
    return staging


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    """A log directory with a partition, which others than its owner may look into."""
    directory = tmp_path / "logs"
    write_segment(directory / "t-0", 0, batch(0, 3))
    directory.chmod(0o755)
    return directory


# --- directories


def test_a_directory_gets_its_name_when_it_is_filled(tmp_path: Path) -> None:
    target = tmp_path / "not yet" / "t-0"
    with new_directory(FS, target) as place:
        assert not target.exists() and place.name == "t-0"
        assert mode_of(place.parent) == 0o700
        (place / "file").write_bytes(b"data")
    assert (target / "file").read_bytes() == b"data" and names_in(target.parent) == ["t-0"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("there", [True, False])
def test_what_fails_was_never_there_and_an_empty_directory_stays(
    tmp_path: Path, there: bool, error: type[BaseException]
) -> None:
    target = tmp_path / "t-0"
    if there:
        target.mkdir()
    with pytest.raises(error), new_directory(FS, target) as place:
        (place / "file").touch()
        raise error
    assert names_in(tmp_path) == ["t-0"] * there
    assert not there or names_in(target) == []


def test_an_empty_directory_lends_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "t-0"
    target.mkdir(mode=0o751)
    target.chmod(0o751)
    with new_directory(FS, target) as place:
        (place / "file").touch()
    assert mode_of(target) == 0o751 and names_in(target) == ["file"]


def test_a_directory_in_a_log_directory_gets_what_the_broker_has(log_directory: Path) -> None:
    log_directory.chmod(0o2775)
    target = log_directory / "t-1"
    with new_directory(FS, target):
        pass
    assert mode_of(target) == 0o2775


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_is_there_is_not_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "t-0"
    if kind == "file":
        target.write_bytes(b"mine")
    else:
        target.mkdir()
        (target / "mine").touch()
    with pytest.raises(RefusedError, match="is there already and not empty"), new_directory(FS, target):
        pytest.fail("nothing may be filled in")
    assert names_in(tmp_path) == ["t-0"] and target.exists()


@pytest.mark.parametrize("below", ["u-0", "new/u-0"])
def test_nothing_is_made_in_a_partition(log_directory: Path, below: str) -> None:
    before = names_in(log_directory / "t-0")
    with (
        pytest.raises(RefusedError, match=r"lies in the partition .*t-0: choose a place outside it"),
        new_directory(FS, log_directory / "t-0" / below),
    ):
        pytest.fail("nothing may be filled in")
    assert names_in(log_directory / "t-0") == before


def test_a_directory_that_is_only_named_like_a_partition_may_hold_one(tmp_path: Path) -> None:
    with new_directory(FS, tmp_path / "kafka-0" / "t-0") as place:
        (place / "file").touch()
    assert names_in(tmp_path / "kafka-0") == ["t-0"]


# --- what killed attempts left


def test_what_was_left_goes_before_something_new_is_made(tmp_path: Path) -> None:
    attempt_in(tmp_path)
    with new_directory(FS, tmp_path / "t-0") as place:
        assert names_in(tmp_path) == [place.parent.name]
    attempt_in(tmp_path)
    require_free(FS, tmp_path / "t-1")
    assert names_in(tmp_path) == ["t-0"]


def test_what_somebody_is_at_work_on_stays(tmp_path: Path) -> None:
    left, used = attempt_in(tmp_path), attempt_in(tmp_path, "99999999")
    with held(used / ".in-use"):
        remove_unfinished(FS, tmp_path)
        assert not left.exists() and (used / "t-0" / "half").exists()
    remove_unfinished(FS, tmp_path)
    assert names_in(tmp_path) == []


def test_two_that_make_things_in_one_directory_know_of_each_other(tmp_path: Path) -> None:
    with new_directory(FS, tmp_path / "t-0") as place:
        (place / "file").touch()
        with new_directory(FS, tmp_path / "t-1"):
            assert names_in(place) == ["file"]
    assert names_in(tmp_path) == ["t-0", "t-1"]


def test_what_was_killed_before_it_was_locked_goes_too(tmp_path: Path) -> None:
    (attempt_in(tmp_path) / ".in-use").unlink()
    remove_unfinished(FS, tmp_path)
    assert names_in(tmp_path) == []


def test_what_only_has_a_like_name_stays(tmp_path: Path) -> None:
    (tmp_path / f"{UNFINISHED_PREFIX}0a1b2c3d").mkdir()
    (tmp_path / f"x{UNFINISHED_SUFFIX}").mkdir()
    precious = tmp_path / "precious"
    precious.mkdir()
    (tmp_path / f"{UNFINISHED_PREFIX}1{UNFINISHED_SUFFIX}").symlink_to(precious)
    os.mkfifo(tmp_path / f"{UNFINISHED_PREFIX}2{UNFINISHED_SUFFIX}")
    before = names_in(tmp_path)
    remove_unfinished(FS, tmp_path)
    assert names_in(tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_another_user_left_stays(tmp_path: Path) -> None:
    left = attempt_in(tmp_path)
    os.chown(left, 12345, 12345)
    remove_unfinished(FS, tmp_path)
    assert (left / "t-0" / "half").exists()


def test_where_there_is_no_parent_nothing_was_left(tmp_path: Path) -> None:
    remove_unfinished(FS, tmp_path / "nowhere")
    assert names_in(tmp_path) == []


class Rivals(PassingFileSystem):
    """Somebody takes what is made for a left-over `times` times, before or after its lock is made."""

    def __init__(self, below: FileSystem, times: int, *, before: bool) -> None:
        super().__init__(below)
        self.times, self.before = times, before

    def open(self, path: Path, mode: OpenMode) -> File:
        meets = path.name == ".in-use" and mode == "create_new" and self.times > 0
        self.times -= meets
        if meets and self.before:
            path.parent.rmdir()
        file = super().open(path, mode)
        if meets:
            path.unlink()
            path.parent.rmdir()
        return file


@pytest.mark.parametrize("before", [True, False], ids=["before its lock", "before it is locked"])
def test_what_somebody_took_for_left_over_is_made_again(tmp_path: Path, before: bool) -> None:
    with new_directory(Rivals(FS, 7, before=before), tmp_path / "t-0") as place:
        (place / "file").touch()
    assert names_in(tmp_path / "t-0") == ["file"]
    with (
        pytest.raises(FileNotFoundError, match="keeps removing"),
        new_directory(Rivals(FS, 8, before=before), tmp_path / "t-1"),
    ):
        pytest.fail("nothing can be made")
    assert names_in(tmp_path) == ["t-0"]


# --- files


def test_a_file_gets_its_name_when_it_is_kept(tmp_path: Path) -> None:
    new = NewFile(FS, tmp_path / "out.csv")
    assert names_in(tmp_path) == [new.path.name] and mode_of(new.path) == 0o600
    new.file.write_at(0, b"data")
    new.keep()
    new.discard()  # after it was kept: nothing
    assert (tmp_path / "out.csv").read_bytes() == b"data" and names_in(tmp_path) == ["out.csv"]


def test_a_file_that_is_discarded_never_was(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_bytes(b"old")
    new = NewFile(FS, target, replace=True)
    new.file.write_at(0, b"new")
    new.discard()
    assert names_in(tmp_path) == ["out.csv"] and target.read_bytes() == b"old"


def test_a_file_that_is_replaced_lends_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_bytes(b"old")
    target.chmod(0o640)
    new = NewFile(FS, target, replace=True)
    new.file.write_at(0, b"new")
    new.keep()
    assert (target.read_bytes(), mode_of(target)) == (b"new", 0o640)


def test_a_file_that_is_there_is_replaced_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_bytes(b"old")
    with pytest.raises(RefusedError, match="exists already"):
        NewFile(FS, tmp_path / "out.csv")
    assert names_in(tmp_path) == ["out.csv"]


@pytest.mark.parametrize("replace", [True, False])
def test_what_is_no_file_is_never_replaced(tmp_path: Path, replace: bool) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RefusedError, match="is a directory"):
        NewFile(FS, tmp_path / "directory", replace=replace)
    with pytest.raises(RefusedError, match="not a regular file"):
        NewFile(FS, tmp_path / "pipe", replace=replace)
    assert names_in(tmp_path) == ["directory", "pipe"]


def test_parts_that_killed_attempts_left_go_and_those_at_work_stay(tmp_path: Path) -> None:
    left, used = tmp_path / ".out.csv.seglog-11111111.part", tmp_path / ".out.csv.seglog-22222222.part"
    other = tmp_path / ".other.csv.seglog-33333333.part"
    for path in (left, used, other):
        path.touch()
    with held(used):
        NewFile(FS, tmp_path / "out.csv").discard()
    assert names_in(tmp_path) == sorted([used.name, other.name])


def test_two_that_write_one_file_know_of_each_other(tmp_path: Path) -> None:
    first = NewFile(FS, tmp_path / "out.csv")
    NewFile(FS, tmp_path / "out.csv").discard()
    assert first.path.exists()
    first.keep()
    assert names_in(tmp_path) == ["out.csv"]


def test_a_name_of_any_length_can_be_made(tmp_path: Path) -> None:
    name = "n" * 255
    NewFile(FS, tmp_path / name).keep()
    assert names_in(tmp_path) == [name]


# --- log directories


def test_a_log_directory_is_known_by_partitions_and_checkpoints(log_directory: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert is_log_directory(FS, log_directory)
    assert not is_log_directory(FS, empty)
    assert not is_log_directory(FS, tmp_path / "nowhere")
    assert not is_log_directory(FS, log_directory / "t-0")


def test_outside_log_directories_the_umask_counts(tmp_path: Path, log_directory: Path) -> None:
    assert access_for(FS, tmp_path / "t-1") is None
    access = access_for(FS, log_directory / "t-1")
    assert access is not None and access.mode == 0o755


def test_the_lock_is_the_brokers_where_there_is_one(tmp_path: Path, log_directory: Path) -> None:
    with DirectoryLock(log_directory):
        with log_directory_lock(FS, tmp_path / "t-1"):
            assert not (tmp_path / ".lock").exists()
        with pytest.raises(LockedError), log_directory_lock(FS, log_directory / "t-1"):
            pytest.fail("somebody else has the lock")
