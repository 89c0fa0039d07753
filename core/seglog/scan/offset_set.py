"""A set of offsets of one partition, looked up in columns of batches and records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np


class OffsetSet:
    """A set of offsets of one partition."""

    def __init__(self, offsets: Iterable[int]) -> None:
        self._offsets = np.unique(np.fromiter(offsets, dtype=np.int64))

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[int]:
        return iter(self._offsets.tolist())

    def reaches(self, first_offset: int, last_offset: int | None) -> bool:
        """True if one of them lies in a range (a last offset of None: no end)."""
        first = int(np.searchsorted(self._offsets, first_offset))
        return first < len(self) and (last_offset is None or int(self._offsets[first]) <= last_offset)

    def may_be_in(self, batches: np.ndarray) -> np.ndarray:
        """Returns which of consecutive batches (rows of layout.BATCH) may hold one of them (bool)."""
        # A wrapper of magic 0 or 1 has the offset of its last message; it may begin right after the batch before.
        firsts = batches["base_offset"].copy()
        legacy = batches["magic"] < 2
        if legacy.any():
            before = np.concatenate(([np.int64(-1)], batches["last_offset"][:-1])) + 1
            firsts[legacy] = np.minimum(firsts, before)[legacy]
        first = np.searchsorted(self._offsets, firsts, side="left")
        within: np.ndarray = first < np.searchsorted(self._offsets, batches["last_offset"], side="right")
        return within

    def mask(self, offsets: np.ndarray) -> np.ndarray:
        """Returns which of some offsets are in it (bool)."""
        places = np.searchsorted(self._offsets, offsets)
        inside = places < len(self)
        mask = np.zeros(len(offsets), dtype=np.bool_)
        mask[inside] = self._offsets[places[inside]] == offsets[inside]
        return mask
