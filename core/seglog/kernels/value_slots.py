"""The slots into which kernels decode values (`avro_values`, `protobuf_values`), and the frames before the values.

A schema has a slot for each field that is not a record, in two arrays: `numbers` (int64) has the number, the bits of a
float, or where in the arena a text begins; `lengths` (int32) the bytes of a text, 0 for a number, and -1 for null (the
number is then anything). A record that may be null has a slot of its own, of which only the length counts.

Slots belong to tables: the first has a row for each value, and each list or map has one with a row for each item of all
values, in their order. The slot of a list has its number of items, also where a value is broken. Row `i` of slot `s` is
at `ORIGIN + s * ROOM + i`. Items that find no room share the last row of their table; they count nevertheless, so that
whoever calls knows how much room to give.
"""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import inlined, kernel, load_byte, load_uint32, multiply_fold
from seglog.kernels.arrays import (
    Bytes,
    Int32Column,
    Int32s,
    Int64s,
    WritableInt8s,
    WritableInt32s,
    WritableInt64s,
    WritableSextets,
)
from seglog.kernels.hashing import hash_key
from seglog.kernels.offset_map import same_bytes

# Statuses of values.
DECODED, NULL, BROKEN = 0, 1, 2

# What `frame_ids` gives for a value without an id.
NULL_VALUE, NO_PLAIN_FRAME = -1, -2

# Columns of a table: its slots, where they are, its rows, the items so far, and those before the value in hand.
FIRST_SLOT, END_SLOT, ORIGIN, ROOM, ITEMS, BEFORE = range(6)

MOST_LEVELS = 64  # of lists in lists, and of messages in messages
STACK = 5 * MOST_LEVELS  # numbers in a stack, which keeps five for each level

_FRAME = 5
_FEW = 8  # keys, of which each is compared with each


@kernel
def frame_ids(arena: Bytes, positions: Int32Column, sizes: Int32Column, out: WritableInt64s) -> int:
    """Fills `out` with the ids in Confluent's frames (00, id): NULL_VALUE for null, NO_PLAIN_FRAME without a frame.

    The id 0 counts as none, as other frames begin with it. Returns the number of ids.
    """
    count = 0
    for i in range(min(len(positions), len(out))):
        position = np.int64(positions[i])
        size = np.int64(sizes[i])
        out[i] = NULL_VALUE if size < 0 else NO_PLAIN_FRAME
        if size >= _FRAME and position >= 0 and size <= len(arena) - position and load_byte(arena, position) == 0:
            number = load_uint32(arena, position + 1)
            if number != 0:
                out[i] = number
                count += 1
    return count


@inlined
def clear(numbers: WritableInt64s, lengths: WritableInt32s, first: int, stop: int, rows: int, row: int) -> None:
    """Makes the slots from `first` to before `stop` null in a row."""
    for slot in range(first, stop):
        numbers[slot * rows + row] = 0
        lengths[slot * rows + row] = -1


@kernel
def tables_fit(tables: WritableSextets, rows: int, numbers: WritableInt64s, lengths: WritableInt32s) -> bool:
    """True if the slots of tables are inside of the arrays, and the first table has a row for each value."""
    if len(tables) == 0 or tables[0, FIRST_SLOT] != 0 or tables[0, ORIGIN] != 0 or tables[0, ROOM] != rows:
        return False
    size = min(len(numbers), len(lengths))
    for table in range(len(tables)):
        first, end, room = tables[table, FIRST_SLOT], tables[table, END_SLOT], tables[table, ROOM]
        if first < 0 or end < first or room < min(table, 1) or tables[table, ITEMS] < 0:
            return False
        if tables[table, ORIGIN] + first * room < 0 or tables[table, ORIGIN] + end * room > size:
            return False
    return True


@inlined
def next_row(tables: WritableSextets, table: int) -> int:
    """Takes a row for one more item of a table; returns where it is in slot 0."""
    row = tables[table, ITEMS]
    tables[table, ITEMS] = row + 1
    return tables[table, ORIGIN] + min(row, tables[table, ROOM] - 1)


