"""Files that are created, copied elsewhere and removed: nothing waits for the disk."""

from __future__ import annotations

from pathlib import Path

from seglog.storage.filesystem import File, OpenMode, PassingFile, PassingFileSystem


class ScratchFileSystem(PassingFileSystem):
    """`below` without waiting for stable storage: for files that are created, copied elsewhere and removed."""

    def open(self, path: Path, mode: OpenMode) -> File:
        return _ScratchFile(super().open(path, mode))

    def sync_directory(self, path: Path) -> None:
        """Returns at once."""


class _ScratchFile(PassingFile):
    def sync(self) -> None:
        """Returns at once."""

    def start_writing(self, position: int, size: int) -> None:
        """Returns at once."""
