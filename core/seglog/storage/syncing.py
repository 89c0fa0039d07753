"""Getting the bytes of an open file to stable storage, and hurrying them there."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable
from functools import cache

_SYNC_FILE_RANGE_WRITE = 2


def start_writing(descriptor: int, position: int, size: int) -> None:
    """Lets the disk begin with these bytes, where the system has a call for it."""
    start = _sync_file_range()
    if start is not None:
        start(descriptor, position, size, _SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux's call that starts writing a range and waits for nothing; Python has no name for it."""
    if sys.platform != "linux":
        return None
    import ctypes  # few commands write so much

    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def sync(descriptor: int) -> None:
    """`fsync`; on macOS the call that also empties the drive's cache."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)
