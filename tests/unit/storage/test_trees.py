"""A directory goes with all that is in it: nothing that a link leads to, and the file that is named at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.storage.filesystem import LocalFileSystem
from seglog.storage.trees import remove_tree
from tests.support.faulty_filesystem import Faults, FaultyFileSystem

FS = LocalFileSystem()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files of 3, 5 and 7 bytes in directories below each other, and an empty directory."""
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "empty").mkdir()
    for path, size in ((top / "x", 3), (top / "a" / "y", 5), (top / "a" / "b" / "z", 7)):
        path.write_bytes(b"." * size)
    return top


def test_all_that_is_in_it_goes_and_its_bytes_are_counted(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "beside").touch()
    assert remove_tree(FS, tree) == 3 + 5 + 7
    assert [path.name for path in tmp_path.iterdir()] == ["beside"]


def test_what_links_lead_to_stays(tree: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "precious").write_bytes(b"data")
    (tree / "a" / "to directory").symlink_to(kept)
    (tree / "to file").symlink_to(kept / "precious")
    (tree / "to nothing").symlink_to(tmp_path / "nowhere")
    remove_tree(FS, tree)
    assert (kept / "precious").read_bytes() == b"data" and not tree.exists()


def test_the_last_file_goes_when_all_else_is_gone(tree: Path) -> None:
    """What tells of a directory's contents is there as long as there are any."""
    (tree / "0 journal").touch()
    at = 0
    while tree.exists():
        faults = Faults(at)
        try:
            remove_tree(FaultyFileSystem(faults), tree, last="0 journal")
        except OSError:
            assert (tree / "0 journal").exists() or not any(tree.iterdir())
        at += 1
    assert at >= 4
