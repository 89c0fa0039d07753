"""Keys of many rows at once: their hashes, for joins that keep no keys, and the search for one key."""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import kernel, load_byte
from seglog.kernels.arrays import Bytes, Int32Column, Int64s, Records, WritableBools, WritableInt64s
from seglog.kernels.hashing import hash_key

OUTSIDE = -2  # the hash of a span that leaves the arena
NULL = -1


@kernel
def hash_spans(arena: Bytes, positions: Int32Column, sizes: Int32Column, seeds: Int64s, out: WritableInt64s) -> int:
    """Fills `out` with the keyed hashes of the spans of `sizes[i]` bytes at `positions[i]`; NULL for a negative size.

    `positions` and `sizes` are int32 (any stride), `seeds` int64[hashing.SEED_WORDS]. Returns the number of nulls.
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


@kernel
def match_keys(arena: Bytes, rows: Records, key: Bytes, out: WritableBools) -> int:
    """Fills `out` (one per row) with True if the record's key equals `key`; returns the number of such records.

    A null key equals no key.
    """
    found = 0
    for i in range(len(rows)):
        same = int(rows[i]["key_size"]) == len(key)
        if same:
            at = int(rows[i]["key_position"])
            for k in range(len(key)):
                if load_byte(arena, at + k) != load_byte(key, k):
                    same = False
                    break
        out[i] = same
        if same:
            found += 1
    return found
