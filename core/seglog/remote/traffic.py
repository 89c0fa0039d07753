"""What object stores were asked, and how many bytes came."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class Traffic:
    """Requests and bytes of a process. A request that obstore repeats by itself counts once."""

    listings: int = 0
    heads: int = 0
    gets: int = 0
    bytes_read: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def requests(self) -> int:
        """All of them."""
        return self.listings + self.heads + self.gets

    def count(self, listings: int = 0, heads: int = 0, gets: int = 0, bytes_read: int = 0) -> None:
        """Adds to the figures; asked by any thread."""
        with self._guard:
            self.listings += listings
            self.heads += heads
            self.gets += gets
            self.bytes_read += bytes_read
