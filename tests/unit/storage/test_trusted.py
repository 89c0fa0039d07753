"""What is obeyed is what was judged, whatever somebody puts in its place meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.storage.filesystem import LocalFile, LocalFileSystem, OpenMode
from seglog.storage.overlay import OverlayFileSystem
from seglog.storage.trusted import read_trusted
from tests.support.other_users import OTHER, needs_root, planted_link

FS = LocalFileSystem()


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
