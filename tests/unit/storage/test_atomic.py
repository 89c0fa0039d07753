"""Replacing a file as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.storage.atomic import write_atomically
from seglog.storage.filesystem import LocalFileSystem


def test_contents_are_replaced_and_nothing_is_left_over(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    write_atomically(fs, tmp_path / "checkpoint", b"one")
    write_atomically(fs, tmp_path / "checkpoint", memoryview(b"two"))
    assert fs.list(tmp_path) == ["checkpoint"]
    assert (tmp_path / "checkpoint").read_bytes() == b"two"


def test_a_leftover_of_a_crash_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.tmp").write_bytes(b"a longer leftover")
    write_atomically(LocalFileSystem(), tmp_path / "checkpoint", b"new")
    assert LocalFileSystem().list(tmp_path) == ["checkpoint"]
    assert (tmp_path / "checkpoint").read_bytes() == b"new"


def test_the_mode_is_kept_and_the_time_is_not(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    path.chmod(0o640)
    LocalFileSystem().set_modified(path, 1000)
    write_atomically(LocalFileSystem(), path, b"new")
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.stat().st_mtime > 1_000_000


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt("No space")])
def test_a_failure_and_a_signal_keep_the_old_contents(error: BaseException, tmp_path: Path) -> None:
    class Full(LocalFileSystem):
        def rename(self, source: Path, target: Path) -> None:
            raise error

    (tmp_path / "checkpoint").write_bytes(b"old")
    with pytest.raises(type(error), match="No space"):
        write_atomically(Full(), tmp_path / "checkpoint", b"new")
    assert LocalFileSystem().list(tmp_path) == ["checkpoint"]
    assert (tmp_path / "checkpoint").read_bytes() == b"old"
