"""A file system that says so before it changes anything.

A log directory is marked as closed properly, and stays so while its logs are only looked at: the marker has to go
before the first change, and not earlier (`log.directory`). Files in state `.cleaned` do not count: whoever opens a log
throws them away, and no change of the log has begun while they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from seglog.storage.filesystem import READ_BYTES_LIMIT, File, FileStatus, FileSystem, OpenMode

if TYPE_CHECKING:
    from types import TracebackType

    from _typeshed import ReadableBuffer, WriteableBuffer

_UNCOUNTED_SUFFIX = ".cleaned"
BeforeChange = Callable[[Path], None]


class NoticingFile:
    """A file that may be written, and says so before it is."""

    def __init__(self, file: File, before_change: BeforeChange) -> None:
        self.path, self._file, self._before_change = file.path, file, before_change

    def size(self) -> int:
        return self._file.size()

    def read_at(self, position: int, size: int) -> bytes:
        return self._file.read_at(position, size)

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        return self._file.read_into(position, buffer)

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        self._before_change(self.path)
        self._file.write_at(position, data)

    def truncate(self, size: int) -> None:
        self._before_change(self.path)
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()

    def advise_dropped(self, position: int, size: int) -> None:
        self._file.advise_dropped(position, size)

    def start_writing(self, position: int, size: int) -> None:
        self._file.start_writing(position, size)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class NoticingFileSystem:
    """`below`, with `before_change` called with the path ahead of every change to it."""

    def __init__(self, below: FileSystem, before_change: BeforeChange) -> None:
        self._below, self._before_change = below, before_change

    def _changing(self, path: Path) -> None:
        if not path.name.endswith(_UNCOUNTED_SUFFIX):
            self._before_change(path)

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode == "r" or path.name.endswith(_UNCOUNTED_SUFFIX):
            return self._below.open(path, mode)
        if mode != "r+":
            self._before_change(path)
        return NoticingFile(self._below.open(path, mode), self._before_change)

    def status(self, path: Path) -> FileStatus | None:
        return self._below.status(path)

    def list(self, directory: Path) -> list[str]:
        return self._below.list(directory)

    def rename(self, source: Path, target: Path) -> None:
        self._changing(target)
        self._below.rename(source, target)

    def remove(self, path: Path) -> None:
        self._changing(path)
        self._below.remove(path)

    def make_directory(self, path: Path, parents: bool = False) -> None:
        self._changing(path)
        self._below.make_directory(path, parents)

    def remove_directory(self, path: Path) -> None:
        self._changing(path)
        self._below.remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._below.sync_directory(path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self._changing(path)
        self._below.set_modified(path, modified_ms)

    def copy_attributes(self, source: Path, target: Path) -> None:
        self._changing(target)
        self._below.copy_attributes(source, target)

    def free_bytes(self, path: Path) -> int:
        return self._below.free_bytes(path)

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        return self._below.read_bytes(path, limit)

    def link(self, source: Path, target: Path) -> None:
        self._changing(target)
        self._below.link(source, target)
