"""What `retain --free` asks for, and how much of it each log directory has given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seglog.errors import ArgumentError
from seglog.operations.workspace import optional_size
from seglog.storage.filesystem import FileSystem


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

    def wanted(self, log_directory: Path, waiting: int) -> int:
        """Returns the bytes to free in `log_directory`, where files of `waiting` bytes are removed in any case."""
        free = self._asked
        if free is None:
            return 0
        device = self._device(log_directory)
        self._promise(device, waiting)
        if free.more:
            return max(0, free.size - self._freed.get(device, 0))
        return max(0, free.size - self._free(log_directory))

    def left(self, wanted: int, freed: int) -> int:
        """Returns the rest of `wanted` after `freed` bytes; without `more`, `wanted` already includes them."""
        free = self._asked
        return max(0, wanted - freed) if free is not None and free.more else wanted

    def take(self, log_directory: Path, wanted: int, freed: int, left_over: int) -> Freed:
        """Records the bytes freed in a log directory; returns the result."""
        device = self._device(log_directory)
        self._freed[device] = self._freed.get(device, 0) + freed
        self._promise(device, freed)
        free, asked = self._free(log_directory), self._asked
        missing = wanted - freed if asked is None or asked.more else asked.size - free
        return Freed(log_directory, wanted, freed, free, max(0, missing), left_over)

    def _promise(self, device: int, size: int) -> None:
        if self._dry_run:
            self._promised[device] = self._promised.get(device, 0) + size

    def _free(self, log_directory: Path) -> int:
        return self._fs.free_bytes(log_directory) + self._promised.get(self._device(log_directory), 0)

    def _device(self, log_directory: Path) -> int:
        status = self._fs.status(log_directory)
        return -1 if status is None else status.device