@inlined
def push(stack: WritableInt64s, level: int, a: int, b: int, c: int, d: int, e: int) -> int:
    """Keeps five numbers of a level; returns the one within."""
    place = 5 * level
    stack[place], stack[place + 1], stack[place + 2], stack[place + 3], stack[place + 4] = a, b, c, d, e
    return level + 1


@inlined
def kept(stack: WritableInt64s, level: int) -> tuple[int, int, int, int, int]:
    """Returns the five numbers of a level."""
    place = 5 * level
    return stack[place], stack[place + 1], stack[place + 2], stack[place + 3], stack[place + 4]


@inlined
def begin_items(tables: WritableSextets, first: int, stop: int) -> None:
    """Notes how many items tables have before a value."""
    for table in range(first, stop):
        tables[table, BEFORE] = tables[table, ITEMS]


@inlined
def drop_items(tables: WritableSextets, first: int, stop: int) -> None:
    """Takes back the items of a value that is broken."""
    for table in range(first, stop):
        tables[table, ITEMS] = tables[table, BEFORE]


@inlined
def load_float(data: Bytes, p: int) -> int:
    """Returns the four bytes at `p`, the lowest first, as an unsigned number."""
    return (
        load_byte(data, p)
        | (load_byte(data, p + 1) << 8)
        | (load_byte(data, p + 2) << 16)
        | (load_byte(data, p + 3) << 24)
    )


@kernel
def mark_twins(
    arena: Bytes,
    counts: Int64s,
    numbers: Int64s,
    lengths: Int32s,
    are_texts: bool,
    seeds: Int64s,
    places: WritableInt64s,
    marks: WritableInt8s,
) -> int:
    """Sets `marks[i]` where map `i`, which has `counts[i]` of the keys, has a key twice. Returns how many have.

    Keys are slots: texts, whose spans are within the arena, or numbers. `places` is room for hashes: a power of 2, at
    least twice the keys of a map, filled with -1. `seeds` are random (`hashing`). Returns -1 if an array does not fit.
    """
    found = 0
    first = np.int64(0)
    for i in range(min(len(counts), len(marks))):
        stop = first + counts[i]
        if counts[i] < 0 or stop > min(len(numbers), len(lengths)) or counts[i] > len(places) >> 1:
            return -1
        has_twin = False
        if counts[i] <= _FEW:
            for key in range(first + 1, stop):
                for other in range(first, key):
                    has_twin |= _are_same(arena, numbers, lengths, are_texts, key, other)
        else:
            has_twin = _hashed(arena, numbers, lengths, are_texts, seeds, places, first, stop)
        marks[i] = has_twin
        found += has_twin
        first = stop
    return found


@inlined
def _are_same(arena: Bytes, numbers: Int64s, lengths: Int32s, are_texts: bool, one: int, other: int) -> bool:
    """True if two keys are the same."""
    if not are_texts:
        return bool(numbers[one] == numbers[other])
    if lengths[one] != lengths[other]:
        return False
    return bool(same_bytes(arena, numbers[one], arena, numbers[other], np.int64(lengths[one])))


@inlined
def _hashed(
    arena: Bytes,
    numbers: Int64s,
    lengths: Int32s,
    are_texts: bool,
    seeds: Int64s,
    places: WritableInt64s,
    first: int,
    stop: int,
) -> bool:
    """True if two of the keys from `first` to before `stop` are the same."""
    has_twin, mask = False, len(places) - 1
    for key in range(first, stop):
        if are_texts:
            place = hash_key(arena, numbers[key], max(np.int64(lengths[key]), 0), seeds) & mask
        else:
            place = multiply_fold(numbers[key] ^ seeds[1], seeds[2]) & mask
        while places[place] >= first and not has_twin:
            has_twin = _are_same(arena, numbers, lengths, are_texts, key, places[place])
            place = (place + 1) & mask
        if has_twin:
            break
        places[place] = key
    return has_twin
