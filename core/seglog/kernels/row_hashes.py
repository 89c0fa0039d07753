"""Hashes of many spans of an arena at once, for joins by key that keep no keys."""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import kernel
from seglog.kernels.arrays import Bytes, Int32Column, Int64s, WritableInt64s
from seglog.kernels.hashing import hash_key

OUTSIDE = -2  # what a span that leaves the arena hashes to
NULL = -1


@kernel
def hash_spans(arena: Bytes, positions: Int32Column, sizes: Int32Column, seeds: Int64s, out: WritableInt64s) -> int:
    """Fills `out` (int64) with the keyed hash of `arena[positions[i]:+sizes[i]]`; NULL for a negative size.

    `positions` and `sizes` are int32 (any stride), `seeds` int64[hashing.SEED_WORDS]. Returns how many are null.
    """
    nulls = 0
    for i in range(len(positions)):
        position = np.int64(positions[i])
        size = np.int64(sizes[i])
        if size < 0:
            out[i] = NULL
            nulls += 1
        elif position < 0 or size > len(arena) - position:
            out[i] = OUTSIDE
        else:
            out[i] = hash_key(arena, position, size, seeds)
    return nulls
