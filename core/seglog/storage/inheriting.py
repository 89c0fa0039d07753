"""A file system that gives what it makes to the owner of the directory.

For log directories: a broker's user must be able to open what root made among its files (`.lock`, segments,
checkpoints), or the broker does not start. A file that replaces one keeps what that one had (`storage.atomic`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seglog.storage.forwarding import PassingFileSystem
from seglog.storage.ownership import Access

if TYPE_CHECKING:
    from seglog.storage.filesystem import File, FileSystem, OpenMode


class InheritingFileSystem(PassingFileSystem):
    """`below`, with new files and directories that have the owner, group and mode of their directory."""

    def __init__(self, below: FileSystem) -> None:
        super().__init__(below)

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
