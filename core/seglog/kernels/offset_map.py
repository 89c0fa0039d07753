"""The offset map: which record of each key survives, found in one pass over the records (Kafka: SkimpyOffsetMap).

Kafka's map keeps a digest of the key and an offset. This one keeps the key's bytes and the record's *ordinal* (its
number among the records indexed), and a bit for every ordinal that tells whether the record survives:

    slot (16 bytes)     word 0: place of the key in the key store + 1, in steps of 4 bytes (40 bits) | tag (24 bits)
                        word 1: ordinal of the key's record that survives so far
    key store           size (4 bytes), with a strategy other than offset also version (8) and presence (4), key
    survivors           one bit a record

1. Records are gathered in blocks of up to 64: key spans, hashes; each one's slot is prefetched.
2. Slots whose tag fits have their key prefetched from the store.
3. Each record is put: a new key enters; for a known one, the bytes being equal, the older record's bit is cleared
   and the newer one's is set. Because keys are compared, a hash collision costs time and never a record.
4. When no further key fits, records of keys that are not in the map stay *unsettled*; another pass over the
   records, with an empty map, settles as many more (state FULL).

The copy then asks the bits, in order, and touches the map only for records in front of the first dirty offset.
"""

from __future__ import annotations

import numpy as np

from seglog import layout
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
    store_byte,
    store_int32,
    store_int64,
)
from seglog.kernels.hashing import hash_key
from seglog.kernels.records import COUNT_INVALID, LEAST_RECORD_SIZE, RECORDS_VALID, TRAILING_BYTES
from seglog.kernels.spans import header_as_int64, read_record

SLOT_BYTES = 16

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

BLOCK_RECORDS = 64
AHEAD = 24  # slots whose keys are asked for before they are moved
BLOCK_ROW_BYTES = 48  # hash, key position, key size, ordinal, version, presence
BLOCK_BYTES = BLOCK_RECORDS * BLOCK_ROW_BYTES

_TIMESTAMP_TYPE_MASK = layout.TIMESTAMP_TYPE_MASK


@inlined
def get_bit(bits: np.ndarray, i: int) -> int:
    """Bit `i` of a uint8 array."""
    return load_byte(bits, i >> 3) >> (i & 7) & 1


@inlined
def set_bit(bits: np.ndarray, i: int) -> None:
    """Sets bit `i`."""
    store_byte(bits, i >> 3, load_byte(bits, i >> 3) | 1 << (i & 7))


@inlined
def clear_bit(bits: np.ndarray, i: int) -> None:
    """Clears bit `i`."""
    store_byte(bits, i >> 3, load_byte(bits, i >> 3) & ~(1 << (i & 7)))


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
        return load_little_int64(a, stop) == load_little_int64(b, j - back)
    for k in range(size):
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
    """(slot, its word 0) of the key, or (the empty slot where it belongs, 0)."""
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


@inlined
def _add_row(block: np.ndarray, n: int, key_hash: int, key_position: int, key_size: int, ordinal: int) -> None:
    at = n * BLOCK_ROW_BYTES
    store_int64(block, at, key_hash)
    store_int64(block, at + 8, key_position)
    store_int64(block, at + 16, key_size)
    store_int64(block, at + 24, ordinal)


@inlined
def _add_version(block: np.ndarray, n: int, version: int, present: int) -> None:
    store_int64(block, n * BLOCK_ROW_BYTES + 32, version)
    store_int64(block, n * BLOCK_ROW_BYTES + 40, present)


@inlined
def _wanted(
    ordinal: int, key_size: int, offset: int, first_dirty: int, tracking: bool, settled: np.ndarray
) -> bool:
    """Whether a record goes into the map; one that never does counts as settled."""
    if tracking:
        if get_bit(settled, ordinal) != 0:
            return False
        if key_size < 0 or offset < first_dirty:
            set_bit(settled, ordinal)
            return False
        return True
    return key_size >= 0 and offset >= first_dirty


