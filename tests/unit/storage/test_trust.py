"""Whom new files belong to in a log directory, and whose files are obeyed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.storage.adapters import InheritingFileSystem
from seglog.storage.filesystem import PRIVATE, Access, OpenMode, write_atomically
from seglog.storage.local import LocalFile, LocalFileSystem
from seglog.storage.lock import DirectoryLock
from seglog.storage.overlay import OverlayFileSystem
from seglog.storage.trust import described_user, read_trusted, reason_for_doubt, require_trust
from tests.support.other_users import ANOTHER, OTHER, needs_root, planted_link

FS = LocalFileSystem()
INHERITING = InheritingFileSystem(FS)


def access_of(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A directory of another user."""
    directory = tmp_path / "theirs"
    directory.mkdir()
    directory.chmod(0o750)
    os.chown(directory, OTHER, ANOTHER)
    return directory


@needs_root
def test_what_is_made_in_a_log_directory_has_the_owner_group_and_mode_of_the_directory(theirs: Path) -> None:
    INHERITING.open(theirs / "new.log", "create_new").close()
    INHERITING.make_directory(theirs / "topic-0")
    INHERITING.open(theirs / "topic-0" / "file", "create").close()
    write_atomically(INHERITING, theirs / "checkpoint", b"0")
    with DirectoryLock(theirs):
        pass
    for name in ("new.log", "topic-0/file", "checkpoint", ".lock"):
        assert access_of(theirs / name) == (OTHER, ANOTHER, 0o640), name
    assert access_of(theirs / "topic-0") == (OTHER, ANOTHER, 0o750)


@needs_root
def test_a_group_that_shares_a_directory_shares_what_is_made_there(theirs: Path) -> None:
    theirs.chmod(0o2770)
    INHERITING.open(theirs / "file", "create_new").close()
    INHERITING.make_directory(theirs / "topic-0")
    assert access_of(theirs / "file") == (OTHER, ANOTHER, 0o660)
    assert access_of(theirs / "topic-0") == (OTHER, ANOTHER, 0o2770)


def test_what_is_made_where_everybody_may_write_is_written_by_nobody_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    INHERITING.open(tmp_path / "file", "create_new").close()
    INHERITING.make_directory(tmp_path / "topic-0")
    assert access_of(tmp_path / "file")[2] == 0o664
    assert access_of(tmp_path / "topic-0")[2] == 0o775


@needs_root
def test_a_file_that_is_replaced_keeps_its_owner_and_mode_but_no_bits_of_programs(theirs: Path) -> None:
    path = theirs / "checkpoint"
    path.write_bytes(b"old")
    os.chown(path, ANOTHER, OTHER)
    path.chmod(0o6604)
    write_atomically(INHERITING, path, b"new")
    assert access_of(path) == (ANOTHER, OTHER, 0o604)
    write_atomically(INHERITING, path, b"own", PRIVATE)
    assert access_of(path)[2] == 0o600


