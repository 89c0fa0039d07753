"""Callbacks that report the progress of long work."""

from __future__ import annotations

from collections.abc import Callable

# Called with the number of bytes read since the last call.
BytesRead = Callable[[int], None]

# Called with the amount done and the total, in bytes or logs.
DoneOfAll = Callable[[int, int], None]
