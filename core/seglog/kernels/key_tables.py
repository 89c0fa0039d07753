"""Tables of keys for the offset map: the work on records that does not depend on their order.

A table holds, for each record that has a key and lies at or after the first dirty offset: the hash of the key (int64),
the key's size and the record's ordinal within the table (int32 each), and under a strategy other than offset its
version (int64) and whether it has one (int8). The keys' bytes follow, side by side. With its table, a record is no
longer needed: several threads fill tables while one puts them, in order, into the map.

Each call fills an empty table, starting at the cursor where the last call stopped.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from seglog import layout
from seglog.kernels._jit import copy_bytes, inlined, kernel
from seglog.kernels.arrays import (
    Batches,
    BatchRow,
    Bytes,
    Int64s,
    Records,
    WritableBytes,
    WritableInt8s,
    WritableInt32s,
    WritableInt64s,
)
from seglog.kernels.hashing import hash_key
from seglog.kernels.records import COUNT_INVALID, LEAST_RECORD_SIZE, RECORDS_VALID, TRAILING_BYTES
from seglog.kernels.spans import header_as_int64, read_record

# A table: hashes, sizes, ordinals, versions, presence (both empty under the offset strategy), keys
Columns: TypeAlias = tuple[WritableInt64s, WritableInt32s, WritableInt32s, WritableInt64s, WritableInt8s, WritableBytes]

# What `gather_batches` and `gather_rows` return, unless it is the status of a bad record.
GATHER_COMPLETE = 0
TABLE_FULL = -1

# Cursor (int64). The first three slots are passed from call to call; the others describe the table just filled.
BATCH = 0  # batch (or row) to read next
POSITION = 1  # of the next record in that batch; -1 before its first one
RECORDS_DONE = 2  # in that batch
RECORDS = 3  # that the table covers, including those that have no row
ROWS = 4
KEY_BYTES = 5
WITHOUT_KEY = 6  # records without a key in batches that are dirty as a whole
NEXT_KEY_BYTES = 7  # key size of the record that did not fit
CURSOR_SLOTS = 8

# Settings (int64).
FIRST_DIRTY = 0
HASH_MASK = 1  # -1; tests use it to weaken the hash
VERSION = 2  # BY_*
SETTINGS_SLOTS = 3

# How the latest record of a key is chosen (`cleaner.round.StrategyKind`).
BY_OFFSET = 0
BY_TIMESTAMP = 1
BY_HEADER = 2

_APPEND_TIME = layout.TIMESTAMP_TYPE_MASK


@inlined
def _version_of(
    arena: Bytes,
    row: BatchRow,
    timestamp_delta: int,
    count_position: int,
    stop: int,
    version: int,
    header: Bytes,
) -> tuple[int, int]:
    """Returns (presence, version) of a v2 record under the strategies BY_TIMESTAMP and BY_HEADER."""
    if version == BY_HEADER:
        return header_as_int64(arena, count_position, stop, header)
    if int(row["attributes"]) & _APPEND_TIME != 0:
        return 1, np.int64(row["max_timestamp"])
    return 1, np.int64(row["base_timestamp"]) + timestamp_delta  # wraps, as in Kafka


@inlined
def _add(
    arena: Bytes, key_position: int, key_size: int, key_hash: int, ordinal: int, n: int, used: int, table: Columns
) -> None:
    hashes, sizes, ordinals, _, _, keys = table
    hashes[n] = key_hash
    sizes[n] = key_size
    ordinals[n] = ordinal
    if key_size > 0:
        copy_bytes(arena, key_position, keys, used, key_size)


@kernel
def gather_batches(
    arena: Bytes,
    starts: Int64s,
    ends: Int64s,
    batches: Batches,
    skipped: Bytes,
    cursor: WritableInt64s,
    settings: Int64s,
    seeds: Int64s,
    header: Bytes,
    table: Columns,
) -> int:
    """Fills a table from the v2 batches, with payloads `arena[starts[i]:ends[i]]`, whose `skipped[i]` is 0.

    Returns GATHER_COMPLETE, TABLE_FULL, or the status of a bad record in batch `cursor[BATCH]`.
    """
    hashes, _, _, versions, presence, keys = table
    i, p, done = cursor[BATCH], cursor[POSITION], cursor[RECORDS_DONE]
    first_dirty, mask, version = settings[FIRST_DIRTY], settings[HASH_MASK], settings[VERSION]
    n = 0
    used = 0
    ordinal = 0
    without_key = 0
    outcome = GATHER_COMPLETE
    while i < len(batches) and outcome == GATHER_COMPLETE:
        end = ends[i]
        row = batches[i]
        count = int(row["count"])
        if p < 0:
            if skipped[i] != 0:
                i += 1
                continue
            if count < 0 or count * LEAST_RECORD_SIZE > end - starts[i]:
                cursor[BATCH] = i
                return COUNT_INVALID
            p = starts[i]
            done = 0
        base_offset = int(row["base_offset"])
        while done < count:
            found = read_record(arena, p, end)
            status, stop, timestamp_delta, _, offset_delta, key_position, key_size, _, count_position = found
            if status != RECORDS_VALID:
                cursor[BATCH] = i
                return status
            if key_size >= 0 and base_offset + offset_delta >= first_dirty:
                if n == len(hashes) or key_size > len(keys) - used:
                    cursor[NEXT_KEY_BYTES] = key_size
                    outcome = TABLE_FULL
                    break
                key_hash = hash_key(arena, key_position, key_size, seeds) & mask
                _add(arena, key_position, key_size, key_hash, ordinal, n, used, table)
                if version != BY_OFFSET:
                    presence[n], versions[n] = _version_of(
                        arena, row, timestamp_delta, count_position, stop, version, header
                    )
                n += 1
                used += key_size
            elif key_size < 0 and base_offset >= first_dirty:
                without_key += 1
            ordinal += 1
            done += 1
            p = stop
        if done == count:
            if count > 0 and p != end:
                cursor[BATCH] = i
                return TRAILING_BYTES
            i += 1
            p = -1
    cursor[BATCH], cursor[POSITION], cursor[RECORDS_DONE] = i, p, done
    cursor[RECORDS], cursor[ROWS], cursor[KEY_BYTES], cursor[WITHOUT_KEY] = ordinal, n, used, without_key
    return outcome


@kernel
def gather_rows(
    arena: Bytes,
    rows: Records,
    cursor: WritableInt64s,
    settings: Int64s,
    seeds: Int64s,
    table: Columns,
) -> int:
    """Fills a table from rows of `layout.RECORD`: messages of magic 0 and 1, which have no headers."""
    hashes, _, _, versions, presence, keys = table
    first_dirty, mask, version = settings[FIRST_DIRTY], settings[HASH_MASK], settings[VERSION]
    first = cursor[BATCH]
    i = first
    n = 0
    used = 0
    outcome = GATHER_COMPLETE
    while i < len(rows):
        key_size = int(rows[i]["key_size"])
        if key_size >= 0 and rows[i]["offset"] >= first_dirty:
            if n == len(hashes) or key_size > len(keys) - used:
                cursor[NEXT_KEY_BYTES] = key_size
                outcome = TABLE_FULL
                break
            key_position = int(rows[i]["key_position"])
            key_hash = hash_key(arena, key_position, key_size, seeds) & mask
            _add(arena, key_position, key_size, key_hash, i - first, n, used, table)
            if version != BY_OFFSET:
                presence[n] = 1 if version == BY_TIMESTAMP else 0
                versions[n] = rows[i]["timestamp"] if version == BY_TIMESTAMP else 0
            n += 1
            used += key_size
        i += 1
    cursor[BATCH] = i
    cursor[RECORDS], cursor[ROWS], cursor[KEY_BYTES], cursor[WITHOUT_KEY] = i - first, n, used, 0
    return outcome
