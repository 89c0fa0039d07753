"""What `retain --free` asks for, how much of it each log directory has given, and which of them gives first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from seglog.errors import ArgumentError
from seglog.format.filenames import FileState
from seglog.operations.workspace import optional_size
from seglog.storage.filesystem import FileSystem

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Free space until `size` bytes are free on each log directory's file system, or with `more` that many more."""

    size: int
    more: bool = False

    @classmethod
    def of(cls, given: int | str | None) -> FreeSpace | None:
        """Returns the space of a number of bytes or of text such as `50GB` or `+10GB`; None for None."""
        if given is None:
            return None
        more = isinstance(given, str) and given.startswith("+")
        size = optional_size("free", given.removeprefix("+") if isinstance(given, str) else given)
        if size is None or size <= 0:
            raise ArgumentError("free", f"takes a size above 0, not {given}")
        return cls(size, more)


@dataclass(frozen=True, slots=True)
class Freed:
    """The result of `FreeSpace` in one log directory: of `wanted` bytes, `freed` were freed; `free` are free now, and
    `missing` are still wanted. `left_over` bytes of files of an unfinished deletion went before that, as they do with
    each command that opens the logs for writing. After a dry run these are the expected figures.
    """

    log_directory: Path
    wanted: int
    freed: int
    free: int
    missing: int
    left_over: int = 0

    @property
    def reached(self) -> bool:
        """True if nothing is missing."""
        return not self.missing


class SpaceToFree:
    """The space still to be freed on each file system: log directories may share one."""

    def __init__(self, fs: FileSystem, free: FreeSpace | None, dry_run: bool) -> None:
        self._fs, self._asked, self._dry_run = fs, free, dry_run
        self._freed: dict[int, int] = {}
        self._promised: dict[int, int] = {}  # bytes that a dry run would free
        self._reserved: dict[Path, int] = {}  # bytes that recovering a log directory will take

    def wanted(self, log_directory: Path, waiting: int) -> int:
        """Returns the bytes to free in `log_directory`, where files of `waiting` bytes are removed in any case."""
        free = self._asked
        if free is None:
            return 0
        device = self.device(log_directory)
        self._promise(device, waiting)
        if free.more:
            return max(0, free.size - self._freed.get(device, 0))
        return max(0, free.size - self.free(log_directory))

    def left(self, wanted: int, freed: int) -> int:
        """Returns the rest of `wanted` after `freed` bytes; without `more`, `wanted` already includes them."""
        free = self._asked
        return max(0, wanted - freed) if free is not None and free.more else wanted

    def take(self, log_directory: Path, wanted: int, freed: int, left_over: int) -> Freed:
        """Records the bytes freed in a log directory; returns the result."""
        device = self.device(log_directory)
        self._freed[device] = self._freed.get(device, 0) + freed
        self._promise(device, freed)
        free, asked = self.free(log_directory), self._asked
        missing = wanted - freed if asked is None or asked.more else asked.size - free
        return Freed(log_directory, wanted, freed, max(0, free), max(0, missing), left_over)

    def reserve(self, log_directory: Path, size: int) -> None:
        """Reserves `size` bytes for the recovery of a log directory, instead of those reserved for it before."""
        self._reserved[log_directory] = size

    def _promise(self, device: int, size: int) -> None:
        if self._dry_run:
            self._promised[device] = self._promised.get(device, 0) + size

    def spend(self, log_directory: Path, size: int) -> None:
        """Counts `size` bytes as taken, which a run takes at this point."""
        self._promise(self.device(log_directory), -size)

    def now(self, log_directory: Path) -> int:
        """Returns the bytes that are free for a log directory at this point, in a dry run as if it were the run."""
        return self._fs.free_bytes(log_directory) + self._promised.get(self.device(log_directory), 0)

    def free(self, log_directory: Path) -> int:
        """Returns the bytes that are free for a log directory without those that are reserved."""
        device = self.device(log_directory)
        reserved = (size for path, size in self._reserved.items() if size and self.device(path) == device)
        return self.now(log_directory) - sum(reserved)

    def device(self, log_directory: Path) -> int:
        """Returns the number of the file system that a log directory is on."""
        status = self._fs.status(log_directory)
        return -1 if status is None else status.device


@dataclass(frozen=True, slots=True)
class Offer:
    """What a log directory can give to its disk at most, and what recovering its logs takes there at most and in the
    end, in bytes."""

    gives: int
    takes: int
    keeps: int


def by_room(directories: Sequence[_T], offers: Sequence[Offer], free: int) -> list[_T]:
    """Returns log directories of one disk in the order in which they get its room, of which `free` bytes are left.

    Each is the first for whose recovery the room suffices that it finds and gives itself: what only takes room waits
    for what gives some. If it suffices for none, the one that gives most is next.
    """
    order: list[int] = []
    waiting = list(range(len(offers)))
    while waiting:
        enough = (number for number in waiting if offers[number].takes <= free + offers[number].gives)
        chosen = next(enough, max(waiting, key=lambda number: offers[number].gives))
        free = max(0, free + offers[chosen].gives - offers[chosen].keeps)
        waiting.remove(chosen)
        order.append(chosen)
    return [directories[number] for number in order]


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The `.deleted` files in a partition, and the disk space that they take in bytes."""

    files: int = 0
    size: int = 0


NO_LEFTOVERS = Leftovers()


def leftovers_of(fs: FileSystem, path: Path) -> Leftovers:
    """Returns the `.deleted` files that opening the log for writing removes; none if they are not known."""
    try:
        names = [name for name in fs.list(path) if name.endswith(FileState.DELETED.value)]
        waiting = [fs.status(path / name) for name in names]
    except OSError:
        return NO_LEFTOVERS  # reported when the log is opened
    sizes = [status.allocated for status in waiting if status is not None and not status.no_file]
    return Leftovers(len(sizes), sum(sizes))
