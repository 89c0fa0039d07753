"""Memory that ends where memory ends: arrays whose first or last byte lies beside a page that nobody may touch.

A kernel that goes one byte too far dies there with SIGSEGV, whoever compiled it; so arrays are put here in a process of
their own, whose `Journal` says what it was about to do.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

_PAGE = mmap.PAGESIZE
_PROT_NONE = 0
_LEAST_BYTES = 1 << 14
_JOURNAL_BYTES = 4096


class Side(Enum):
    """Where the untouchable page is: after the last byte, or before the first."""

    AFTER = "after"
    BEFORE = "before"


class _Region:
    """`size` bytes (whole pages) between two pages that may not be touched."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = mmap.mmap(-1, size + 2 * _PAGE)
        self.bytes = np.frombuffer(self.memory, dtype=np.uint8)
        library = ctypes.CDLL(None, use_errno=True)
        for page in (self.bytes.ctypes.data, self.bytes.ctypes.data + _PAGE + size):
            if library.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(_PAGE), _PROT_NONE) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")


@dataclass(slots=True)
class Placed:
    """An array beside a guard page: what it was made from, itself, and the bytes of both (None: a column with gaps)."""

    origin: np.ndarray
    array: np.ndarray
    origin_bytes: np.ndarray | None
    bytes: np.ndarray

    def write_back(self) -> None:
        """Its contents become those of what it was made from."""
        if self.origin_bytes is None:
            self.origin[...] = self.array
        else:
            self.origin_bytes[:] = self.bytes

    def untouched(self) -> bool:
        """Whether it still holds what it was made from."""
        if self.origin_bytes is None:
            return np.array_equal(self.origin, self.array)
        return self.origin_bytes.tobytes() == self.bytes.tobytes()


class GuardedMemory:
    """Hands out arrays beside guard pages, and takes all of them back at once (`release`)."""

    def __init__(self) -> None:
        self._free: dict[int, list[_Region]] = {}
        self._taken: list[_Region] = []

    def like(self, array: np.ndarray, side: Side) -> Placed:
        """The same contents, type, strides and flags; all its bytes from first to last beside a guard."""
        extent = extent_of(array)
        region = self._region(extent)
        offset = _PAGE if side is Side.BEFORE else _PAGE + region.size - extent
        placed = np.ndarray(array.shape, array.dtype, region.memory, offset, array.strides)
        own = bytes_of(array)
        taken = region.bytes[offset : offset + extent]
        if own is None:
            placed[...] = array
        else:
            taken[:] = own
        if not array.flags.writeable:
            placed.flags.writeable = False
        return Placed(array, placed, own, taken)

    def release(self) -> None:
        """What `like` gave is used no more."""
        for region in self._taken:
            self._free[region.size].append(region)
        self._taken.clear()

    def _region(self, extent: int) -> _Region:
        size = _LEAST_BYTES if extent <= _LEAST_BYTES else 1 << (extent - 1).bit_length()
        free = self._free.get(size)
        if free is None:
            free = self._free[size] = []
        region = free.pop() if free else _Region(size)
        self._taken.append(region)
        return region


def bytes_of(array: np.ndarray) -> np.ndarray | None:
    """All bytes of an array, those between the fields of its rows too; None for a column with gaps."""
    return array.reshape(-1).view(np.uint8) if array.flags.c_contiguous else None


def extent_of(array: np.ndarray) -> int:
    """Bytes from the first one of an array to its last, gaps of a column included."""
    if array.flags.c_contiguous:
        return array.nbytes
    return sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)) + array.itemsize


class Journal:
    """What this process is about to do, in a file that its parent can read after its end."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_JOURNAL_BYTES))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _JOURNAL_BYTES)
        self.prefix = ""

    def __call__(self, text: str) -> None:
        line = f"{self.prefix}{text}\n".encode()
        self._memory[: len(line)] = line
