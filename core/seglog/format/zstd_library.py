"""The addresses of libzstd's functions, for the kernels that call them for a run of batches (`kernels.runs`).

The library is the one that the zstd module of `codecs.zstd` contains or is linked with: its extension module, whatever
its name, exports it. If it does not, the slots are zero, and callers go batch by batch through `codecs.zstd`. The
results are the same, but Python is entered for every batch, and threads wait for each other.

Tried instead, CPU of `decode zstd` and `clean zstd` (tests/benchmarks/against_kafka) relative to this: the module batch
by batch, 1.56 and 1.60; the system's libzstd.so.1, 0.99 and 0.99, but of another version than the module's: damaged
frames that 1.5.7 refuses, 1.5.4 accepts, so that a log would read differently by the way it is read.

Source: zstd.h. ZSTD_decompressDCtx and ZSTD_compress2 are stable since version 1.4.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES

import numpy as np

from seglog.errors import UnsupportedError
from seglog.kernels import runs
from seglog.model import Compression

_LEAST_VERSION = 10400
_FUNCTIONS = ("ZSTD_decompressDCtx", "ZSTD_compress2", "ZSTD_createDCtx", "ZSTD_createCCtx", "ZSTD_versionNumber")
_COMPRESSION_LEVEL, _CONTENT_SIZE_FLAG = 100, 200  # ZSTD_cParameter


@cache
def _library() -> ctypes.CDLL | None:
    try:
        from seglog.format.codecs.zstd import zstd
    except UnsupportedError:
        return None
    for module in list(sys.modules.values()):
        # An extension module that is built into Python has no file.
        names, file = vars(module), getattr(module, "__file__", None) or ""
        if names.get("ZstdDecompressor") is zstd.ZstdDecompressor and file.endswith(tuple(EXTENSION_SUFFIXES)):
            library = ctypes.CDLL(file)
            known = all(hasattr(library, function) for function in _FUNCTIONS)
            return library if known and library.ZSTD_versionNumber() >= _LEAST_VERSION else None
    return None


def _address(library: ctypes.CDLL, function: str) -> int:
    return ctypes.cast(getattr(library, function), ctypes.c_void_p).value or 0


class _Contexts:
    """A pair of contexts, which are freed with the object."""

    def __init__(self) -> None:
        self.slots = np.zeros(runs.ZSTD_SLOTS, dtype=np.int64)
        library, levels = _library(), Compression.ZSTD.levels
        if library is None or levels is None:
            return
        decompress, compress = self._context(library, "DCtx"), self._context(library, "CCtx")
        if not decompress or not compress:
            return
        library.ZSTD_CCtx_setParameter(ctypes.c_void_p(compress), _CONTENT_SIZE_FLAG, 0)  # like Kafka's frames
        library.ZSTD_CCtx_setParameter(ctypes.c_void_p(compress), _COMPRESSION_LEVEL, levels.usual)
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
    """A thread's own contexts. They belong to an object of each thread, because all threads share this one.

    A thread makes them when it first needs them: most commands meet no zstd.
    """

    contexts: _Contexts | None = None


_of_thread = _OfThread()


def zstd_slots() -> np.ndarray:
    """Returns the `zstd` argument of `kernels.runs` (int64[ZSTD_SLOTS]) for this thread, with Kafka's default level.

    The contexts end with the thread.
    """
    if _of_thread.contexts is None:
        _of_thread.contexts = _Contexts()
    return _of_thread.contexts.slots
