"""Freed memory is shared by all threads of a command.

glibc keeps what a thread frees for that thread. Where several threads work by turns, that is several times what is in
use: 480 MiB instead of 210 for a round of 110 passes with eight threads, and 400 instead of 270 for a verification of
batches of 60 MB in an object store, whose library has threads of its own. No command took more of the CPU for it. A
library leaves the process alone; a command owns it.
"""

from __future__ import annotations

import sys

_M_ARENA_MAX = -8  # mallopt(3)


def share_freed_memory() -> None:
    """To be called before the threads begin; does nothing with another C library than glibc."""
    if sys.platform != "linux":
        return
    import ctypes  # few commands need it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
