"""A file system that says so before it changes anything.

A log directory is marked as closed properly, and stays so while its logs are only looked at: the marker has to go
before the first change, and not earlier (`log.directory`). Files in state `.cleaned` do not count: whoever opens a log
throws them away, and no change of the log has begun while they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.storage.filesystem import File, FileSystem, OpenMode
from seglog.storage.forwarding import PassingFile, PassingFileSystem

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from seglog.storage.ownership import Access

_UNCOUNTED_SUFFIX = ".cleaned"
BeforeChange = Callable[[Path], None]


class NoticingFile(PassingFile):
    """A file that may be written, and says so before it is."""

    def __init__(self, below: File, before_change: BeforeChange) -> None:
        super().__init__(below)
        self._before_change = before_change

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        self._before_change(self.path)
        super().write_at(position, data)

    def truncate(self, size: int) -> None:
        self._before_change(self.path)
        super().truncate(size)


class NoticingFileSystem(PassingFileSystem):
    """`below`, with `before_change` called with the path ahead of every change to it."""

    def __init__(self, below: FileSystem, before_change: BeforeChange) -> None:
        super().__init__(below)
        self._before_change = before_change

    def _changing(self, path: Path) -> None:
        if not path.name.endswith(_UNCOUNTED_SUFFIX):
            self._before_change(path)

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode == "r" or path.name.endswith(_UNCOUNTED_SUFFIX):
            return super().open(path, mode)
        if mode != "r+":
            self._before_change(path)
        return NoticingFile(super().open(path, mode), self._before_change)

    def rename(self, source: Path, target: Path) -> None:
        self._changing(target)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._changing(path)
        super().remove(path)

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        self._changing(path)
        super().make_directory(path, parents, access)

    def remove_directory(self, path: Path) -> None:
        self._changing(path)
        super().remove_directory(path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self._changing(path)
        super().set_modified(path, modified_ms)

    def copy_attributes(self, source: Path, target: Path) -> None:
        self._changing(target)
        super().copy_attributes(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._changing(target)
        super().link(source, target)
