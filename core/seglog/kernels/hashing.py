"""The keyed hash that places keys in the offset map.

It belongs to the wyhash family: 64 bits from folded 128-bit products, keyed with random words drawn for every round,
so that nobody can prepare keys that collide. The hash only says where to look: the offset map compares the bytes of
keys, so the quality of the hash affects speed, never which record survives.
"""

from __future__ import annotations

from seglog.kernels._jit import inlined, load_byte, load_little_int64, load_uint32, multiply_fold
from seglog.kernels.arrays import Bytes, Int64s

SEED_WORDS = 4


@inlined
def hash_key(data: Bytes, p: int, size: int, seeds: Int64s) -> int:
    """Returns a 64-bit hash of the `size` bytes at `p`. The caller checks the bounds; `seeds` is int64[SEED_WORDS]."""
    state = seeds[0]
    end = p + size
    if size >= 16:
        while end - p > 16:
            state = multiply_fold(load_little_int64(data, p) ^ seeds[1], load_little_int64(data, p + 8) ^ state)
            p += 16
        first = load_little_int64(data, end - 16)
        second = load_little_int64(data, end - 8)
    elif size >= 8:
        first = load_little_int64(data, p)
        second = load_little_int64(data, end - 8)
    elif size >= 4:
        first = load_uint32(data, p)
        second = load_uint32(data, end - 4)
    elif size > 0:
        first = load_byte(data, p) << 16 | load_byte(data, p + (size >> 1)) << 8 | load_byte(data, end - 1)
        second = 0
    else:
        first = 0
        second = 0
    state = multiply_fold(first ^ seeds[1], second ^ state)
    hashed: int = multiply_fold(state ^ seeds[2], size ^ seeds[3])
    return hashed
