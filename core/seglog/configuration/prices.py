"""What requests to object stores cost (`remote.price.*`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prices:
    """A store's prices, in any currency. The defaults are those of Amazon S3 Standard in us-east-1 (2026), in US
    dollars, for reading in the same region, where bytes are free; to the internet a gigabyte costs 0.09.
    """

    listings: float = 0.005  # per thousand; puts cost the same
    reads: float = 0.0004  # per thousand; heads cost the same
    gigabyte: float = 0.0  # per 10^9 bytes
