"""Gathering records in blocks for the offset map: spans of their keys, hashes, and their slots prefetched.

A block is a uint8 array of BLOCK_RECORDS rows: hash, key position, key size, ordinal, version, presence of a version
(int64 each). State and settings are those of `offset_map`.
"""

from __future__ import annotations

import numpy as np

from seglog import layout
from seglog.kernels._jit import inlined, kernel, load_byte, multiply_high, prefetch, store_byte, store_int64
from seglog.kernels.hashing import hash_key
from seglog.kernels.records import COUNT_INVALID, LEAST_RECORD_SIZE, RECORDS_VALID, TRAILING_BYTES
from seglog.kernels.spans import header_as_int64, read_record

SLOT_BYTES = 8
BLOCK_RECORDS = 64
BLOCK_ROW_BYTES = 48  # hash, key position, key size, ordinal, version, presence
BLOCK_BYTES = BLOCK_RECORDS * BLOCK_ROW_BYTES

_TIMESTAMP_TYPE_MASK = layout.TIMESTAMP_TYPE_MASK


@inlined
def get_bit(bits: np.ndarray, i: int) -> int:
    """Bit `i` of a uint8 array."""
    bit: int = load_byte(bits, i >> 3) >> (i & 7) & 1
    return bit


@inlined
def set_bit(bits: np.ndarray, i: int) -> None:
    """Sets bit `i`."""
    store_byte(bits, i >> 3, load_byte(bits, i >> 3) | 1 << (i & 7))


@inlined
def clear_bit(bits: np.ndarray, i: int) -> None:
    """Clears bit `i`."""
    store_byte(bits, i >> 3, load_byte(bits, i >> 3) & ~(1 << (i & 7)))


@kernel
def prefetch_slots(
    arena: np.ndarray,
    p: int,
    end: int,
    count: int,
    slots: np.ndarray,
    slot_count: int,
    seeds: np.ndarray,
    mask: int,
) -> None:
    """Asks for the slots of a batch's keys; a broken record ends it in silence, as the filter will meet it again."""
    for _ in range(count):
        status, stop, _, _, _, key_position, key_size, _, _ = read_record(arena, p, end)
        if status != RECORDS_VALID:
            return
        if key_size >= 0:
            key_hash = hash_key(arena, key_position, key_size, seeds) & mask
            prefetch(slots, SLOT_BYTES * multiply_high(key_hash, slot_count))
        p = stop


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


@kernel
def _add_version_of(
    arena: np.ndarray,
    row: np.ndarray,
    timestamp_delta: int,
    count_position: int,
    stop: int,
    version: int,
    header: np.ndarray,
    block: np.ndarray,
    n: int,
) -> None:
    """The version of a v2 record under the strategies timestamp (1) and header (2)."""
    if version == 2:
        present, value = header_as_int64(arena, count_position, stop, header)
        _add_version(block, n, value, present)
    elif int(row["attributes"]) & _TIMESTAMP_TYPE_MASK != 0:
        _add_version(block, n, int(row["max_timestamp"]), 1)
    else:
        _add_version(block, n, int(row["base_timestamp"]) + timestamp_delta, 1)


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
def gather(
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
    i, p, done, ordinal = state[3], state[4], state[5], state[2]
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
        count = int(row["count"])
        if p < 0:
            if skipped[i] != 0:
                i += 1
                continue
            if count < 0 or count * LEAST_RECORD_SIZE > end - starts[i]:
                state[3] = i
                return COUNT_INVALID
            p = starts[i]
            done = 0
        base_offset = int(row["base_offset"])
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
                if version != 0:
                    _add_version_of(arena, row, timestamp_delta, count_position, stop, version, header, block, n)
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
            p = -1
    state[3], state[4], state[5], state[2] = i, p, done, ordinal
    state[6], state[7] = n, 0
    state[10] += without_key
    return RECORDS_VALID


@kernel
def gather_rows(
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
        key_size = int(row["key_size"])
        if _wanted(ordinal, key_size, row["offset"], settings[5], settings[6] != 0, settled):
            key_position = int(row["key_position"])
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
