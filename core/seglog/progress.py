"""What long work is called back with while it runs, by what is counted."""

from __future__ import annotations

from collections.abc import Callable

# Called with the number of bytes that were read since the last call.
BytesRead = Callable[[int], None]

# Called with how much is done, and how much there is: bytes, or logs.
DoneOfAll = Callable[[int, int], None]
