"""Bounds the memory of the columns of all indexes together: a disk has more indexes than fit memory."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

_LIMIT_BYTES = 64 << 20


class Holder(Protocol):
    """What holds columns that it can read again."""

    def let_go(self) -> None: ...


class HeldColumns:
    """The columns in memory. Beyond the limit the first ones go; their next use reads them again. For any thread."""

    def __init__(self, limit: int) -> None:
        self._limit, self._bytes = limit, 0
        self._held: dict[weakref.ref[Holder], int] = {}
        self._lock = threading.RLock()  # a holder may end, and call `_forget`, within `note`

    def note(self, holder: Holder, size: int) -> None:
        """Counts the columns of a holder, in place of those that it had, and lets others go."""
        last = weakref.ref(holder, self._forget)
        with self._lock:
            self._forget(last)
            self._held[last] = size
            self._bytes += size
            while self._bytes > self._limit and len(self._held) > 1:
                reference = next(iter(self._held))
                self._forget(reference)
                first = reference()
                if first is not None:
                    first.let_go()

    def _forget(self, reference: weakref.ref[Holder]) -> None:
        with self._lock:
            freed = self._held.pop(reference, 0)
            self._bytes -= freed


HELD = HeldColumns(_LIMIT_BYTES)