@needs_root
def test_a_link_in_the_place_of_a_file_lends_nothing_to_what_replaces_it(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    planted_link(theirs / "checkpoint", tmp_path / "precious")
    planted_link(theirs / "checkpoint.tmp", tmp_path / "precious")
    write_atomically(INHERITING, theirs / "checkpoint", b"new")
    assert (theirs / "checkpoint").read_bytes() == b"new"
    assert access_of(theirs / "checkpoint") == (OTHER, ANOTHER, 0o640)
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert access_of(tmp_path / "precious")[0] == 0
    assert not (theirs / "checkpoint.tmp").exists()


@needs_root
def test_attributes_are_not_given_through_a_second_name(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    os.link(tmp_path / "precious", theirs / "staged")
    (theirs / "log").write_bytes(b"")
    os.chown(theirs / "log", OTHER, OTHER)
    with pytest.raises(OSError, match="Not a regular file"):
        FS.copy_attributes(theirs / "log", theirs / "staged")
    assert access_of(tmp_path / "precious")[0] == 0


def test_private_directories_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        FS.make_directory(tmp_path / "a" / "b", parents=True, access=PRIVATE)
    finally:
        os.umask(before)
    assert [access_of(tmp_path / name)[2] for name in ("a", "a/b")] == [0o700, 0o700]


def test_a_dry_run_knows_whom_its_files_would_belong_to(tmp_path: Path) -> None:
    overlay = OverlayFileSystem(FS)
    with overlay.open(tmp_path / "file", "create_new") as file:
        file.give(Access(12, 13, 0o750))
    status = overlay.status(tmp_path / "file")
    assert status is not None
    assert (status.owner, status.group, status.mode) == (12, 13, 0o640)
    overlay.make_directory(tmp_path / "made", access=PRIVATE)
    made = overlay.status(tmp_path / "made")
    assert made is not None
    assert (made.mode, made.is_directory) == (0o700, True)


@needs_root
def test_only_files_that_nobody_else_can_have_written_are_believed(tmp_path: Path) -> None:
    def doubt(name: str) -> str:
        status = FS.status(tmp_path / name, follow=False)
        assert status is not None
        if reason_for_doubt(status):
            with pytest.raises(RefusedError, match=reason_for_doubt(status).split("(")[0]):
                require_trust(tmp_path / name, status)
        else:
            require_trust(tmp_path / name, status)
        return reason_for_doubt(status)

    for name in ("ours", "theirs", "open to all", "of the group", "twice"):
        (tmp_path / name).write_bytes(b"")
    os.chown(tmp_path / "theirs", OTHER, OTHER)
    (tmp_path / "open to all").chmod(0o646)
    (tmp_path / "of the group").chmod(0o664)
    os.link(tmp_path / "twice", tmp_path / "again")
    (tmp_path / "link").symlink_to("ours")
    (tmp_path / "directory").mkdir()
    names = ("ours", "theirs", "open to all", "of the group", "twice", "link", "directory")
    assert [doubt(name) for name in names] == [
        "",
        "belongs to nobody (uid 65534)",
        "may be written by other users",
        "may be written by other users",
        "has another name (a hard link)",
        "is a symbolic link",
        "",
    ]


def test_users_are_named_with_their_number() -> None:
    assert described_user(0) == "root (uid 0)"
    assert described_user(54321) == "the user with uid 54321"


class Swapping(LocalFileSystem):
    """Somebody who owns the directory puts `other` in the place of what is opened, just before it is."""

    def __init__(self, other: Path) -> None:
        self._other = other

    def open(self, path: Path, mode: OpenMode) -> LocalFile:
        if self._other.is_symlink() or self._other.exists():
            self._other.rename(path)
        return super().open(path, mode)


@needs_root
@pytest.mark.parametrize("kind", ["of somebody else", "open to all", "another of ours", "a link of ours"])
def test_a_file_that_is_swapped_between_the_look_and_the_reading_is_not_read(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "journal", tmp_path / "other"
    path.write_bytes(b"ours")
    if kind == "a link of ours":
        (tmp_path / "elsewhere").write_bytes(b"ours, too")
        other.symlink_to(tmp_path / "elsewhere")
    else:
        other.write_bytes(b"theirs")
    if kind == "of somebody else":
        os.chown(other, OTHER, OTHER)
    elif kind == "open to all":
        other.chmod(0o666)
    with pytest.raises(RefusedError, match=r"belongs to nobody|may be written|was replaced"):
        read_trusted(Swapping(other), path)


@needs_root
def test_files_of_others_and_links_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"theirs")
    os.chown(tmp_path / "theirs", OTHER, OTHER)
    planted_link(tmp_path / "link", tmp_path / "theirs")
    for name in ("theirs", "link"):
        with pytest.raises(RefusedError, match=rf"{tmp_path / name} "):
            read_trusted(FS, tmp_path / name)


def test_a_file_of_ours_is_read_up_to_its_limit_and_none_is_none(tmp_path: Path) -> None:
    path = tmp_path / "ours"
    assert read_trusted(FS, path) is None
    path.write_bytes(b"12345")
    path.chmod(0o644)
    assert read_trusted(FS, path, limit=5) == b"12345"
    with pytest.raises(RefusedError, match="5 bytes, more than the 4 bytes"):
        read_trusted(FS, path, limit=4)


def test_a_file_that_is_changed_in_a_dry_run_is_read_as_it_would_be(tmp_path: Path) -> None:
    overlay = OverlayFileSystem(FS)
    with overlay.open(tmp_path / "new", "create") as file:
        file.write_at(0, b"new")
        assert file.status().size == 3
    assert read_trusted(overlay, tmp_path / "new") == b"new"