@kernel
def _gather(
    arena: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    batches: np.ndarray,
    skipped: np.ndarray,
    state: np.ndarray,
    settings: np.ndarray,
    seeds: np.ndarray,
    header: np.ndarray,
    settled: np.ndarray,
    slots: np.ndarray,
    block: np.ndarray,
) -> int:
    """Fills the next block from v2 batches; returns a record status."""
    i = state[3]
    p = state[4]
    done = state[5]
    ordinal = state[2]
    n = 0
    slot_count = settings[0]
    mask = settings[7]
    version = settings[8]
    first_dirty = settings[5]
    counting = settings[9]
    without_key = 0
    tracking = settings[6] != 0
    while i < len(batches) and n < BLOCK_RECORDS:
        end = ends[i]
        row = batches[i]
        count = np.int64(row["count"])
        if p < 0:
            if skipped[i] != 0:
                i += 1
                continue
            if count < 0 or count * LEAST_RECORD_SIZE > end - starts[i]:
                state[3] = i
                return COUNT_INVALID
            p = starts[i]
            done = 0
        base_offset = np.int64(row["base_offset"])
        while done < count and n < BLOCK_RECORDS:
            found = read_record(arena, p, end)
            status, stop, timestamp_delta, _, offset_delta, key_position, key_size, _, count_position = found
            if status != RECORDS_VALID:
                state[3] = i
                return status
            if _wanted(ordinal, key_size, base_offset + offset_delta, first_dirty, tracking, settled):
                key_hash = hash_key(arena, key_position, key_size, seeds) & mask
                prefetch(slots, SLOT_BYTES * multiply_high(key_hash, slot_count))
                _add_row(block, n, key_hash, key_position, key_size, ordinal)
                if version == 1:
                    append_time = np.int64(row["attributes"]) & _TIMESTAMP_TYPE_MASK != 0
                    timestamp = np.int64(row["base_timestamp"]) + timestamp_delta
                    _add_version(block, n, np.int64(row["max_timestamp"]) if append_time else timestamp, 1)
                elif version == 2:
                    present, value = header_as_int64(arena, count_position, stop, header)
                    _add_version(block, n, value, present)
                n += 1
            elif key_size < 0 and base_offset >= first_dirty:
                without_key += counting
            ordinal += 1
            done += 1
            p = stop
        if done == count:
            if count > 0 and p != end:
                state[3] = i
                return TRAILING_BYTES
            i += 1
            p = np.int64(-1)
    state[3] = i
    state[4] = p
    state[5] = done
    state[2] = ordinal
    state[6] = n
    state[7] = 0
    state[10] += without_key
    return RECORDS_VALID


@kernel
def _gather_rows(
    arena: np.ndarray,
    rows: np.ndarray,
    state: np.ndarray,
    settings: np.ndarray,
    seeds: np.ndarray,
    settled: np.ndarray,
    slots: np.ndarray,
    block: np.ndarray,
) -> None:
    """The same from rows of `layout.RECORD`: messages of magic 0 and 1, which have no headers."""
    i = state[3]
    ordinal = state[2]
    n = 0
    while i < len(rows) and n < BLOCK_RECORDS:
        row = rows[i]
        key_size = np.int64(row["key_size"])
        if _wanted(ordinal, key_size, row["offset"], settings[5], settings[6] != 0, settled):
            key_position = np.int64(row["key_position"])
            key_hash = hash_key(arena, key_position, key_size, seeds) & settings[7]
            prefetch(slots, SLOT_BYTES * multiply_high(key_hash, settings[0]))
            _add_row(block, n, key_hash, key_position, key_size, ordinal)
            if settings[8] == 1:
                _add_version(block, n, row["timestamp"], 1)
            else:
                _add_version(block, n, 0, 0)
            n += 1
        ordinal += 1
        i += 1
    state[3] = i
    state[2] = ordinal
    state[6] = n
    state[7] = 0


@kernel
def _prefetch_keys(slots: np.ndarray, slot_count: int, store: np.ndarray, block: np.ndarray, n: int) -> None:
    for k in range(n):
        key_hash = load_int64(block, k * BLOCK_ROW_BYTES)
        word = load_int64(slots, SLOT_BYTES * multiply_high(key_hash, slot_count))
        if word != 0 and word & 0xFFFFFF == key_hash & 0xFFFFFF:
            prefetch(store, ((word >> 24) - 1) * 4)


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
    overhead = np.int64(16 if versioned else 4)
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
            if versioned:
                q = ((word >> 24) - 1) * 4
                version = load_int64(block, at + 32)
                present = load_int64(block, at + 40)
                older = load_int64(store, q + 4)
                older_present = load_int32(store, q + 12)
                wins = present > older_present or (present == older_present and version >= older)
                if wins:
                    store_int64(store, q + 4, version)
                    store_int32(store, q + 12, present)
            if wins:
                clear_bit(survivors, load_int64(slots, SLOT_BYTES * slot + 8))
                set_bit(survivors, ordinal)
                store_int64(slots, SLOT_BYTES * slot + 8, ordinal)
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
            if versioned:
                store_int64(store, used + 4, load_int64(block, at + 32))
                store_int32(store, used + 12, load_int64(block, at + 40))
            if key_size > 0:
                copy_bytes(arena, key_position, store, used + overhead, key_size)
            store_int64(slots, SLOT_BYTES * slot, (used // 4 + 1) << 24 | (key_hash & 0xFFFFFF))
            store_int64(slots, SLOT_BYTES * slot + 8, ordinal)
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
            status = _gather(
                arena, starts, ends, batches, skipped, state, settings, seeds, header, settled, slots, block
            )
            if status != RECORDS_VALID:
                return status
            if state[6] == 0:
                return INDEX_COMPLETE
            _prefetch_keys(slots, settings[0], store, block, state[6])
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
            _gather_rows(arena, rows, state, settings, seeds, settled, slots, block)
            if state[6] == 0:
                return INDEX_COMPLETE
            _prefetch_keys(slots, settings[0], store, block, state[6])
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
            store_int64(larger, SLOT_BYTES * j + 8, load_int64(slots, SLOT_BYTES * i + 8))
