"""The offset map: which record of each key survives, found in one pass over the records (Kafka: SkimpyOffsetMap).

Kafka's map keeps a digest of the key and an offset. This one keeps the key's bytes and the record's *ordinal* (its
number among the records indexed), and a bit for every ordinal that tells whether the record survives:

    slot (8 bytes)      place of the key in the key store + 1, in steps of 4 bytes (40 bits) | tag (24 bits)
    key store           size (4 bytes), ordinal of the key's record that survives so far (8), with a strategy other
                        than offset also version (8) and presence (4), key
    survivors           one bit a record

1. Records are gathered in blocks of up to 64: key spans, hashes; each one's slot is prefetched.
2. Slots whose tag fits have their key prefetched from the store. (So slots are small: half of them are empty, and
   what a key needs besides lies with the key, which is fetched anyway.)
3. Each record is put: a new key enters; for a known one, the bytes being equal, the older record's bit is cleared
   and the newer one's is set. Because keys are compared, a hash collision costs time and never a record.
4. When no further key fits, records of keys that are not in the map stay *unsettled*; another pass over the
   records, with an empty map, settles as many more (state FULL).

The copy then asks the bits, in order, and touches the map only for records in front of the first dirty offset.
"""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import (
    copy_bytes,
    inlined,
    kernel,
    load_byte,
    load_int32,
    load_int64,
    load_little_int64,
    multiply_high,
    prefetch,
    store_int32,
    store_int64,
)
from seglog.kernels.hashing import hash_key
from seglog.kernels.key_blocks import (
    BLOCK_ROW_BYTES,
    SLOT_BYTES,
    clear_bit,
    gather,
    gather_rows,
    set_bit,
)
from seglog.kernels.records import RECORDS_VALID

# What `index_batches` and `index_rows` return; a positive number is a record status (kernels.records).
INDEX_COMPLETE = 0
INDEX_GROW = -1  # the slots must grow before work goes on
INDEX_STORE = -2  # the key store must grow
INDEX_FULL = -3  # the first record that found no room: the caller provides `settled` and sets TRACKING

# State (int64) that goes from call to call.
ENTRIES = 0
STORE_USED = 1
NEXT_ORDINAL = 2
CURSOR = 3  # batch (or row) to gather next
POSITION = 4  # of the next record in that batch; -1 before its first
RECORDS_DONE = 5  # in that batch
BLOCK_ROWS = 6
BLOCK_DONE = 7
FULL = 8  # 1 once a record stayed unsettled
UNSETTLED = 9  # how many
WITHOUT_KEY = 10  # records without key, counted while COUNTING
STATE_SLOTS = 11

# Settings (int64), constant during a call.
SLOTS = 0
ENTRY_LIMIT = 1  # most keys, ever
GROW_AT = 2  # most keys in this many slots
STORE_BYTES = 3  # size of the key store now
STORE_LIMIT = 4
FIRST_DIRTY = 5
TRACKING = 6  # 1: `settled` counts
HASH_MASK = 7  # -1; tests weaken the hash with it
VERSION = 8  # 0: by offset, 1: by timestamp, 2: by header
COUNTING = 9  # 1 in the first pass
SETTINGS_SLOTS = 10

AHEAD = 24  # slots whose keys are asked for before they are moved


@inlined
def _same_bytes(a: np.ndarray, i: int, b: np.ndarray, j: int, size: int) -> bool:
    if size >= 8:
        stop = i + size - 8
        while i < stop:
            if load_little_int64(a, i) != load_little_int64(b, j):
                return False
            i += 8
            j += 8
        back = i - stop  # the last eight bytes, which may overlap those before
        same: bool = load_little_int64(a, stop) == load_little_int64(b, j - back)
        return same
    for k in range(size):  # noqa: SIM110 (kernels have no generators)
        if load_byte(a, i + k) != load_byte(b, j + k):
            return False
    return True


@inlined
def find_key(
    slots: np.ndarray,
    slot_count: int,
    store: np.ndarray,
    overhead: int,
    data: np.ndarray,
    key_position: int,
    key_size: int,
    key_hash: int,
) -> tuple[int, int]:
    """(slot, its word) of the key, or (the empty slot where it belongs, 0)."""
    tag = key_hash & 0xFFFFFF
    i = multiply_high(key_hash, slot_count)
    while True:
        word = load_int64(slots, SLOT_BYTES * i)
        if word == 0:
            return i, word
        if word & 0xFFFFFF == tag:
            q = ((word >> 24) - 1) * 4
            if load_int32(store, q) == key_size and _same_bytes(store, q + overhead, data, key_position, key_size):
                return i, word
        i += 1
        if i == slot_count:
            i = 0


@kernel
def _prefetch_keys(
    slots: np.ndarray, slot_count: int, store: np.ndarray, overhead: int, block: np.ndarray, n: int
) -> None:
    for k in range(n):
        key_hash = load_int64(block, k * BLOCK_ROW_BYTES)
        word = load_int64(slots, SLOT_BYTES * multiply_high(key_hash, slot_count))
        if word != 0 and word & 0xFFFFFF == key_hash & 0xFFFFFF:
            q = ((word >> 24) - 1) * 4
            prefetch(store, q)
            prefetch(store, q + overhead + load_int64(block, k * BLOCK_ROW_BYTES + 16) - 1)  # a key lies as it comes


@inlined
def _key_bytes(key_size: int, overhead: int) -> int:
    return (overhead + key_size + 3) & ~3


