"""Looks at local files without leaving a trace, and at many of them quickly: for looks that come back every second.

Reading a file or listing a directory moves its access time, which some backup and tiering tools go by. Linux leaves it
alone for the owner of a file and for root (O_NOATIME). For others it moves, as with any reader.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from seglog.storage.local import LocalFileSystem

_UNTOUCHED = getattr(os, "O_NOATIME", 0)


class UntouchedFileSystem(LocalFileSystem):
    """The operating system's files; the access times of directories stay too where the system allows it."""

    def _open_directory(self, directory: Path) -> int:
        descriptor = super()._open_directory(directory)
        leave_access_time(descriptor)
        return descriptor


def leave_access_time(descriptor: int) -> None:
    """Lets reads through an open descriptor leave the access time alone, if this user may ask for that."""
    if _UNTOUCHED:
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | _UNTOUCHED)


@dataclass(slots=True)
class Glimpse:
    """A file of a directory: its name, bytes, and modification time."""

    name: str
    size: int
    modified_ns: int


def glance(directory: str, suffix: str) -> list[Glimpse]:
    """Returns the regular files of a local directory whose names end so, by name. Links are not followed, and left out.

    A quarter of the cost of `FileSystem.entries`: nothing else is asked for. Raises OSError.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = []
    try:
        leave_access_time(descriptor)
        for name in sorted(filter(lambda name: name.endswith(suffix), os.listdir(descriptor))):  # noqa: PTH208 (as below)
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found.append(Glimpse(name, status.st_size, status.st_mtime_ns))
    finally:
        os.close(descriptor)
    return found


def names_of_directories(directory: str) -> list[str]:
    """Returns the names of the directories in a local directory, links to directories included. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        leave_access_time(descriptor)
        with os.scandir(descriptor) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    finally:
        os.close(descriptor)


def modified_ns(path: str) -> int:
    """Returns when a file or directory was last changed. Raises OSError."""
    return os.stat(path).st_mtime_ns  # noqa: PTH116 (a Path costs as much as the call)


def size_of(path: str) -> tuple[int, int]:
    """Returns (bytes, modification time) of a file. Raises OSError."""
    status = os.stat(path, follow_symlinks=False)  # noqa: PTH116 (as above)
    return status.st_size, status.st_mtime_ns
