"""File systems that do one thing more than the one below: give to an owner, say what will change, wait for no disk.

The first two are for log directories. A broker's user must be able to open what root made among its files (`.lock`,
segments, checkpoints), or the broker does not start. And a log directory is marked as closed properly, and stays so
while its logs are only looked at: the marker has to go before the first change, and not earlier (`log.directory`).
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
    """`below`, with new files and directories that have the owner, group and mode of their directory.

    A file that replaces one keeps what that one had (`write_atomically`).
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
    """`below`, with `before_change` called with the path ahead of every change to it.

    Files in state `.cleaned` do not count: whoever opens a log throws them away, and no change of the log has begun
    while they are written.
    """

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


class ScratchFileSystem(PassingFileSystem):
    """`below`, but that nothing waits for stable storage: for files that are made, copied elsewhere and gone."""

    def open(self, path: Path, mode: OpenMode) -> File:
        return _ScratchFile(super().open(path, mode))

    def sync_directory(self, path: Path) -> None:
        """Returns at once."""


class _ScratchFile(PassingFile):
    """A file of which nothing need be left."""

    def sync(self) -> None:
        """Returns at once."""

    def start_writing(self, position: int, size: int) -> None:
        """Returns at once."""
