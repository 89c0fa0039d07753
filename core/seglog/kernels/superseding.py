"""Marks the records of the clean section whose keys are in the map, before the map is emptied.

A round of several index passes has no single map left when it copies. So each pass leaves a bit for every clean record
that a dirty one supersedes (see `offset_map` and `filtering`).
"""

from __future__ import annotations

from seglog import layout
from seglog.kernels._jit import inlined, kernel
from seglog.kernels.arrays import Batches, Bytes, Int64s, Records, WritableBytes, WritableInt64s
from seglog.kernels.bits import set_bit
from seglog.kernels.filter_slots import (
    CLEAN_ORDINAL,
    HASH_MASK,
    KEY_OVERHEAD,
    SLOTS,
)
from seglog.kernels.hashing import hash_key
from seglog.kernels.offset_map import find_key, prefetch_slots
from seglog.kernels.records import COUNT_INVALID, LEAST_RECORD_SIZE, RECORDS_VALID
from seglog.kernels.spans import read_record

_CONTROL = layout.CONTROL_MASK


@inlined
def is_superseded(
    arena: Bytes, key_position: int, key_size: int, slots: Bytes, store: Bytes, seeds: Int64s, settings: Int64s
) -> bool:
    """True if the map has the key: a dirty record then supersedes every clean one with that key."""
    key_hash = hash_key(arena, key_position, key_size, seeds) & settings[HASH_MASK]
    _, word = find_key(slots, settings[SLOTS], store, settings[KEY_OVERHEAD], arena, key_position, key_size, key_hash)
    return bool(word != 0)


@kernel
def mark_superseded(
    arena: Bytes,
    starts: Int64s,
    ends: Int64s,
    batches: Batches,
    ordinals: WritableInt64s,
    slots: Bytes,
    store: Bytes,
    seeds: Int64s,
    settings: Int64s,
    superseded: WritableBytes,
) -> tuple[int, int]:
    """Sets the bit of every record in these batches whose key is in the map; returns (batches done, status).

    Skips control batches. `filter_slots` names the slots of `settings` and `ordinals`.
    """
    for i in range(len(batches)):
        row = batches[i]
        if int(row["attributes"]) & _CONTROL != 0:
            continue
        count = int(row["count"])
        end = ends[i]
        if count < 0 or count * LEAST_RECORD_SIZE > end - starts[i]:
            return i, COUNT_INVALID
        prefetch_slots(arena, starts[i], end, count, slots, settings[SLOTS], seeds, settings[HASH_MASK])
        p = starts[i]
        for _ in range(count):
            status, stop, _, _, _, key_position, key_size, _, _ = read_record(arena, p, end)
            if status != RECORDS_VALID:
                return i, status
            if key_size >= 0 and is_superseded(arena, key_position, key_size, slots, store, seeds, settings):
                set_bit(superseded, ordinals[CLEAN_ORDINAL])
            ordinals[CLEAN_ORDINAL] += 1
            p = stop
    return len(batches), RECORDS_VALID


@kernel
def mark_superseded_rows(
    arena: Bytes,
    rows: Records,
    ordinals: WritableInt64s,
    slots: Bytes,
    store: Bytes,
    seeds: Int64s,
    settings: Int64s,
    superseded: WritableBytes,
) -> None:
    """Sets the bit of every message of magic 0 and 1 in `rows` (layout.RECORD) whose key is in the map."""
    for i in range(len(rows)):
        row = rows[i]
        key_position, key_size = int(row["key_position"]), int(row["key_size"])
        if key_size >= 0 and is_superseded(arena, key_position, key_size, slots, store, seeds, settings):
            set_bit(superseded, ordinals[CLEAN_ORDINAL])
        ordinals[CLEAN_ORDINAL] += 1
