"""The offset map finds the surviving record of each key in one pass over the records (Kafka: SkimpyOffsetMap).

Kafka's map keeps a digest of the key and an offset. This one keeps the key's bytes and the record's *ordinal* (its
number among the indexed records), and for every ordinal a bit that tells whether the record survives:

    slot (8 bytes)      place of the key in the key store + 1, in steps of 4 bytes (40 bits) | tag (24 bits)
    key store           key size (4 bytes), ordinal of the key's surviving record so far (8), with a strategy other
                        than offset also version (8) and presence (4), key
    survivors           one bit per record

1. Records come in tables of keys and hashes (`key_tables`). Slots are prefetched some rows ahead.
2. Once a slot is there, and its tag fits, its key is prefetched from the store. (So slots are kept small: half of them
   are empty, and the rest of a key's data lies beside the key, which is fetched anyway.)
3. A record is put: a new key is added; for a known key, whose bytes must be equal, the older record's bit is cleared
   and the newer one's is set. Because keys are compared, a hash collision costs time but never a record.
4. When no further key fits, records of keys that are not in the map stay *unsettled* (state FULL). Another pass over
   the records, with an empty map, settles as many more.

The copy then reads the bits in order, and looks up the map only for records before the first dirty offset.
"""

from __future__ import annotations

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
from seglog.kernels.arrays import Bytes, Int64s, WritableBytes, WritableInt64s
from seglog.kernels.bits import clear_bit, get_bit, set_bit
from seglog.kernels.hashing import hash_key
from seglog.kernels.key_tables import BY_OFFSET, Columns
from seglog.kernels.records import RECORDS_VALID
from seglog.kernels.spans import read_record

SLOT_BYTES = 8
_TAG_BITS = 24
_TAG_MASK = (1 << _TAG_BITS) - 1
_STORE_STEP = 4

# A key in the store: its size, and at these distances from it
ORDINAL_AT = 4
_VERSION_AT = 12
_PRESENCE_AT = 20
OVERHEAD = 12  # the key, under the offset strategy
VERSIONED_OVERHEAD = 24  # the key, under another strategy

# What `put_keys` returns.
PUT_COMPLETE = 0
PUT_GROW = 1  # the slots must grow first
PUT_STORE = 2  # the key store must grow first
PUT_FULL = 3  # the first record without room: the caller provides `settled` and sets TRACKING

# State (int64) that is passed from call to call.
ENTRIES = 0
STORE_USED = 1
ROW = 2  # row of the table to put next
KEY_POSITION = 3  # of that row's key
FULL = 4  # 1 once a record has stayed unsettled
STATE_SLOTS = 5

# Settings (int64), constant during a call.
SLOTS = 0
ENTRY_LIMIT = 1  # most keys, ever
GROW_AT = 2  # most keys in the present number of slots
STORE_LIMIT = 3
TRACKING = 4  # 1: `settled` is in use
VERSION = 5  # BY_*
SETTINGS_SLOTS = 6

AHEAD = 24  # slots whose keys are prefetched before `rehash` moves them
_SLOTS_AHEAD = 48  # rows whose slots are prefetched
_KEYS_AHEAD = 20  # rows whose keys are prefetched
_PROBES_AHEAD = 4  # slots searched for such a key: an eighth of the keys are not in their first slot


@inlined
def same_bytes(a: Bytes, i: int, b: Bytes, j: int, size: int) -> bool:
    """True if `size` bytes of two buffers are equal. The caller checks the bounds."""
    if size >= 8:
        stop = i + size - 8
        while i < stop:
            if load_little_int64(a, i) != load_little_int64(b, j):
                return False
            i += 8
            j += 8
        back = i - stop  # the last eight bytes may overlap those already compared
        same: bool = load_little_int64(a, stop) == load_little_int64(b, j - back)
        return same
    for k in range(size):  # noqa: SIM110 (kernels have no generators)
        if load_byte(a, i + k) != load_byte(b, j + k):
            return False
    return True


@inlined
def find_key(
    slots: Bytes,
    slot_count: int,
    store: Bytes,
    overhead: int,
    data: Bytes,
    key_position: int,
    key_size: int,
    key_hash: int,
) -> tuple[int, int]:
    """Returns (slot, its word) of the key, or (the empty slot where it belongs, 0)."""
    tag = key_hash & _TAG_MASK
    i = multiply_high(key_hash, slot_count)
    while True:
        word = load_int64(slots, SLOT_BYTES * i)
        if word == 0:
            return i, word
        if word & _TAG_MASK == tag:
            q = _place_in_store(word)
            if load_int32(store, q) == key_size and same_bytes(store, q + overhead, data, key_position, key_size):
                return i, word
        i += 1
        if i == slot_count:
            i = 0


@inlined
def _place_in_store(word: int) -> int:
    """Returns the position in the key store of the key of a slot's word other than 0."""
    return ((word >> _TAG_BITS) - 1) * _STORE_STEP


@inlined
def entry_bytes(key_size: int, overhead: int) -> int:
    """Returns the bytes that a key takes in the store, including the fields before it."""
    return (overhead + key_size + _STORE_STEP - 1) & -_STORE_STEP


@inlined
def _prefetch_key(slots: Bytes, slot_count: int, store: Bytes, overhead: int, key_hash: int, key_size: int) -> None:
    i = multiply_high(key_hash, slot_count)
    last = min(i + _PROBES_AHEAD, slot_count)
    while i < last:
        word = load_int64(slots, SLOT_BYTES * i)
        if word == 0:
            return
        if word & _TAG_MASK == key_hash & _TAG_MASK:
            q = _place_in_store(word)
            prefetch(store, q)
            prefetch(store, q + overhead + key_size - 1)
            return
        i += 1


