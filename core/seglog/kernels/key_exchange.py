"""Exchanges keys between the tasks of a distributed cleaning (Spark).

1. `live_entries` lists an offset map: each key's place in the key store, and the ordinal of its newest record.
2. `assign` chooses a reducer for each key by its hash; `scatter` lays out ordinals, sizes and keys by reducer.
3. On a reducer, `merge` finds the newest entry of each key among those of all splits, and `look_up` the clean records
   that such an entry supersedes.

The hash only chooses the reducer and the slot. Keys are compared by their bytes, so equal hashes lose no record.
"""

from __future__ import annotations

from seglog.kernels._jit import copy_bytes, inlined, kernel, load_int32, load_int64, multiply_high, prefetch
from seglog.kernels.arrays import Bytes, Int32s, Int64s, WritableBytes, WritableInt32s, WritableInt64s, WritableUInt32s
from seglog.kernels.hashing import hash_key
from seglog.kernels.offset_map import ORDINAL_AT, entry_bytes, same_bytes

AHEAD = 16  # entries whose memory is prefetched


@kernel
def live_entries(
    store: Bytes, overhead: int, positions: WritableInt64s, sizes: WritableInt64s, ordinals: WritableInt64s
) -> int:
    """Lists the entries of an offset map under the offset strategy, which lie side by side in its key store.

    Fills key positions in `store`, key sizes and ordinals (int64), as many as there is room for; returns their number.
    """
    q = 0
    for n in range(len(positions)):
        if q + overhead > len(store):
            return n
        size = load_int32(store, q)
        if size < 0 or size > len(store) - q - overhead:
            return n
        positions[n] = q + overhead
        sizes[n] = size
        ordinals[n] = load_int64(store, q + ORDINAL_AT)
        q += entry_bytes(size, overhead)
    return len(positions)


@kernel
def assign(
    arena: Bytes,
    positions: Int64s,
    sizes: Int64s,
    seeds: Int64s,
    mask: int,
    reducers: int,
    targets: WritableInt32s,
    counts: WritableInt64s,
    key_bytes: WritableInt64s,
) -> None:
    """Fills `targets` (int32, one per key) with reducers, and adds up keys and key bytes per reducer (int64)."""
    for i in range(len(positions)):
        if i + AHEAD < len(positions):
            prefetch(arena, positions[i + AHEAD])
        key_hash = hash_key(arena, positions[i], sizes[i], seeds) & mask
        target = multiply_high(key_hash, reducers)
        targets[i] = target
        counts[target] += 1
        key_bytes[target] += sizes[i]


@kernel
def scatter(
    arena: Bytes,
    positions: Int64s,
    sizes: Int64s,
    ordinals: Int64s,
    targets: Int32s,
    entry_places: WritableInt64s,
    key_places: WritableInt64s,
    out_ordinals: WritableUInt32s,
    out_sizes: WritableUInt32s,
    out_keys: WritableBytes,
) -> None:
    """Lays out entries by target. The places (int64, one per target) tell where the next entry goes, and advance."""
    for i in range(len(positions)):
        target = targets[i]
        place = entry_places[target]
        size = sizes[i]
        out_ordinals[place] = ordinals[i]
        out_sizes[place] = size
        copy_bytes(arena, positions[i], out_keys, key_places[target], size)
        entry_places[target] = place + 1
        key_places[target] += size


@inlined
def _find(
    keys: Bytes,
    positions: Int64s,
    sizes: Int64s,
    hashes: Int64s,
    slots: Int64s,
    others: Bytes,
    position: int,
    size: int,
    key_hash: int,
) -> int:
    """Returns the slot that holds the key at `position` of `others`, or the empty slot where it belongs.

    The number of slots is a power of two.
    """
    last = len(slots) - 1
    slot = key_hash & last
    while True:
        j = slots[slot]
        if j < 0:
            return slot
        if hashes[j] == key_hash and sizes[j] == size and same_bytes(keys, positions[j], others, position, size):
            return slot
        slot = (slot + 1) & last


@kernel
def merge(
    keys: Bytes,
    positions: Int64s,
    sizes: Int64s,
    ranks: Int64s,
    seeds: Int64s,
    mask: int,
    hashes: WritableInt64s,
    slots: WritableInt64s,
    newest: WritableBytes,
) -> None:
    """Fills `newest` (uint8) with 1 for the entry of each key that has the highest rank (int64).

    `slots` (int64, a power of two above the number of entries) holds -1 before the call and the newest entries
    after it; `hashes` (int64) is filled in.
    """
    count = len(positions)
    for i in range(count):
        hashes[i] = hash_key(keys, positions[i], sizes[i], seeds) & mask
    for i in range(count):
        if i + AHEAD < count:
            prefetch(slots, hashes[i + AHEAD] & (len(slots) - 1))
        slot = _find(keys, positions, sizes, hashes, slots, keys, positions[i], sizes[i], hashes[i])
        j = slots[slot]
        if j >= 0 and ranks[i] < ranks[j]:
            newest[i] = 0
            continue
        if j >= 0:
            newest[j] = 0
        slots[slot] = i
        newest[i] = 1


@kernel
def look_up(
    keys: Bytes,
    positions: Int64s,
    sizes: Int64s,
    hashes: Int64s,
    slots: Int64s,
    others: Bytes,
    other_positions: Int64s,
    other_sizes: Int64s,
    seeds: Int64s,
    mask: int,
    found: WritableBytes,
) -> None:
    """Fills `found` (uint8) with 1 for each of the other keys that `merge` has put into the table."""
    for i in range(len(other_positions)):
        position, size = other_positions[i], other_sizes[i]
        key_hash = hash_key(others, position, size, seeds) & mask
        slot = _find(keys, positions, sizes, hashes, slots, others, position, size, key_hash)
        found[i] = 1 if slots[slot] >= 0 else 0
