"""libzstd's functions by address, for kernels that call them run after run (`kernels.runs`).

zstandard's wheels carry the library in an extension module that exports it; a system's own shared library does too.
Where neither is found, the slots are zero, and whoever asked goes batch by batch through `compression`, with the same
results: only threads then wait for each other.

Source: zstd.h (ZSTD_decompressDCtx, ZSTD_compress2), whose stable functions these are since 1.4.
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
_LEVEL, _CONTENT_SIZE_FLAG = 100, 200  # ZSTD_cParameter
_FUNCTIONS = ("ZSTD_decompressDCtx", "ZSTD_compress2", "ZSTD_createDCtx", "ZSTD_createCCtx", "ZSTD_versionNumber")


@cache
def _library() -> ctypes.CDLL | None:
    for name in _names():
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue  # built for something else, or needs what is not there
        known = all(hasattr(library, function) for function in _FUNCTIONS)
        if known and library.ZSTD_versionNumber() >= _LEAST_VERSION:
            return library
    return None


def _names() -> Iterator[str]:
    extension = importlib.util.find_spec("zstandard._cffi")
    if extension is not None and extension.origin is not None:
        yield extension.origin
    # imported where it is wanted: it brings tempfile and random along, and asks other programs
    import ctypes.util

    system = ctypes.util.find_library("zstd")
    if system is not None:
        yield system


def _address(library: ctypes.CDLL, function: str) -> int:
    return ctypes.cast(getattr(library, function), ctypes.c_void_p).value or 0


class _Contexts:
    """A pair of contexts, freed with the object."""

    def __init__(self) -> None:
        self.slots = np.zeros(runs.ZSTD_SLOTS, dtype=np.int64)
        library = _library()
        if library is None:
            return
        decompress, compress = self._context(library, "DCtx"), self._context(library, "CCtx")
        if not decompress or not compress:
            return
        library.ZSTD_CCtx_setParameter(ctypes.c_void_p(compress), _CONTENT_SIZE_FLAG, 0)  # as Kafka's frames
        library.ZSTD_CCtx_setParameter(ctypes.c_void_p(compress), _LEVEL, 3)
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
    """A thread's own contexts. They hang on an object of the thread's: this one is the same for all of them."""

    def __init__(self) -> None:
        self.contexts = _Contexts()


_of_thread = _OfThread()


def zstd_slots() -> np.ndarray:
    """The `zstd` argument of `kernels.runs` (int64[ZSTD_SLOTS]) for this thread; level 3, Kafka's default.

    The contexts end with the thread.
    """
    return _of_thread.contexts.slots
