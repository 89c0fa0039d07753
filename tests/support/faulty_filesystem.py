"""The local file system that fails: an error of the disk, a full disk, a process or a directory that goes."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seglog.storage.filesystem import Access, File, FileStatus, FileSystem, OpenMode, PassingFile, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from tests.support import effort

FAULTS = ("error", "full", "killed", "read only")


class Killed(BaseException):
    """The process is gone: nothing in the engine may go on."""


class Faults:
    """Counts calls that change something; the `at`-th (from 0) fails as `kind` says, None of them if `at` is None.

    `error`: EIO, once. `full`: ENOSPC, half a write being done, for this and every later call that takes room.
    `killed`: this and every later call ends the process. `read only`: EROFS, for this and every later call.
    """

    def __init__(self, at: int | None = None, kind: str = "error") -> None:
        self.at, self.kind, self.calls = at, kind, 0
        self.call = ""

    def before(self, name: str, path: Path, *, takes_room: bool = False) -> None:
        number, self.calls = self.calls, self.calls + 1
        if self.at is None or number < self.at:
            return
        if number == self.at:
            self.call = f"{name} {path.name}"
        if self.kind == "killed":
            raise Killed(self.call)
        if self.kind == "full" and takes_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if self.kind == "read only":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        if self.kind == "error" and number == self.at:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


class FaultyFile(PassingFile):
    def __init__(self, below: File, faults: Faults) -> None:
        super().__init__(below)
        self._faults = faults

    def write_at(self, position: int, data: Any) -> None:
        try:
            self._faults.before("write", self.path, takes_room=True)
        except (OSError, Killed):
            super().write_at(position, bytes(memoryview(data).cast("B")[: memoryview(data).nbytes // 2]))
            raise
        super().write_at(position, data)

    def truncate(self, size: int) -> None:
        self._faults.before("truncate", self.path)
        super().truncate(size)

    def sync(self) -> None:
        self._faults.before("sync", self.path)
        super().sync()

    def give(self, access: Access) -> None:
        self._faults.before("give", self.path)
        super().give(access)


class FaultyFileSystem(PassingFileSystem):
    """`below`, local files unless given, with `faults`."""

    def __init__(self, faults: Faults, below: FileSystem | None = None) -> None:
        super().__init__(below or LocalFileSystem())
        self._faults = faults

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode == "r":
            return super().open(path, mode)
        if mode != "r+":
            self._faults.before("create", path, takes_room=True)
        return FaultyFile(super().open(path, mode), self._faults)

    def rename(self, source: Path, target: Path) -> None:
        self._faults.before("rename to", target)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._faults.before("remove", path)
        super().remove(path)

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        self._faults.before("make directory", path, takes_room=True)
        super().make_directory(path, parents, access)

    def remove_directory(self, path: Path) -> None:
        self._faults.before("remove directory", path)
        super().remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._faults.before("sync directory", path)
        super().sync_directory(path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self._faults.before("set time of", path)
        super().set_modified(path, modified_ms)

    def copy_attributes(self, source: Path, target: Path) -> None:
        self._faults.before("copy attributes to", target)
        super().copy_attributes(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._faults.before("link", target, takes_room=True)
        super().link(source, target)


def calls_of(work: Callable[[FileSystem], object]) -> int:
    """How many calls that change something `work` makes when none of them fails."""
    faults = Faults()
    work(FaultyFileSystem(faults))
    return faults.calls


def moments(calls: int, kind: str) -> range:
    """Which calls to let fail: each, with SEGLOG_EFFORT=10, else about eight, others for each kind."""
    step = 1 if effort.EVERY else max(1, calls // 8)
    return range(FAULTS.index(kind) * step // len(FAULTS), calls, step)


class DeletingFileSystem(PassingFileSystem):
    """A broker deletes each directory that was just found to be there."""

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        found = super().status(path, follow)
        shutil.rmtree(path, ignore_errors=True)
        return found
