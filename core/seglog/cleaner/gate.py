"""Between a cleaning round and its files: the throttle, and a stop that takes effect at the next read or write.

A thread that cleans does so inside `Gate.cleaning()`. Only its reads and writes pass the gate: renames do not, so that
a stop comes either before the first file is replaced or when all of them are.
Kafka: LogCleaner's `checkDone` and `Throttler.maybeThrottle`, called for every chunk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from seglog.errors import SeglogError
from seglog.storage.filesystem import READ_BYTES_LIMIT, File, FileStatus, FileSystem, OpenMode
from seglog.storage.throttle import Throttle

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class CleaningStoppedError(SeglogError):
    """The round was asked to stop; the log is as it was before."""


class Gate:
    """Counts bytes for `throttle` and asks `stopped`, for threads inside `cleaning()`."""

    def __init__(self, throttle: Throttle | None, stopped: Callable[[], bool]) -> None:
        self._throttle, self._stopped = throttle, stopped
        self._local = threading.local()

    @contextmanager
    def cleaning(self) -> Iterator[None]:
        """This thread's reads and writes pass the gate from here to the end of the block."""
        self._local.inside = True
        try:
            yield
        finally:
            self._local.inside = False

    def passed(self, size: int) -> None:
        """`size` bytes are about to be read or written. CleaningStoppedError when that is no longer wanted."""
        if not getattr(self._local, "inside", False):
            return
        if self._stopped():
            raise CleaningStoppedError("cleaning was stopped; the log is as it was")
        if self._throttle is not None:
            self._throttle.throttle(size)


class GatedFile:
    """A file whose reads and writes pass a gate."""

    def __init__(self, file: File, gate: Gate) -> None:
        self.path, self._file, self._gate = file.path, file, gate

    def size(self) -> int:
        return self._file.size()

    def read_at(self, position: int, size: int) -> bytes:
        self._gate.passed(size)
        return self._file.read_at(position, size)

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        self._gate.passed(memoryview(buffer).nbytes)
        return self._file.read_into(position, buffer)

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        self._gate.passed(memoryview(data).nbytes)
        self._file.write_at(position, data)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._gate.passed(0)
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


class GatedFileSystem:
    """A file system whose files pass a gate; everything else goes straight through."""

    def __init__(self, below: FileSystem, gate: Gate) -> None:
        self._below, self._gate = below, gate

    def open(self, path: Path, mode: OpenMode) -> File:
        return GatedFile(self._below.open(path, mode), self._gate)

    def status(self, path: Path) -> FileStatus | None:
        return self._below.status(path)

    def list(self, directory: Path) -> list[str]:
        return self._below.list(directory)

    def rename(self, source: Path, target: Path) -> None:
        self._below.rename(source, target)

    def remove(self, path: Path) -> None:
        self._below.remove(path)

    def make_directory(self, path: Path, parents: bool = False) -> None:
        self._below.make_directory(path, parents)

    def remove_directory(self, path: Path) -> None:
        self._below.remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._below.sync_directory(path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self._below.set_modified(path, modified_ms)

    def copy_attributes(self, source: Path, target: Path) -> None:
        self._below.copy_attributes(source, target)

    def free_bytes(self, path: Path) -> int:
        return self._below.free_bytes(path)

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        return self._below.read_bytes(path, limit)

    def link(self, source: Path, target: Path) -> None:
        self._below.link(source, target)