@kernel
def _put_block(
    arena: np.ndarray,
    state: np.ndarray,
    settings: np.ndarray,
    slots: np.ndarray,
    store: np.ndarray,
    survivors: np.ndarray,
    settled: np.ndarray,
    block: np.ndarray,
) -> int:
    """Puts the block's records from BLOCK_DONE on; returns INDEX_COMPLETE, or why it stopped at BLOCK_DONE."""
    slot_count = settings[0]
    versioned = settings[8] != 0
    overhead = 24 if versioned else 12
    tracking = settings[6] != 0
    entry_limit = min(settings[1], settings[2])
    for k in range(state[7], state[6]):
        at = k * BLOCK_ROW_BYTES
        key_hash = load_int64(block, at)
        key_position = load_int64(block, at + 8)
        key_size = load_int64(block, at + 16)
        ordinal = load_int64(block, at + 24)
        slot, word = find_key(slots, slot_count, store, overhead, arena, key_position, key_size, key_hash)
        if word != 0:
            wins = True
            q = ((word >> 24) - 1) * 4
            if versioned:
                version = load_int64(block, at + 32)
                present = load_int64(block, at + 40)
                older = load_int64(store, q + 12)
                older_present = load_int32(store, q + 20)
                wins = present > older_present or (present == older_present and version >= older)
                if wins:
                    store_int64(store, q + 12, version)
                    store_int32(store, q + 20, present)
            if wins:
                clear_bit(survivors, load_int64(store, q + 4))
                set_bit(survivors, ordinal)
                store_int64(store, q + 4, ordinal)
        else:
            entries = state[0]
            used = state[1]
            behind = used + _key_bytes(key_size, overhead)
            if entries >= entry_limit or behind > settings[3]:
                if entries >= settings[1] or (behind > settings[4] and entries > 0):
                    if not tracking:
                        state[7] = k
                        return INDEX_FULL
                    state[8] = 1
                    state[9] += 1
                    continue
                state[7] = k
                return INDEX_GROW if entries >= settings[2] else INDEX_STORE
            store_int32(store, used, key_size)
            store_int64(store, used + 4, ordinal)
            if versioned:
                store_int64(store, used + 12, load_int64(block, at + 32))
                store_int32(store, used + 20, load_int64(block, at + 40))
            if key_size > 0:
                copy_bytes(arena, key_position, store, used + overhead, key_size)
            store_int64(slots, SLOT_BYTES * slot, (used // 4 + 1) << 24 | (key_hash & 0xFFFFFF))
            set_bit(survivors, ordinal)
            state[0] = entries + 1
            state[1] = behind
        if tracking:
            set_bit(settled, ordinal)
    state[7] = state[6]
    return INDEX_COMPLETE


@kernel
def index_batches(
    arena: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    batches: np.ndarray,
    skipped: np.ndarray,
    state: np.ndarray,
    settings: np.ndarray,
    seeds: np.ndarray,
    header: np.ndarray,
    slots: np.ndarray,
    store: np.ndarray,
    survivors: np.ndarray,
    settled: np.ndarray,
    block: np.ndarray,
) -> int:
    """Puts the records of the v2 batches whose payloads are `arena[starts[i]:ends[i]]` and `skipped[i]` is 0.

    Starts at the state's cursor and goes on where an earlier call stopped. `survivors` must have room for all
    ordinals that the batches can take, `settled` too while TRACKING. Returns INDEX_*, or the status of a bad record.
    """
    while True:
        if state[7] == state[6]:
            status = gather(
                arena, starts, ends, batches, skipped, state, settings, seeds, header, settled, slots, block
            )
            if status != RECORDS_VALID:
                return status
            if state[6] == 0:
                return INDEX_COMPLETE
            _prefetch_keys(slots, settings[0], store, 24 if settings[8] != 0 else 12, block, state[6])
        outcome = _put_block(arena, state, settings, slots, store, survivors, settled, block)
        if outcome != INDEX_COMPLETE:
            return outcome


@kernel
def index_rows(
    arena: np.ndarray,
    rows: np.ndarray,
    state: np.ndarray,
    settings: np.ndarray,
    seeds: np.ndarray,
    slots: np.ndarray,
    store: np.ndarray,
    survivors: np.ndarray,
    settled: np.ndarray,
    block: np.ndarray,
) -> int:
    """The same for rows of `layout.RECORD`."""
    while True:
        if state[7] == state[6]:
            gather_rows(arena, rows, state, settings, seeds, settled, slots, block)
            if state[6] == 0:
                return INDEX_COMPLETE
            _prefetch_keys(slots, settings[0], store, 24 if settings[8] != 0 else 12, block, state[6])
        outcome = _put_block(arena, state, settings, slots, store, survivors, settled, block)
        if outcome != INDEX_COMPLETE:
            return outcome


@kernel
def rehash(
    slots: np.ndarray,
    slot_count: int,
    larger: np.ndarray,
    larger_count: int,
    store: np.ndarray,
    overhead: int,
    seeds: np.ndarray,
    mask: int,
) -> None:
    """Moves every slot into `larger` (zeros before). Both are filled in the order of hashes, so only keys are far."""
    for i in range(slot_count):
        if i + AHEAD < slot_count:
            ahead = load_int64(slots, SLOT_BYTES * (i + AHEAD))
            if ahead != 0:
                prefetch(store, ((ahead >> 24) - 1) * 4)
        word = load_int64(slots, SLOT_BYTES * i)
        if word != 0:
            q = ((word >> 24) - 1) * 4
            key_hash = hash_key(store, q + overhead, load_int32(store, q), seeds) & mask
            j = multiply_high(key_hash, larger_count)
            while load_int64(larger, SLOT_BYTES * j) != 0:
                j += 1
                if j == larger_count:
                    j = 0
            store_int64(larger, SLOT_BYTES * j, word)
