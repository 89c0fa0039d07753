"""A set of keys, looked up in columns of records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np

from seglog.format.columns import Records
from seglog.kernels.hashing import SEED_WORDS
from seglog.kernels.row_keys import hash_spans, match_keys

_SLOTS = 1 << 16


class KeySet:
    """A set of keys, compared as bytes. A table of their hashes leaves few candidates, so that a thousand keys cost
    about as much as one.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = frozenset(keys)
        self._seeds = np.frombuffer(os.urandom(8 * SEED_WORDS), dtype=np.int64)
        sizes = np.array([len(key) for key in self._keys], dtype=np.int32)
        arena = np.frombuffer(b"".join(self._keys), dtype=np.uint8)
        self._hashes = np.sort(self._hashed(arena, np.cumsum(sizes, dtype=np.int32) - sizes, sizes))
        self._taken = np.zeros(_SLOTS, dtype=np.bool_)
        self._taken[self._hashes & (_SLOTS - 1)] = True

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: bytes | None) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._keys)

    def mask(self, records: Records) -> np.ndarray:
        """Returns which records have one of the keys (bool, one a record). A null key is never one of them."""
        rows, arena = records.rows, records.arena
        mask = np.zeros(len(rows), dtype=np.bool_)
        if len(self._keys) == 1:
            match_keys(arena, rows, np.frombuffer(next(iter(self._keys)), dtype=np.uint8), mask)
            return mask
        hashes = self._hashed(arena, rows["key_position"], rows["key_size"])
        likely = np.flatnonzero(self._taken[hashes & (_SLOTS - 1)])
        likely = likely[np.isin(hashes[likely], self._hashes) & (rows["key_size"][likely] >= 0)]
        for i in likely.tolist():
            mask[i] = records.key(i) in self._keys
        return mask

    def _hashed(self, arena: np.ndarray, positions: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        hashes = np.empty(len(sizes), dtype=np.int64)
        hash_spans(arena, positions, sizes, self._seeds, hashes)
        return hashes
