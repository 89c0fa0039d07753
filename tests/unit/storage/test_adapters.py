"""Every change below is told before it happens, looking is not, and neither is what goes into `.cleaned` files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.storage.adapters import NoticingFileSystem
from seglog.storage.local import LocalFileSystem

Step = Callable[[NoticingFileSystem, Path], object]


def written(fs: NoticingFileSystem, path: Path) -> None:
    with fs.open(path, "r+") as file:
        file.write_at(0, b"new")


def truncated(fs: NoticingFileSystem, path: Path) -> None:
    with fs.open(path, "r+") as file:
        file.truncate(0)


CHANGES: dict[str, Step] = {
    "write": written,
    "truncate": truncated,
    "create": lambda fs, path: fs.open(path, "create").close(),
    "remove": lambda fs, path: fs.remove(path),
    "set_modified": lambda fs, path: fs.set_modified(path, 5_000),
    "copy_attributes": lambda fs, path: fs.copy_attributes(path.with_name("other"), path),
}


def looked(fs: NoticingFileSystem, path: Path) -> None:
    with fs.open(path, "r+") as file:
        file.read_at(0, 3)
        file.sync()
    fs.read_bytes(path)
    fs.status(path)
    fs.list(path.parent)
    fs.sync_directory(path.parent)
    fs.free_bytes(path)


def told(folder: Path, name: str, step: Step) -> list[tuple[Path, bytes | None]]:
    """(path, what the file held then) of everything that was told of."""
    found: list[tuple[Path, bytes | None]] = []
    for each in (name, "other"):
        (folder / each).write_bytes(b"old")

    def before_change(path: Path) -> None:
        found.append((path, path.read_bytes() if path.exists() else None))

    step(NoticingFileSystem(LocalFileSystem(), before_change), folder / name)
    return found


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_announced_before_it_happens(tmp_path: Path, name: str) -> None:
    assert told(tmp_path, "00.log", CHANGES[name]) == [(tmp_path / "00.log", b"old")]


def test_both_names_of_a_rename_are_announced_before_it(tmp_path: Path) -> None:
    found = told(tmp_path, "00.log", lambda fs, path: fs.rename(path.with_name("other"), path))
    assert found == [(tmp_path / "other", b"old"), (tmp_path / "00.log", b"old")]


def test_of_a_cleaners_output_only_the_new_name_is_announced(tmp_path: Path) -> None:
    found = told(tmp_path, "00.log.cleaned", lambda fs, path: fs.rename(path, path.with_name("00.log.swap")))
    assert found == [(tmp_path / "00.log.swap", None)]


@pytest.mark.parametrize("name", CHANGES)
def test_unfinished_output_of_a_cleaner_is_no_change(tmp_path: Path, name: str) -> None:
    assert told(tmp_path, "00.log.cleaned", CHANGES[name]) == []


def test_looking_is_no_change(tmp_path: Path) -> None:
    assert told(tmp_path, "00.log", looked) == []


def test_directories_and_links_are_changes(tmp_path: Path) -> None:
    assert told(tmp_path, "00.log", lambda fs, path: fs.make_directory(path.with_name("d"))) == [(tmp_path / "d", None)]
    (tmp_path / "e").mkdir()
    with pytest.raises(IsADirectoryError):
        told(tmp_path, "00.log", lambda fs, path: fs.remove_directory(path.with_name("e")))
    assert told(tmp_path, "00.log", lambda fs, path: fs.link(path, path.with_name("l"))) == [(tmp_path / "l", None)]
