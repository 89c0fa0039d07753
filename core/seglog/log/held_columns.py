"""Bounds the memory of the columns of all indexes together: a disk has more indexes than fit memory."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Protocol

_LIMIT_BYTES = 64 << 20


class Holder(Protocol):
    """What holds columns that it can read again."""

    def let_go(self) -> None: ...


class HeldColumns:
    """The columns in memory. Beyond the limit the first ones go; their next use reads them again. For any thread."""

    def __init__(self, limit: int) -> None:
        self._limit, self._bytes = limit, 0
        self._held: deque[tuple[weakref.ref[Holder], int]] = deque()
        self._lock = threading.Lock()

    def note(self, holder: Holder, size: int) -> None:
        """Counts the columns of a holder, and lets others go."""
        with self._lock:
            self._held.append((weakref.ref(holder), size))
            self._bytes += size
            while self._bytes > self._limit and len(self._held) > 1:
                reference, freed = self._held.popleft()
                self._bytes -= freed
                first = reference()
                if first is not None and first is not holder:
                    first.let_go()


HELD = HeldColumns(_LIMIT_BYTES)
