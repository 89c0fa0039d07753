"""Between a cleaning round and its files: the throttle, a stop that takes effect at the next read or write, progress.

A thread that cleans does so inside `Gate.cleaning()`, one that opens logs inside `Gate.opening()`. Only their reads and
writes pass the gate: renames do not, so that a stop comes either before the first file is replaced or when all of them
are. Kafka: LogCleaner's `checkDone` and `Throttler.maybeThrottle`, called for every chunk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from seglog.errors import SeglogError
from seglog.storage.filesystem import READ_BYTES_LIMIT, File, FileStatus, FileSystem, OpenMode
from seglog.storage.throttle import Throttle

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class CleaningStoppedError(SeglogError):
    """The round was asked to stop; the log is as it was before."""


class Watch(Protocol):
    """Is told of every read and write."""

    def before(self) -> None:
        """Something is about to be read, written or synced. What is raised here keeps it from happening."""
        ...

    def read(self, size: int) -> None:
        """`size` bytes were read."""
        ...

    def written(self, size: int) -> None:
        """`size` bytes were written."""
        ...


class Gate:
    """Counts bytes for `throttle` and asks `stopped`, for threads inside `cleaning()` or `opening()`."""

    def __init__(self, throttle: Throttle | None, stopped: Callable[[], bool]) -> None:
        self._throttle, self._stopped = throttle, stopped
        self._local = threading.local()

    def cleaning(self) -> AbstractContextManager[None]:
        """This thread's reads and writes are throttled, and can be stopped, from here to the end of the block."""
        return self._inside(self._throttle)

    def opening(self) -> AbstractContextManager[None]:
        """They can be stopped, but are not throttled, as a broker's are not while it starts."""
        return self._inside(None)

    @contextmanager
    def _inside(self, throttle: Throttle | None) -> Iterator[None]:
        self._local.inside, self._local.throttle = True, throttle
        try:
            yield
        finally:
            self._local.inside, self._local.throttle = False, None

    def before(self) -> None:
        """CleaningStoppedError when no more is wanted."""
        if getattr(self._local, "inside", False) and self._stopped():
            raise CleaningStoppedError("cleaning was stopped; the log is as it was")

    def read(self, size: int) -> None:
        """Sleeps when that was too fast."""
        throttle: Throttle | None = getattr(self._local, "throttle", None)
        if throttle is not None:
            throttle.throttle(size)

    written = read


class ReadMeter:
    """Tells `advance` how many bytes were read; asked by any thread, it calls from one at a time."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance, self._guard = advance, threading.Lock()

    def before(self) -> None:
        """Nothing is kept from happening."""

    def read(self, size: int) -> None:
        with self._guard:
            self._advance(size)

    def written(self, size: int) -> None:
        """What is written was read before."""


class GatedFile:
    """A file whose reads and writes pass a gate."""

    def __init__(self, file: File, gate: Watch) -> None:
        self.path, self._file, self._gate = file.path, file, gate

    def size(self) -> int:
        return self._file.size()

    def read_at(self, position: int, size: int) -> bytes:
        self._gate.before()
        data = self._file.read_at(position, size)
        self._gate.read(len(data))
        return data

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        self._gate.before()
        size = self._file.read_into(position, buffer)
        self._gate.read(size)
        return size

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        self._gate.before()
        self._file.write_at(position, data)
        self._gate.written(memoryview(data).nbytes)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._gate.before()
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

    def __init__(self, below: FileSystem, gate: Watch) -> None:
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
