"""A trial: changes stay in memory until it is kept; from then on everything is real."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.storage.filesystem import FileSystem, OpenMode, write_atomically
from seglog.storage.local import LocalFile, LocalFileSystem
from seglog.storage.overlay import TrialFileSystem


def rewrite(fs: FileSystem, root: Path) -> None:
    with fs.open(root / "a", "create") as file:
        file.write_at(0, b"anew")


def lengthen(fs: FileSystem, root: Path) -> None:
    with fs.open(root / "a", "r+") as file:
        file.truncate(4)
        file.write_at(4, b"and more, and more")


def create(fs: FileSystem, root: Path) -> None:
    with fs.open(root / "b", "create_new") as file:
        file.write_at(0, b"new")


def rename_over(fs: FileSystem, root: Path) -> None:
    create(fs, root)
    fs.rename(root / "b", root / "a")


CHANGES: dict[str, Callable[[FileSystem, Path], object]] = {
    "open to write": lambda fs, root: fs.open(root / "a", "r+").close(),
    "rewrite": rewrite,
    "lengthen": lengthen,
    "create": create,
    "rename over": rename_over,
    "replace": lambda fs, root: write_atomically(fs, root / "a", b"replaced"),
    "remove": lambda fs, root: fs.remove(root / "a"),
    "rename": lambda fs, root: fs.rename(root / "a", root / "b"),
}
DIRECTORIES: dict[str, Callable[[FileSystem, Path], object]] = {
    "make": lambda fs, root: fs.make_directory(root / "d"),
    "remove": lambda fs, root: fs.remove_directory(root / "empty"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(b"as it was")
    (tmp_path / "empty").mkdir()
    return tmp_path


def state(root: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in root.iterdir()}


@pytest.mark.parametrize("name", CHANGES)
def test_a_trial_that_is_kept_leaves_what_the_change_leaves(name: str, root: Path, tmp_path_factory) -> None:
    before, trial = state(root), TrialFileSystem(LocalFileSystem())
    CHANGES[name](trial, root)
    assert state(root) == before
    assert bool(trial.written) == (name not in ("open to write", "remove"))
    trial.keep()
    real = tmp_path_factory.mktemp("real")
    shutil.copytree(root, real, dirs_exist_ok=True)
    for path in (real / "a", real / "b"):
        path.unlink(missing_ok=True)
    (real / "a").write_bytes(before["a"] or b"")
    CHANGES[name](LocalFileSystem(), real)
    assert state(root) == state(real)
    assert sorted(path.name for path in root.iterdir()) == trial.list(root)  # what follows is real


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_trial_that_changed_directories_cannot_be_kept(name: str, root: Path) -> None:
    before, trial = state(root), TrialFileSystem(LocalFileSystem())
    DIRECTORIES[name](trial, root)
    with pytest.raises(ValueError, match="cannot be kept"):
        trial.keep()
    assert state(root) == before


def test_a_file_that_may_not_be_written_is_an_error_before_any_change(root: Path) -> None:
    class ReadOnly(LocalFileSystem):
        def open(self, path: Path, mode: OpenMode) -> LocalFile:
            if path.name == "b" and mode != "r":
                raise PermissionError(path)
            return super().open(path, mode)

    (root / "b").write_bytes(b"")
    before, trial = state(root), TrialFileSystem(ReadOnly())
    rewrite(trial, root)
    trial.open(root / "b", "r+").close()
    with pytest.raises(PermissionError):
        trial.keep()
    assert state(root) == before


def test_a_trial_that_changed_nothing_goes_on_for_real(root: Path) -> None:
    trial = TrialFileSystem(LocalFileSystem())
    with trial.open(root / "a", "r") as file:
        assert trial.entries(root)[0][0] == "a" and trial.status(root / "a") is not None
        trial.sync_directory(root)
        assert not trial.written
        trial.keep()
        assert file.read_at(0, 2) == b"as"
    with trial.open(root / "a", "r+") as file:
        file.write_at(0, b"AS")
    trial.rename(root / "a", root / "b")
    assert state(root) == {"b": b"AS it was", "empty": None}
