"""A bounded cache of bytes: blocks of remote objects, decoded chunks of tiered segments."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class BytesCache(Generic[Key]):
    """The pieces that were used last, `capacity` bytes of them at most; shared by threads."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.held = capacity, 0
        self._pieces: OrderedDict[Key, bytes] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: Key) -> bytes | None:
        """The piece, which is now the last one used; None where it is not held."""
        with self._guard:
            if key not in self._pieces:
                return None
            self._pieces.move_to_end(key)
            return self._pieces[key]

    def put(self, key: Key, piece: bytes) -> None:
        """Holds a piece in place of those that were not used for longest; one larger than the cache is not held."""
        with self._guard:
            self.held -= len(self._pieces.pop(key, b""))
            if len(piece) > self.capacity:
                return
            self._pieces[key] = piece
            self.held += len(piece)
            while self.held > self.capacity:
                self.held -= len(self._pieces.popitem(last=False)[1])
