"""Files whose reads and writes are watched: throttled, stopped at the next call, or counted as progress.

A thread that cleans does so inside `Gate.cleaning()`, one that opens logs inside `Gate.opening()`. Only their reads and
writes pass the gate. Renames do not, so a stop takes effect before the first file is replaced or after the last one.
Kafka: LogCleaner's `checkDone` and `Throttler.maybeThrottle`, called for every chunk.

This wraps the file system and is not a callback of the scan, because writes and reads of indexes, snapshots and
checkpoints count too, and no function between would have to hand a callback on.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from seglog.errors import SeglogError
from seglog.storage.filesystem import File, FileSystem, OpenMode, PassingFile, PassingFileSystem

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from seglog.clock import Clock

WINDOW_MS = 300
_SLICE_SECONDS = 0.25


class Throttle:
    """A limit on bytes per second, as the average of windows of `WINDOW_MS`, shared by all
    threads of a cleaner or of a backup.

    When a window was too fast, the caller sleeps as long as the window's bytes should have taken. It holds the lock
    while it sleeps, so that the other threads wait too: the limit is on their sum. `stopped` is asked four times a
    second while sleeping, so that a low limit does not delay a shutdown.

    Kafka (server.util Throttler) checks the rate once a window, however many bytes pass within it; here the check comes
    as soon as the bytes exceed a window's worth.
    """

    def __init__(
        self,
        bytes_per_second: float,
        clock: Clock,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        if not bytes_per_second > 0:
            raise ValueError(f"a throttle needs a positive rate, not {bytes_per_second}")
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._stopped = stopped
        self._guard = threading.Lock()
        self._window_start = clock.monotonic()
        self._observed_bytes = 0

    def throttle(self, observed_bytes: int) -> None:
        """Counts bytes read or written since the last call, and sleeps if they came too fast."""
        with self._guard:
            self._observed_bytes += observed_bytes
            elapsed_ms = (self._clock.monotonic() - self._window_start) * 1000
            due_ms = self._observed_bytes / (self.bytes_per_second / 1000)
            if max(elapsed_ms, due_ms) <= WINDOW_MS or self._observed_bytes <= 0:
                return
            excess_ms = math.floor(due_ms - elapsed_ms + 0.5)
            if excess_ms > 0:
                self._sleep(excess_ms / 1000)
            self._window_start = self._clock.monotonic()
            self._observed_bytes = 0

    def _sleep(self, seconds: float) -> None:
        while seconds > 0 and not self._stopped():
            self._clock.sleep(min(seconds, _SLICE_SECONDS))
            seconds -= _SLICE_SECONDS


class CleaningStoppedError(SeglogError):
    """The round of a cleaner, or the run of a backup, was asked to stop; the log is as it was before."""


class Meter(Protocol):
    """Called for every read and write."""

    def before(self) -> None:
        """Called before each read, write or sync. An exception prevents it."""
        ...

    def read(self, size: int) -> None:
        """`size` bytes were read."""
        ...

    def written(self, size: int) -> None:
        """`size` bytes were written."""
        ...

    def syncing(self) -> None:
        """Called before a sync, which may take long."""
        ...


class Gate:
    """Counts bytes for `throttle` and asks `stopped`, for threads inside `cleaning()` or `opening()`."""

    def __init__(self, throttle: Throttle | None, stopped: Callable[[], bool]) -> None:
        self._throttle, self._stopped = throttle, stopped
        self._local = threading.local()

    def cleaning(self) -> AbstractContextManager[None]:
        """Throttles this thread's reads and writes and lets them be stopped, within the block."""
        return self._inside(self._throttle)

    def opening(self) -> AbstractContextManager[None]:
        """Lets this thread's reads and writes be stopped, within the block, without a throttle."""
        return self._inside(None)

    @contextmanager
    def _inside(self, throttle: Throttle | None) -> Iterator[None]:
        self._local.inside, self._local.throttle = True, throttle
        try:
            yield
        finally:
            self._local.inside, self._local.throttle = False, None

    def before(self) -> None:
        """Raises CleaningStoppedError once the work is to stop."""
        if getattr(self._local, "inside", False) and self._stopped():
            raise CleaningStoppedError("cleaning was stopped; the log is as it was")

    def read(self, size: int) -> None:
        """Sleeps if that was too fast."""
        throttle: Throttle | None = getattr(self._local, "throttle", None)
        if throttle is not None:
            throttle.throttle(size)

    written = read

    def syncing(self) -> None:
        """Does nothing: syncs are not throttled."""


class ReadMeter:
    """Calls `advance` with the bytes read, and `wait` before a sync: from any thread, but only from one at a time."""

    def __init__(self, advance: Callable[[int], None], wait: Callable[[str], None]) -> None:
        self._advance, self._wait, self._guard = advance, wait, threading.Lock()

    def before(self) -> None:
        """Does nothing."""

    def read(self, size: int) -> None:
        with self._guard:
            self._advance(size)

    def written(self, size: int) -> None:
        """Does nothing: the bytes were counted when they were read."""

    def syncing(self) -> None:
        with self._guard:
            self._wait("waiting for fsync")


class GatedFile(PassingFile):
    """A file whose reads, writes and syncs pass a gate."""

    def __init__(self, below: File, gate: Meter) -> None:
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
    """A file system of `GatedFile`s; every other call goes straight through."""

    def __init__(self, below: FileSystem, gate: Meter) -> None:
        super().__init__(below)
        self._gate = gate

    def open(self, path: Path, mode: OpenMode) -> File:
        return GatedFile(super().open(path, mode), self._gate)
