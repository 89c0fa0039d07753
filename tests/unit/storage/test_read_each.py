"""Small files of a directory, read together: as each is read alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.storage import links
from seglog.storage.filesystem import FileSystem, OpenMode, PassingFileSystem
from seglog.storage.local import LocalFile, LocalFileSystem
from seglog.storage.overlay import OverlayFileSystem
from seglog.storage.routing import machine_files
from tests.support.open_descriptors import needs_descriptors, open_below

FS = LocalFileSystem()
KINDS: dict[str, Callable[[], FileSystem]] = {
    "local": LocalFileSystem,
    "machine": machine_files,
    "passing": lambda: PassingFileSystem(FS),
    "overlay": lambda: OverlayFileSystem(FS),
}


@pytest.fixture(params=KINDS)
def fs(request: pytest.FixtureRequest) -> FileSystem:
    return KINDS[request.param]()


def test_the_files_come_in_the_order_asked_for(tmp_path: Path, fs: FileSystem) -> None:
    for name, data in (("a", b"1"), ("b", b""), ("c", b"3" * (2 << 20))):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "link").symlink_to("a")
    assert fs.read_each(tmp_path, ["c", "link", "b", "a"]) == [b"3" * (2 << 20), b"1", b"", b"1"]
    assert fs.read_each(tmp_path, []) == []


def test_errors_are_those_of_reading_one(tmp_path: Path, fs: FileSystem) -> None:
    (tmp_path / "large").write_bytes(b"four")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "directory", "pipe", "large"):
        with pytest.raises((OSError, RefusedError)) as alone:
            fs.read_bytes(tmp_path / name, 3)
        with pytest.raises(type(alone.value)) as together:
            fs.read_each(tmp_path, [name], 3)
        assert str(together.value) == str(alone.value)
    with pytest.raises(FileNotFoundError):
        fs.read_each(tmp_path / "missing", ["a"])


def test_a_link_of_another_user_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_bytes(b"s")
    (tmp_path / "link").symlink_to("secret")
    owner = (tmp_path / "link").lstat().st_uid
    monkeypatch.setattr(links.os, "geteuid", lambda: owner + 1)
    if owner == 0:
        os.lchown(tmp_path / "link", 65534, -1)
    with pytest.raises(PermissionError):
        FS.read_each(tmp_path, ["link"])


def test_whoever_has_an_open_of_its_own_sees_each_file(tmp_path: Path) -> None:
    opened: list[str] = []

    class Noting(LocalFileSystem):
        def open(self, path: Path, mode: OpenMode) -> LocalFile:
            opened.append(path.name)
            return super().open(path, mode)

    (tmp_path / "a").write_bytes(b"1")
    assert Noting().read_each(tmp_path, ["a"]) == [b"1"] and opened == ["a"]


@needs_descriptors
def test_no_descriptor_is_left(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    FS.read_each(tmp_path, ["a", "a"])
    assert open_below(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        FS.read_each(tmp_path, ["a", "missing"])
    assert open_below(tmp_path) == []
