"""A bounded cache of bytes: parts of remote objects, decoded chunks of tiered segments."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sized
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Cached = TypeVar("Cached", bound=Sized)  # bytes, or a view of some


class BytesCache(Generic[Key, Cached]):
    """The most recently used pieces, at most `capacity` bytes of them; shared by threads."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.held = capacity, 0
        self._pieces: OrderedDict[Key, Cached] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: Key) -> Cached | None:
        """Returns the piece, which becomes the most recently used one; None if it is not held."""
        with self._guard:
            if key not in self._pieces:
                return None
            self._pieces.move_to_end(key)
            return self._pieces[key]

    def drop(self, key: Key) -> None:
        """Forgets a piece."""
        with self._guard:
            if key in self._pieces:
                self.held -= len(self._pieces.pop(key))

    def put(self, key: Key, piece: Cached) -> list[Key]:
        """Holds a piece and drops the least recently used ones; a piece larger than the cache is not held.

        Returns the keys of the dropped pieces, which may include the new one.
        """
        gone: list[Key] = []
        with self._guard:
            if key in self._pieces:
                self.held -= len(self._pieces.pop(key))
            if len(piece) > self.capacity:
                return [key]
            self._pieces[key] = piece
            self.held += len(piece)
            while self.held > self.capacity:
                other, dropped = self._pieces.popitem(last=False)
                self.held -= len(dropped)
                gone.append(other)
        return gone
