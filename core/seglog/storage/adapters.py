"""File systems that add one thing to the one below: inherited ownership, or notice of changes.

Both are for log directories. A broker's user must be able to open the files that root made among its own
(`.lock`, segments, checkpoints), or the broker does not start. And a log directory counts as closed properly while its
logs are only read: the marker must go before the first change, and not earlier (`log.directory`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.storage.filesystem import Access, File, FileSystem, OpenMode, PassingFile, PassingFileSystem

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_UNCOUNTED_SUFFIX = ".cleaned"
BeforeChange = Callable[[Path], None]


class InheritingFileSystem(PassingFileSystem):
    """`below`, where new files and directories inherit owner, group and mode from their directory.

    A file that replaces another keeps that one's (`write_atomically`).
    """

    def open(self, path: Path, mode: OpenMode) -> File:
        file = super().open(path, mode)
        if mode in ("create", "create_new"):
            access = self._access_within(path.parent)
            if access is not None:
                file.give(access)
        return file

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        super().make_directory(path, parents, access or self._access_within(path.parent))

    def _access_within(self, directory: Path) -> Access | None:
        found = self.status(directory)
        return None if found is None else Access.within(found)


class NoticingFile(PassingFile):
    """A file that calls `before_change` before each change."""

    def __init__(self, below: File, before_change: BeforeChange) -> None:
        super().__init__(below)
        self._before_change = before_change

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        self._before_change(self.path)
        super().write_at(position, data)

    def truncate(self, size: int) -> None:
        self._before_change(self.path)
        super().truncate(size)


class ChangingFileSystem(PassingFileSystem):
    """`below`, where a subclass is told of every change of a path before it is made, and may prevent it.

    A subclass sees to `open` itself: what a file will be opened for decides what counts as a change.
    """

    def changing(self, *paths: Path) -> None:
        """Called before what is at `paths` changes."""
        raise NotImplementedError

    def rename(self, source: Path, target: Path) -> None:
        self.changing(source, target)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self.changing(path)
        super().remove(path)

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        self.changing(path)
        super().make_directory(path, parents, access)

    def remove_directory(self, path: Path) -> None:
        self.changing(path)
        super().remove_directory(path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self.changing(path)
        super().set_modified(path, modified_ms)

    def copy_attributes(self, source: Path, target: Path) -> None:
        self.changing(target)
        super().copy_attributes(source, target)

    def link(self, source: Path, target: Path) -> None:
        self.changing(target)
        super().link(source, target)


class NoticingFileSystem(ChangingFileSystem):
    """`below`, where `before_change` is called with the path before every change to it.

    Files in state `.cleaned` do not count: opening a log discards them, so writing them does not change the log yet.
    """

    def __init__(self, below: FileSystem, before_change: BeforeChange) -> None:
        super().__init__(below)
        self._before_change = before_change

    def changing(self, *paths: Path) -> None:
        for path in paths:
            if not path.name.endswith(_UNCOUNTED_SUFFIX):
                self._before_change(path)

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode == "r" or path.name.endswith(_UNCOUNTED_SUFFIX):
            return super().open(path, mode)
        if mode != "r+":
            self._before_change(path)
        return NoticingFile(super().open(path, mode), self._before_change)
