"""Counts the requests to object stores and the bytes read, and computes their cost."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from seglog.configuration.prices import Prices


@dataclass
class Traffic:
    """The requests and bytes of a process. A request that obstore retries by itself counts once."""

    listings: int = 0
    heads: int = 0
    gets: int = 0
    puts: int = 0
    bytes_read: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def requests(self) -> int:
        """The number of all requests."""
        return self.listings + self.heads + self.gets + self.puts

    def cost(self, prices: Prices) -> float:
        """Returns the cost by these prices."""
        asked = (self.listings + self.puts) * prices.listings + (self.heads + self.gets) * prices.reads
        return asked / 1000 + self.bytes_read / 1e9 * prices.gigabyte

    @property
    def figures(self) -> tuple[int, int, int, int]:
        """Listings, heads, gets and bytes so far, in the order of `count`'s parameters."""
        with self._guard:
            return self.listings, self.heads, self.gets, self.bytes_read

    def count(self, listings: int = 0, heads: int = 0, gets: int = 0, bytes_read: int = 0, puts: int = 0) -> None:
        """Adds to the figures. Thread-safe."""
        with self._guard:
            self.listings += listings
            self.heads += heads
            self.gets += gets
            self.bytes_read += bytes_read
            self.puts += puts


# The traffic of this process, and of the tasks of a Spark job that it runs.
OF_PROCESS = Traffic()
