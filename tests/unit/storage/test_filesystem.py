"""What is only read refuses every change, of all that the protocols have, with EROFS; and changes nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.log.read_loader import ViewingFileSystem
from seglog.model import TopicPartition
from seglog.storage.filesystem import Access, File, FileSystem
from seglog.storage.frozen import FrozenFileSystem, Order
from seglog_stores.remote.read_only import ReadOnlyFileSystem
from seglog_stores.tiers.contents import MadeFile, OneFile, WholeObject
from seglog_stores.tiers.recognition import Layout, TierPlace
from seglog_stores.tiers.tiered_partition import TierOptions
from seglog_stores.tiers.view import TierFileSystem
from tests.support.log_files import FS, files_of

# Every method of the protocol stands in one of two tables, reading or changing.
LOOKING = {"status", "list", "entries", "read_bytes", "read_each", "free_bytes", "reads_at_once"}
CHANGES: dict[str, Callable[[FileSystem, Path], object]] = {
    "open r+": lambda fs, path: fs.open(path, "r+"),
    "open create": lambda fs, path: fs.open(path, "create"),
    "open create_new": lambda fs, path: fs.open(path, "create_new"),
    "rename": lambda fs, path: fs.rename(path, path.parents[1] / "away"),
    "rename onto": lambda fs, path: fs.rename(path.parents[1] / "other", path),
    "remove": lambda fs, path: fs.remove(path),
    "make_directory": lambda fs, path: fs.make_directory(path),
    "remove_directory": lambda fs, path: fs.remove_directory(path),
    "sync_directory": lambda fs, path: fs.sync_directory(path),
    "set_modified": lambda fs, path: fs.set_modified(path, 1),
    "copy_attributes": lambda fs, path: fs.copy_attributes(path.parents[1] / "other", path),
    "link": lambda fs, path: fs.link(path, path.parents[1] / "second"),
    "link onto": lambda fs, path: fs.link(path.parents[1] / "other", path),
}
LOOKING_INTO = {"size", "status", "read_at", "read_into", "lend", "next_data", "fileno", "close"} | {
    "sync",
    "advise_dropped",
    "advise_wanted",
    "start_writing",
}
FILE_CHANGES: dict[str, Callable[[File], object]] = {
    "write_at": lambda file: file.write_at(0, b"x"),
    "truncate": lambda file: file.truncate(0),
    "give": lambda file: file.give(Access(0, 0, 0o600)),
}


def frozen(path: Path) -> FileSystem:
    fs = FrozenFileSystem(FS, path.parent)
    assert fs.take(Order)
    return fs


def frozen_whole(path: Path) -> FileSystem:
    fs = FrozenFileSystem(FS, path.parent)
    assert fs.take(lambda names: Order(names, whole=frozenset(names)))
    return fs


def tier(path: Path) -> FileSystem:
    place = TierPlace(path.parent, next(iter(Layout)), TopicPartition("t", 0))
    status = FS.status(path)
    assert status is not None
    return TierFileSystem(FS, {path.parent: place}, set(), TierOptions(), made={path: MadeFile(b"stored", status)})


def one_file(path: Path) -> FileSystem:
    status = FS.status(path)
    assert status is not None
    return OneFile(FS, path, WholeObject(FS, path.parents[1] / "other", status))


VIEWS = {
    "frozen": frozen,
    "frozen whole": frozen_whole,
    "viewed": lambda path: ViewingFileSystem(FS, path.parents[1]),
    "tier": tier,
    "one file": one_file,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "file").write_bytes(b"as it was")
    return tmp_path / "t-0" / "file"


def refused(change: Callable[[], object]) -> None:
    with pytest.raises(OSError, match="seglog only reads here") as caught:
        change()
    assert caught.value.errno == errno.EROFS


def methods_of(protocol: type) -> set[str]:
    return {name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_")}


def test_every_method_of_the_protocols_is_known_to_look_or_to_change() -> None:
    assert methods_of(FileSystem) == LOOKING | {name.split()[0] for name in CHANGES}
    assert methods_of(File) == LOOKING_INTO | set(FILE_CHANGES)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_refuses_what_would_change_it(view: str, change: str, path: Path) -> None:
    before = files_of(path.parents[1])
    refused(lambda: CHANGES[change](VIEWS[view](path), path))
    assert files_of(path.parents[1]) == before


@pytest.mark.parametrize("change", FILE_CHANGES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_file_of_a_view_refuses_what_would_change_it(view: str, change: str, path: Path) -> None:
    before = files_of(path.parents[1])
    fs = VIEWS[view](path)  # which holds the file, perhaps
    with fs.open(path, "r") as file:
        refused(lambda: FILE_CHANGES[change](file))
    assert files_of(path.parents[1]) == before


@pytest.mark.parametrize("change", [name for name in CHANGES if not name.startswith("open")])
def test_a_read_only_file_system_refuses_every_change(change: str, path: Path) -> None:
    refused(lambda: CHANGES[change](ReadOnlyFileSystem(), path))  # type: ignore[arg-type]


@pytest.mark.parametrize("view", ["frozen", "tier", "one file"])
def test_beside_what_a_view_shows_files_can_be_changed(view: str, path: Path) -> None:
    fs, other = VIEWS[view](path), path.parents[1] / "other"
    with fs.open(other, "r+") as file:
        file.write_at(0, b"OTHER")
    fs.rename(other, other.with_name("renamed"))
    assert other.with_name("renamed").read_bytes() == b"OTHER"
