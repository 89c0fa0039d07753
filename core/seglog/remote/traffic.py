"""What object stores were asked, how many bytes came, and what that costs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Prices:
    """A store's price list, in whatever currency. Defaults: Amazon S3 Standard in us-east-1 (2026), in US dollars, read
    from the same region, where bytes cost nothing; to the internet a gigabyte costs 0.09.
    """

    listings: float = 0.005  # a thousand; puts cost the same
    reads: float = 0.0004  # a thousand; heads cost the same
    gigabyte: float = 0.0  # 10^9 bytes


@dataclass
class Traffic:
    """Requests and bytes of a process. A request that obstore repeats by itself counts once."""

    listings: int = 0
    heads: int = 0
    gets: int = 0
    puts: int = 0
    bytes_read: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def requests(self) -> int:
        """All of them."""
        return self.listings + self.heads + self.gets + self.puts

    def cost(self, prices: Prices) -> float:
        """What it costs by a price list."""
        asked = (self.listings + self.puts) * prices.listings + (self.heads + self.gets) * prices.reads
        return asked / 1000 + self.bytes_read / 1e9 * prices.gigabyte

    @property
    def figures(self) -> tuple[int, int, int, int]:
        """Listings, heads, gets and bytes so far, as `count` takes them."""
        with self._guard:
            return self.listings, self.heads, self.gets, self.bytes_read

    def count(self, listings: int = 0, heads: int = 0, gets: int = 0, bytes_read: int = 0, puts: int = 0) -> None:
        """Adds to the figures; asked by any thread."""
        with self._guard:
            self.listings += listings
            self.heads += heads
            self.gets += gets
            self.bytes_read += bytes_read
            self.puts += puts


# What this process has asked, and, of a Spark job that it runs, what the tasks have.
OF_PROCESS = Traffic()