@inlined
def _supersedes(store: WritableBytes, q: int, version: int, present: int) -> bool:
    """True if a later record with this version supersedes the stored one; its version is then stored instead."""
    older = load_int64(store, q + _VERSION_AT)
    older_present = load_int32(store, q + _PRESENCE_AT)
    wins = present > older_present or (present == older_present and version >= older)
    if wins:
        store_int64(store, q + _VERSION_AT, version)
        store_int32(store, q + _PRESENCE_AT, present)
    return wins


@kernel
def put_keys(
    table: Columns,
    rows: int,
    base: int,
    state: WritableInt64s,
    settings: Int64s,
    slots: WritableBytes,
    store: WritableBytes,
    survivors: WritableBytes,
    settled: WritableBytes,
) -> int:
    """Puts the table's first `rows` rows, from the state's ROW on; `base` is the ordinal of the table's first record.

    `survivors` must have room for all ordinals that the table covers, and so must `settled` while TRACKING. Returns a
    PUT_* value; after one that asks for more room, the next call goes on with the same row.
    """
    hashes, sizes, ordinals, versions, presence, keys = table
    slot_count = settings[SLOTS]
    versioned = settings[VERSION] != BY_OFFSET
    overhead = VERSIONED_OVERHEAD if versioned else OVERHEAD
    tracking = settings[TRACKING] != 0
    entry_limit = min(settings[ENTRY_LIMIT], settings[GROW_AT])
    entries = state[ENTRIES]
    used = state[STORE_USED]
    key_position = state[KEY_POSITION]
    first = state[ROW]
    outcome = PUT_COMPLETE
    k = first
    for k_ahead in range(first, min(rows, first + _SLOTS_AHEAD)):
        prefetch(slots, SLOT_BYTES * multiply_high(hashes[k_ahead], slot_count))
    while k < rows:
        if k + _SLOTS_AHEAD < rows:
            prefetch(slots, SLOT_BYTES * multiply_high(hashes[k + _SLOTS_AHEAD], slot_count))
        if k + _KEYS_AHEAD < rows:
            _prefetch_key(slots, slot_count, store, overhead, hashes[k + _KEYS_AHEAD], sizes[k + _KEYS_AHEAD])
        key_hash = hashes[k]
        key_size = int(sizes[k])
        ordinal = base + ordinals[k]
        if tracking and get_bit(settled, ordinal) != 0:
            key_position += key_size
            k += 1
            continue
        slot, word = find_key(slots, slot_count, store, overhead, keys, key_position, key_size, key_hash)
        if word != 0:
            q = _place_in_store(word)
            if not versioned or _supersedes(store, q, versions[k], int(presence[k])):
                clear_bit(survivors, load_int64(store, q + ORDINAL_AT))
                set_bit(survivors, ordinal)
                store_int64(store, q + ORDINAL_AT, ordinal)
        else:
            used_after = used + entry_bytes(key_size, overhead)
            if entries >= entry_limit or used_after > len(store):
                if entries >= settings[ENTRY_LIMIT] or (used_after > settings[STORE_LIMIT] and entries > 0):
                    if not tracking:
                        outcome = PUT_FULL
                        break
                    state[FULL] = 1
                    key_position += key_size
                    k += 1
                    continue
                outcome = PUT_GROW if entries >= settings[GROW_AT] else PUT_STORE
                break
            store_int32(store, used, key_size)
            store_int64(store, used + ORDINAL_AT, ordinal)
            if versioned:
                store_int64(store, used + _VERSION_AT, versions[k])
                store_int32(store, used + _PRESENCE_AT, int(presence[k]))
            if key_size > 0:
                copy_bytes(keys, key_position, store, used + overhead, key_size)
            store_int64(slots, SLOT_BYTES * slot, (used // _STORE_STEP + 1) << _TAG_BITS | (key_hash & _TAG_MASK))
            set_bit(survivors, ordinal)
            entries += 1
            used = used_after
        if tracking:
            set_bit(settled, ordinal)
        key_position += key_size
        k += 1
    state[ENTRIES], state[STORE_USED], state[ROW], state[KEY_POSITION] = entries, used, k, key_position
    return outcome


@kernel
def prefetch_slots(
    arena: Bytes,
    p: int,
    end: int,
    count: int,
    slots: Bytes,
    slot_count: int,
    seeds: Int64s,
    mask: int,
) -> None:
    """Prefetches the slots of a batch's keys. Stops silently at a broken record, which the filter will report."""
    for _ in range(count):
        status, stop, _, _, _, key_position, key_size, _, _ = read_record(arena, p, end)
        if status != RECORDS_VALID:
            return
        if key_size >= 0:
            key_hash = hash_key(arena, key_position, key_size, seeds) & mask
            prefetch(slots, SLOT_BYTES * multiply_high(key_hash, slot_count))
        p = stop


@kernel
def rehash(
    slots: Bytes,
    slot_count: int,
    larger: WritableBytes,
    larger_count: int,
    store: Bytes,
    overhead: int,
    seeds: Int64s,
    mask: int,
) -> None:
    """Moves every slot into `larger`, which is all zeros. Both are in hash order, so only keys need prefetching."""
    for i in range(slot_count):
        if i + AHEAD < slot_count:
            ahead = load_int64(slots, SLOT_BYTES * (i + AHEAD))
            if ahead != 0:
                prefetch(store, _place_in_store(ahead))
        word = load_int64(slots, SLOT_BYTES * i)
        if word != 0:
            q = _place_in_store(word)
            key_hash = hash_key(store, q + overhead, load_int32(store, q), seeds) & mask
            j = multiply_high(key_hash, larger_count)
            while load_int64(larger, SLOT_BYTES * j) != 0:
                j += 1
                if j == larger_count:
                    j = 0
            store_int64(larger, SLOT_BYTES * j, word)
