"""The addresses of libzstd's functions, for the kernels that call them for a run of batches (`kernels.runs`).

The extension module in zstandard's wheels exports the library; so does a shared library of the system. If neither is
found, the slots are zero, and callers go batch by batch through `compression`. The results are the same, but threads
wait for each other.

Source: zstd.h. ZSTD_decompressDCtx and ZSTD_compress2 are stable since version 1.4.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
import weakref
from collections.abc import Iterator
from functools import cache

import numpy as np

from seglog.kernels import runs

_LEAST_VERSION = 10400
_COMPRESSION_LEVEL, _CONTENT_SIZE_FLAG = 100, 200  # ZSTD_cParameter
_LEVEL = 3  # Kafka's default
_FUNCTIONS = ("ZSTD_decompressDCtx", "ZSTD_compress2", "ZSTD_createDCtx", "ZSTD_createCCtx", "ZSTD_versionNumber")


@cache
def _library() -> ctypes.CDLL | None:
    for name in _names():
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue  # built for another platform, or a dependency is missing
        known = all(hasattr(library, function) for function in _FUNCTIONS)
        if known and library.ZSTD_versionNumber() >= _LEAST_VERSION:
            return library
    return None


def _names() -> Iterator[str]:
    extension = importlib.util.find_spec("zstandard._cffi")
    if extension is not None and extension.origin is not None:
        yield extension.origin
    # Imported late: it imports tempfile and random, and runs other programs.
    import ctypes.util

    system = ctypes.util.find_library("zstd")
    if system is not None:
        yield system


def _address(library: ctypes.CDLL, function: str) -> int:
    return ctypes.cast(getattr(library, function), ctypes.c_void_p).value or 0


class _Contexts:
    """A pair of contexts, which are freed with the object."""

    def __init__(self) -> None:
        self.slots = np.zeros(runs.ZSTD_SLOTS, dtype=np.int64)
        library = _library()
        if library is None:
            return
        decompress, compress = self._context(library, "DCtx"), self._context(library, "CCtx")
        if not decompress or not compress:
            return
        library.ZSTD_CCtx_setParameter(ctypes.c_void_p(compress), _CONTENT_SIZE_FLAG, 0)  # like Kafka's frames
        library.ZSTD_CCtx_setParameter(ctypes.c_void_p(compress), _COMPRESSION_LEVEL, _LEVEL)
        self.slots[runs.DECOMPRESS] = _address(library, "ZSTD_decompressDCtx")
        self.slots[runs.DECOMPRESS_CONTEXT] = decompress
        self.slots[runs.COMPRESS] = _address(library, "ZSTD_compress2")
        self.slots[runs.COMPRESS_CONTEXT] = compress

    def _context(self, library: ctypes.CDLL, kind: str) -> int | None:
        create, free = getattr(library, f"ZSTD_create{kind}"), getattr(library, f"ZSTD_free{kind}")
        create.restype = ctypes.c_void_p
        context: int | None = create()
        if context:
            weakref.finalize(self, free, ctypes.c_void_p(context))
        return context


class _OfThread(threading.local):
    """A thread's own contexts. They belong to an object of each thread, because all threads share this one."""

    def __init__(self) -> None:
        self.contexts = _Contexts()


_of_thread = _OfThread()


def zstd_slots() -> np.ndarray:
    """Returns the `zstd` argument of `kernels.runs` (int64[ZSTD_SLOTS]) for this thread, with Kafka's default level.

    The contexts end with the thread.
    """
    return _of_thread.contexts.slots
