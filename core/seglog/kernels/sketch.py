"""Statistics in one pass over records: sizes by powers of two, distinct keys, frequent keys, time order.

Distinct keys are counted by HyperLogLog (P. Flajolet et al., 2007; 2^14 registers give a standard error of 0.8 %).
Frequent keys are found by a majority vote in each of many slots (J. S. Moore, 1981): it finds a key that has most of
its slot's records, with a lower bound of its count.
"""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import copy_bytes, kernel
from seglog.kernels.arrays import Bytes, Int64s, Records, WritableBytes, WritableInt64s, WritableTriples
from seglog.kernels.hashing import hash_key

REGISTER_BITS = 14
REGISTERS = 1 << REGISTER_BITS
SLOT_BITS = 12
SLOTS = 1 << SLOT_BITS
SLOT_KEY_BYTES = 64
BUCKETS = 33  # bucket 0 holds size 0, bucket n sizes from 2^(n-1) to 2^n - 1
_RANK_BITS = 64 - REGISTER_BITS  # bits of a hash that do not choose the register
_RANK_MASK = (1 << _RANK_BITS) - 1

# Columns of the votes (int64): hash, count and key size of each slot's candidate.
VOTE_HASH = 0
VOTE_COUNT = 1
VOTE_KEY_SIZE = 2
VOTE_COLUMNS = 3

# Counters (int64).
RECORDS = 0
NULL_KEYS = 1
TOMBSTONES = 2
HEADERS = 3
RECORDS_WITH_HEADERS = 4
KEY_BYTES = 5
VALUE_BYTES = 6
OUT_OF_ORDER = 7  # records older than an earlier one
NEWEST = 8
OLDEST = 9
LARGEST_KEY = 10
LARGEST_VALUE = 11
COUNTERS = 12


@kernel
def _bucket(size: int) -> int:
    bucket = 0
    while size > 0:
        size >>= 1
        bucket += 1
    return min(bucket, BUCKETS - 1)


@kernel
def _rank(hashed: int) -> int:
    """Returns 1 + the trailing zeros of the bits that do not choose the register."""
    rank = 1
    bits = (hashed >> REGISTER_BITS) & _RANK_MASK
    while rank <= _RANK_BITS and bits & 1 == 0:
        bits >>= 1
        rank += 1
    return rank


@kernel
def _vote(arena: Bytes, at: int, size: int, hashed: int, votes: WritableTriples, keys: WritableBytes) -> None:
    """Votes for a key in its slot. `votes` has shape (SLOTS, VOTE_COLUMNS); `keys` holds the candidates' bytes."""
    slot = (hashed >> 32) & (SLOTS - 1)
    if votes[slot, VOTE_COUNT] > 0 and votes[slot, VOTE_HASH] == hashed:
        votes[slot, VOTE_COUNT] += 1
    elif votes[slot, VOTE_COUNT] > 0:
        votes[slot, VOTE_COUNT] -= 1
    else:
        votes[slot, VOTE_HASH] = hashed
        votes[slot, VOTE_COUNT] = 1
        votes[slot, VOTE_KEY_SIZE] = size
        copy_bytes(arena, at, keys, slot * SLOT_KEY_BYTES, min(size, SLOT_KEY_BYTES))


@kernel
def count_records(
    arena: Bytes,
    rows: Records,
    seeds: Int64s,
    counters: WritableInt64s,
    key_sizes: WritableInt64s,
    value_sizes: WritableInt64s,
    registers: WritableBytes,
    votes: WritableTriples,
    keys: WritableBytes,
) -> None:
    """Adds `rows` (layout.RECORD) to the statistics. The constants above give the shapes.

    All are int64 except `keys` and `registers`, which are uint8.
    """
    for i in range(len(rows)):
        row = rows[i]
        key_size, value_size = int(row["key_size"]), int(row["value_size"])
        counters[RECORDS] += 1
        if key_size < 0:
            counters[NULL_KEYS] += 1
        else:
            at = int(row["key_position"])
            hashed = hash_key(arena, at, key_size, seeds)
            register = hashed & (REGISTERS - 1)
            rank = _rank(hashed)
            if rank > registers[register]:
                registers[register] = rank
            _vote(arena, at, key_size, hashed, votes, keys)
            key_sizes[_bucket(key_size)] += 1
            counters[KEY_BYTES] += key_size
            counters[LARGEST_KEY] = max(counters[LARGEST_KEY], key_size)
        if value_size < 0:
            if key_size >= 0:
                counters[TOMBSTONES] += 1
        else:
            value_sizes[_bucket(value_size)] += 1
            counters[VALUE_BYTES] += value_size
            counters[LARGEST_VALUE] = max(counters[LARGEST_VALUE], value_size)
        headers = int(row["header_count"])
        counters[HEADERS] += headers
        if headers > 0:
            counters[RECORDS_WITH_HEADERS] += 1
        timestamp = int(row["timestamp"])
        if timestamp >= 0:
            if timestamp < counters[NEWEST]:
                counters[OUT_OF_ORDER] += 1
            counters[NEWEST] = max(counters[NEWEST], timestamp)
            if counters[OLDEST] < 0 or timestamp < counters[OLDEST]:
                counters[OLDEST] = timestamp


def new_seeds() -> np.ndarray:
    """Returns fixed seeds, so that the statistics of a log are always the same."""
    return np.array([0x243F6A8885A308D3, 0x13198A2E03707344, 0x24093822299F31D0, 0x082EFA98EC4E6C89], dtype=np.int64)
