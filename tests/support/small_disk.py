"""A disk that has so many bytes free and no more: what is written beyond fails as on any full disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seglog.storage.filesystem import File, FileSystem, OpenMode, PassingFile, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from seglog.storage.overlay import blocks


class SmallDisk(PassingFileSystem):
    """`below`, local files unless given, whose files below `root` lie on a disk with `free` bytes left.

    `least_free` is how little was free at any time, by what files take in blocks of 4096 bytes.
    """

    def __init__(self, root: Path, free: int, below: FileSystem | None = None) -> None:
        super().__init__(below or LocalFileSystem())
        self.root = root
        self._total = free + self._taken()
        self.least_free = free

    def free_bytes(self, path: Path) -> int:
        return self._total - self._taken()

    def open(self, path: Path, mode: OpenMode) -> File:
        file = super().open(path, mode)
        return file if mode == "r" else _SmallDiskFile(file, self)

    def require(self, size: int, path: Path) -> None:
        """ENOSPC unless `size` more bytes are free."""
        free = self.free_bytes(path) - size
        if size > 0 and free < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self.least_free = min(self.least_free, free)

    def _taken(self) -> int:
        return sum(blocks(found) for found in _files(self.root))


class _SmallDiskFile(PassingFile):
    def __init__(self, below: File, disk: SmallDisk) -> None:
        super().__init__(below)
        self._disk = disk

    def write_at(self, position: int, data: Any) -> None:
        size = self.size()
        end = max(size, position + memoryview(data).nbytes)
        self._disk.require(blocks(end) - blocks(size), self.path)
        super().write_at(position, data)


def _files(root: Path) -> Iterator[int]:
    return (path.stat().st_size for path in root.rglob("*") if path.is_file())
