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
from typing import TYPE_CHECKING, Protocol

from seglog.errors import SeglogError
from seglog.storage.filesystem import File, FileSystem, OpenMode, PassingFile, PassingFileSystem
from seglog.storage.throttle import Throttle

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class CleaningStoppedError(SeglogError):
    """The round was asked to stop; the log is as it was before."""


class Watch(Protocol):
    """Is called for every read and write."""

    def before(self) -> None:
        """Something is about to be read, written or synced. What is raised here keeps it from happening."""
        ...

    def read(self, size: int) -> None:
        """`size` bytes were read."""
        ...

    def written(self, size: int) -> None:
        """`size` bytes were written."""
        ...

    def syncing(self) -> None:
        """What was written is about to go to stable storage, for as long as that takes."""
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

    def syncing(self) -> None:
        """That is not throttled."""


class ReadMeter:
    """Tells `advance` how many bytes were read, `wait` of a sync; asked by any thread, it calls from one at a time."""

    def __init__(self, advance: Callable[[int], None], wait: Callable[[str], None]) -> None:
        self._advance, self._wait, self._guard = advance, wait, threading.Lock()

    def before(self) -> None:
        """Nothing is kept from happening."""

    def read(self, size: int) -> None:
        with self._guard:
            self._advance(size)

    def written(self, size: int) -> None:
        """What is written was read before."""

    def syncing(self) -> None:
        with self._guard:
            self._wait("waiting for fsync")


class GatedFile(PassingFile):
    """A file whose reads and writes pass a gate."""

    def __init__(self, below: File, gate: Watch) -> None:
        super().__init__(below)
        self._gate = gate

    def read_at(self, position: int, size: int) -> bytes:
        self._gate.before()
        data = super().read_at(position, size)
        self._gate.read(len(data))
        return data

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        self._gate.before()
        size = super().read_into(position, buffer)
        self._gate.read(size)
        return size

    def lend(self, position: int, size: int) -> memoryview | None:
        self._gate.before()
        data = super().lend(position, size)
        if data is not None:
            self._gate.read(data.nbytes)
        return data

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        self._gate.before()
        super().write_at(position, data)
        self._gate.written(memoryview(data).nbytes)

    def sync(self) -> None:
        self._gate.before()
        self._gate.syncing()
        super().sync()


class GatedFileSystem(PassingFileSystem):
    """A file system whose files pass a gate; everything else goes straight through."""

    def __init__(self, below: FileSystem, gate: Watch) -> None:
        super().__init__(below)
        self._gate = gate

    def open(self, path: Path, mode: OpenMode) -> File:
        return GatedFile(super().open(path, mode), self._gate)
