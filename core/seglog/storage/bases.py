"""Bases of files and file systems: those that pass every call on to another one, and those that are only read.

A change of what is only read gets EROFS.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

from seglog.remote_path import RemotePath
from seglog.storage.filesystem import READ_BYTES_LIMIT, File, FileStatus, FileSystem, OpenMode

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from seglog.storage.ownership import Access


class PassingFile:
    """`below`, call by call."""

    def __init__(self, below: File) -> None:
        self.path, self._below = below.path, below

    def size(self) -> int:
        return self._below.size()

    def status(self) -> FileStatus:
        return self._below.status()

    def read_at(self, position: int, size: int) -> bytes:
        return self._below.read_at(position, size)

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        return self._below.read_into(position, buffer)

    def lend(self, position: int, size: int) -> memoryview | None:
        return self._below.lend(position, size)

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        self._below.write_at(position, data)

    def truncate(self, size: int) -> None:
        self._below.truncate(size)

    def give(self, access: Access) -> None:
        self._below.give(access)

    def sync(self) -> None:
        self._below.sync()

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        self._below.advise_wanted(position, size, side_by_side=side_by_side, again=again)

    def advise_dropped(self, position: int, size: int) -> None:
        self._below.advise_dropped(position, size)

    def start_writing(self, position: int, size: int) -> None:
        self._below.start_writing(position, size)

    def fileno(self) -> int:
        return self._below.fileno()

    def close(self) -> None:
        self._below.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PassingFileSystem:
    """`below`, call by call."""

    def __init__(self, below: FileSystem) -> None:
        self._below = below

    def open(self, path: Path, mode: OpenMode) -> File:
        return self._below.open(path, mode)

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        return self._below.status(path, follow)

    def list(self, directory: Path) -> list[str]:
        return self._below.list(directory)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        return self._below.entries(directory)

    def rename(self, source: Path, target: Path) -> None:
        self._below.rename(source, target)

    def remove(self, path: Path) -> None:
        self._below.remove(path)

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        self._below.make_directory(path, parents, access)

    def remove_directory(self, path: Path) -> None:
        self._below.remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._below.sync_directory(path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self._below.set_modified(path, modified_ms)

    def copy_attributes(self, source: Path, target: Path) -> None:
        self._below.copy_attributes(source, target)

    def free_bytes(self, path: Path) -> int:
        return self._below.free_bytes(path)

    def reads_at_once(self, path: Path) -> int:
        return self._below.reads_at_once(path)

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        return self._below.read_bytes(path, limit)

    def link(self, source: Path, target: Path) -> None:
        self._below.link(source, target)


_REMOTE = "seglog only reads here: this needs a local directory"
_VIEW = "seglog only reads here: this is shown as it was, or as a tier has it"


def refuse_to_write(path: Path) -> NoReturn:
    """Raises the OSError for whatever would change something at `path`."""
    raise OSError(errno.EROFS, _REMOTE if isinstance(path, RemotePath) else _VIEW, str(path))


class VirtualFile:
    """What a `File` has beside its bytes, of one that the operating system knows nothing of: nothing to lend, to store,
    to drop from a page cache, or to close.
    """

    path: Path

    def sync(self) -> None:
        """It is as stable as it will be."""

    def lend(self, position: int, size: int) -> memoryview | None:
        """None: its bytes are made when they are read."""
        return None

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        """Nothing is quicker when it is announced."""

    def advise_dropped(self, position: int, size: int) -> None:
        """No page cache holds it."""

    def start_writing(self, position: int, size: int) -> None:
        """Nothing is written to a disk."""

    def fileno(self) -> int:
        """OSError: there is none."""
        raise OSError(errno.ENOTSUP, "no file descriptor stands for it: it is read, not sent", str(self.path))

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class UnchangedFile:
    """What of a `File` changes it, of one that is only read."""

    path: Path

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        refuse_to_write(self.path)

    def truncate(self, size: int) -> None:
        refuse_to_write(self.path)

    def give(self, access: Access) -> None:
        refuse_to_write(self.path)


class ReadOnlyFile(UnchangedFile, VirtualFile):
    """What a `File` has beside its size and its bytes, of one that no disk holds and that is only read."""


class ReadOnlyFileSystem:
    """What a `FileSystem` has beside reading, of one that is only read."""

    def rename(self, source: Path, target: Path) -> None:
        refuse_to_write(source)

    def remove(self, path: Path) -> None:
        refuse_to_write(path)

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        refuse_to_write(path)

    def remove_directory(self, path: Path) -> None:
        refuse_to_write(path)

    def sync_directory(self, path: Path) -> None:
        refuse_to_write(path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        refuse_to_write(path)

    def copy_attributes(self, source: Path, target: Path) -> None:
        refuse_to_write(target)

    def free_bytes(self, path: Path) -> int:
        refuse_to_write(path)

    def link(self, source: Path, target: Path) -> None:
        refuse_to_write(target)


class ViewFileSystem(PassingFileSystem):
    """`below`, with paths that are only read (`is_only_read`), as views show them; others can be changed as below."""

    def is_only_read(self, path: Path) -> bool:
        """Whether nothing may be changed at a path."""
        raise NotImplementedError

    def _check(self, *paths: Path) -> None:
        for path in paths:
            if self.is_only_read(path):
                refuse_to_write(path)

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode != "r":
            self._check(path)
        return super().open(path, mode)

    def rename(self, source: Path, target: Path) -> None:
        self._check(source, target)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._check(path)
        super().remove(path)

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        self._check(path)
        super().make_directory(path, parents, access)

    def remove_directory(self, path: Path) -> None:
        self._check(path)
        super().remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._check(path)
        super().sync_directory(path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self._check(path)
        super().set_modified(path, modified_ms)

    def copy_attributes(self, source: Path, target: Path) -> None:
        self._check(target)
        super().copy_attributes(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._check(source, target)
        super().link(source, target)
