"""The local file system: positions, ends of files, attributes, refusals."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from seglog.errors import RefusedError
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem


@pytest.fixture
def fs() -> FileSystem:
    return LocalFileSystem()


def test_reads_return_fewer_bytes_only_at_the_end(fs: FileSystem, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(range(10)))
    with fs.open(path, "r") as file:
        assert file.size() == 10
        assert file.read_at(2, 3) == b"\x02\x03\x04"
        assert file.read_at(8, 100) == b"\x08\x09"
        assert file.read_at(10, 1) == b""
        assert file.read_at(50, 1 << 40) == b""
        assert file.read_at(7, 1 << 62) == b"\x07\x08\x09"


@pytest.mark.parametrize("kind", ["numpy", "memoryview", "records"])
def test_reading_into_a_buffer_fills_it_and_counts(fs: FileSystem, tmp_path: Path, kind: str) -> None:
    (tmp_path / "a").write_bytes(bytes(range(10)))
    whole = np.full(16, 255, dtype=np.uint8)
    target = {"numpy": whole, "memoryview": memoryview(bytearray(whole)), "records": whole.view("<u4")}[kind]
    with fs.open(tmp_path / "a", "r") as file:
        assert file.read_into(4, target) == 6
        assert file.read_into(0, np.empty(0, dtype=np.uint8)) == 0
    assert bytes(target) == bytes([4, 5, 6, 7, 8, 9] + [255] * 10)


def test_short_reads_of_the_system_are_continued(
    fs: FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(bytes(range(100)))
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 3), position))
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, position: preadv(fd, [buffers[0][:7]], position))
    with fs.open(tmp_path / "a", "r") as file:
        assert file.read_at(5, 90) == bytes(range(5, 95))
        assert file.read_at(95, 90) == bytes(range(95, 100))


def test_short_writes_of_the_system_are_continued(
    fs: FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, data[:7], position))
    with fs.open(tmp_path / "a", "create") as file:
        file.write_at(0, np.arange(100, dtype=np.uint8))
    assert (tmp_path / "a").read_bytes() == bytes(range(100))


def test_writing_past_the_end_leaves_zeros_before_it(fs: FileSystem, tmp_path: Path) -> None:
    with fs.open(tmp_path / "a", "create") as file:
        file.write_at(3, b"xy")
        file.write_at(0, b"")
        file.start_writing(0, 5)
        file.sync()
        file.advise_dropped(0, 5)
    assert (tmp_path / "a").read_bytes() == b"\0\0\0xy"


def test_a_strided_array_is_not_written(fs: FileSystem, tmp_path: Path) -> None:
    with fs.open(tmp_path / "a", "create") as file, pytest.raises(TypeError):
        file.write_at(0, np.arange(10, dtype=np.uint8)[::2])


def test_truncating_grows_without_taking_space(fs: FileSystem, tmp_path: Path) -> None:
    with fs.open(tmp_path / "a", "create") as file:
        file.write_at(0, b"abcdef")
        file.truncate(2)
        file.truncate(64 << 20)
        assert file.read_at(0, 4) == b"ab\0\0"
    status = fs.status(tmp_path / "a")
    assert status is not None
    assert status.size == 64 << 20
    assert status.allocated < 1 << 20


def test_the_four_ways_to_open(fs: FileSystem, tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(FileNotFoundError):
        fs.open(path, "r")
    with pytest.raises(FileNotFoundError):
        fs.open(path, "r+")
    with fs.open(path, "create_new") as file:
        file.write_at(0, b"one")
    with pytest.raises(FileExistsError):
        fs.open(path, "create_new")
    with fs.open(path, "r+") as file:
        file.write_at(0, b"O")
        assert not os.get_inheritable(file.fileno())
    assert path.read_bytes() == b"One"
    with fs.open(path, "r") as file, pytest.raises(OSError) as refused:
        file.write_at(0, b"x")
    assert refused.value.errno == errno.EBADF
    fs.open(path, "create").close()
    assert path.read_bytes() == b""


def test_directories_and_pipes_are_refused_at_once(fs: FileSystem, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        fs.open(tmp_path, "r")
    os.mkfifo(tmp_path / "pipe")
    outcome: list[BaseException] = []

    def attempt() -> None:
        try:
            fs.open(tmp_path / "pipe", "r")
        except OSError as error:
            outcome.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(60)
    assert [type(error) for error in outcome] == [OSError]


def test_reading_leaves_the_access_time_alone(fs: FileSystem, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    os.utime(path, (1000, 2000))
    with fs.open(path, "r") as file:
        file.read_at(0, 3)
    assert path.stat().st_atime == 1000


def test_a_missing_path_has_no_status(fs: FileSystem, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert fs.status(tmp_path / "b") is None
    assert fs.status(tmp_path / "a" / "below") is None


def test_status_rounds_the_time_down_as_java_does(fs: FileSystem, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    path.chmod(0o640)
    os.utime(path, ns=(0, 1_700_000_000_123_999_999))
    status = fs.status(path)
    assert status is not None
    assert (status.modified_ms, status.modified_ns) == (1_700_000_000_123, 1_700_000_000_123_999_999)
    assert (status.size, status.mode, status.is_directory) == (3, 0o640, False)
    assert (status.inode, status.owner, status.group) == (
        path.stat().st_ino,
        path.stat().st_uid,
        path.stat().st_gid,
    )
    directory = fs.status(tmp_path)
    assert directory is not None
    assert directory.is_directory


def test_names_are_listed_in_order(fs: FileSystem, tmp_path: Path) -> None:
    for name in ("b", "a", ".lock", "C"):
        (tmp_path / name).touch()
    assert fs.list(tmp_path) == [".lock", "C", "a", "b"]
    with pytest.raises(FileNotFoundError):
        fs.list(tmp_path / "nowhere")


def test_renaming_replaces_and_linking_does_not(fs: FileSystem, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    with pytest.raises(FileExistsError):
        fs.link(tmp_path / "a", tmp_path / "b")
    fs.rename(tmp_path / "a", tmp_path / "b")
    assert fs.list(tmp_path) == ["b"]
    fs.link(tmp_path / "b", tmp_path / "c")
    fs.remove(tmp_path / "b")
    assert (tmp_path / "c").read_bytes() == b"a"


def test_directories_are_made_and_removed(fs: FileSystem, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.make_directory(tmp_path / "a" / "b")
    fs.make_directory(tmp_path / "a" / "b", parents=True)
    fs.make_directory(tmp_path / "a" / "b", parents=True)
    with pytest.raises(FileExistsError):
        fs.make_directory(tmp_path / "a")
    fs.sync_directory(tmp_path / "a")
    with pytest.raises(OSError):
        fs.remove_directory(tmp_path / "a")
    fs.remove_directory(tmp_path / "a" / "b")
    assert fs.list(tmp_path / "a") == []


def test_attributes_are_copied_and_times_set(fs: FileSystem, tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"a")
    target.write_bytes(b"b")
    source.chmod(0o604)
    os.utime(source, ns=(5, 1_600_000_000_000_000_007))
    fs.copy_attributes(source, target)
    assert target.stat().st_mtime_ns == 1_600_000_000_000_000_007
    assert target.stat().st_mode & 0o777 == 0o604
    fs.set_modified(target, 1_500_000_000_001)
    assert target.stat().st_mtime_ns == 1_500_000_000_001_000_000


def test_whole_files_are_read_within_a_limit(fs: FileSystem, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert fs.read_bytes(tmp_path / "a") == b"abc"
    assert fs.read_bytes(tmp_path / "a", limit=3) == b"abc"
    with pytest.raises(RefusedError, match="3 bytes, more than the 2"):
        fs.read_bytes(tmp_path / "a", limit=2)
    assert fs.free_bytes(tmp_path) > 0


def test_files_close_once_and_when_forgotten(fs: FileSystem, tmp_path: Path) -> None:
    file = fs.open(tmp_path / "a", "create")
    descriptor = file.fileno()
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.size()
    forgotten = fs.open(tmp_path / "a", "r")
    assert forgotten.fileno() == descriptor
    del forgotten
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_errors_of_open_files_name_the_file(fs: FileSystem, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    with fs.open(path, "r") as file:
        for change in (lambda: file.write_at(0, b"x"), lambda: file.truncate(1), lambda: file.read_at(-5, 1)):
            with pytest.raises(OSError) as caught:
                change()
            assert caught.value.filename == str(path)


def test_an_error_of_fsync_names_the_file_or_the_directory(
    fs: FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("seglog.storage.local.sync", fail)
    path = tmp_path / "a"
    with fs.open(path, "create") as file, pytest.raises(OSError) as of_file:
        file.sync()
    with pytest.raises(OSError) as of_directory:
        fs.sync_directory(tmp_path)
    assert (of_file.value.filename, of_directory.value.filename) == (str(path), str(tmp_path))
