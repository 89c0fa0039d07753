"""Files that are made, copied elsewhere and gone: nothing of them has to survive the machine.

The engine syncs what it writes, as a log directory must; here that would only cost time.
"""

from __future__ import annotations

from pathlib import Path

from seglog.storage.filesystem import File, FileSystem, OpenMode
from seglog.storage.forwarding import PassingFile, PassingFileSystem


class ScratchFileSystem(PassingFileSystem):
    """`below`, but that nothing waits for stable storage."""

    def __init__(self, below: FileSystem) -> None:
        super().__init__(below)

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
