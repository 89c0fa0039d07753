"""A trial: changes stay in memory, and where there were none what was tried goes on for real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog.storage.overlay import TrialFileSystem

CHANGES: dict[str, Callable[[FileSystem, Path], object]] = {
    "open to write": lambda fs, root: fs.open(root / "a", "r+"),
    "create": lambda fs, root: fs.open(root / "b", "create_new"),
    "remove": lambda fs, root: fs.remove(root / "a"),
    "rename": lambda fs, root: fs.rename(root / "a", root / "b"),
    "link": lambda fs, root: fs.link(root / "a", root / "b"),
    "make a directory": lambda fs, root: fs.make_directory(root / "d"),
    "remove a directory": lambda fs, root: fs.remove_directory(root / "empty"),
    "set the time": lambda fs, root: fs.set_modified(root / "a", 1),
    "copy attributes": lambda fs, root: fs.copy_attributes(root / "empty", root / "a"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(b"as it was")
    (tmp_path / "empty").mkdir()
    return tmp_path


def state(root: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in root.iterdir()}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_anything_is_noticed_and_cannot_be_kept(name: str, root: Path) -> None:
    before, trial = state(root), TrialFileSystem(LocalFileSystem())
    CHANGES[name](trial, root)
    assert not trial.unchanged
    with pytest.raises(ValueError, match="cannot be kept"):
        trial.keep()
    assert state(root) == before


def test_a_trial_that_changed_nothing_goes_on_for_real(root: Path) -> None:
    trial = TrialFileSystem(LocalFileSystem())
    with trial.open(root / "a", "r") as file:
        assert trial.entries(root)[0][0] == "a" and trial.status(root / "a") is not None
        trial.sync_directory(root)
        assert trial.unchanged
        trial.keep()
        assert file.read_at(0, 2) == b"as"
    with trial.open(root / "a", "r+") as file:
        file.write_at(0, b"AS")
    trial.rename(root / "a", root / "b")
    assert state(root) == {"b": b"AS it was", "empty": None}
