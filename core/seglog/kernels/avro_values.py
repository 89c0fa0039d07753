"""Decodes Avro values by a program into slots (`value_slots`), without recursion: one operation on a block of values
after the other, because a processor guesses right what the same operation does next.

An operation is a row of int64: code, slot, and four numbers that depend on the code. A program is for records, lists,
maps, numbers, texts and what may be null; schemas with more (other unions) have none. A value is DECODED only if it is
consumed to its last byte and every number is in the range of its operation; all others are BROKEN, and whoever calls
asks a library of Avro for the reason. Apache Avro 1.12, "Binary Encoding".

Lists are decoded a value after the other, as items of one value lie side by side. An item must take a byte at least
(`values.avro_schema` refuses others), so a list has no more items than bytes.
"""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import inlined, kernel, load_byte, load_little_int64
from seglog.kernels.arrays import (
    Bytes,
    Int32Column,
    Sextets,
    WritableInt8s,
    WritableInt32s,
    WritableInt64s,
    WritableSextets,
    WritableTriples,
)
from seglog.kernels.value_slots import (
    BROKEN,
    DECODED,
    END_SLOT,
    FIRST_SLOT,
    MOST_LEVELS,
    NULL,
    ROOM,
    STACK,
    begin_items,
    clear,
    drop_items,
    kept,
    load_float,
    next_row,
    push,
    tables_fit,
)
from seglog.kernels.varint import read_varlong

# Columns of an operation.
CODE, SLOT, FIRST, STOP, LEAST, MOST = range(6)

# Codes. NUMBER: a varint between LEAST and MOST. FIXED: FIRST bytes. OPTIONAL: a union of null and one more, whose null
# is branch FIRST; null clears the slots from LEAST to before MOST and goes on at operation STOP. PRESENT: a record that
# may be null is there. NOTHING: null, without bytes. LIST: items in table FIRST, each by the operations before STOP;
# lists within have the tables from there to before MOST. A map is a LIST whose items begin with a TEXT.
NOTHING, BOOLEAN, NUMBER, FLOAT, DOUBLE, TEXT, FIXED, OPTIONAL, PRESENT, LIST = range(10)

BAD_PROGRAM = -1
BLOCK = 512  # values, whose bytes and places stay in a processor's cache

_AT, _END, _NEXT = range(3)  # of a value of a block: where it is read on, its end, and its next operation


@kernel
def decode_avro(
    arena: Bytes,
    positions: Int32Column,
    sizes: Int32Column,
    skipped: int,
    program: Sextets,
    tables: WritableSextets,
    stack: WritableInt64s,
    places: WritableTriples,
    numbers: WritableInt64s,
    lengths: WritableInt32s,
    statuses: WritableInt8s,
) -> int:
    """Decodes the values of `sizes[i]` bytes at `positions[i]`, of which a frame takes the first `skipped`.

    `tables` say where slots are in `numbers` and `lengths`, and get the numbers of items. `stack` is room for STACK
    numbers, `places` for the values of a block; `statuses` has one for each value. Returns the number of BROKEN values,
    or BAD_PROGRAM if an operation or an array does not fit.
    """
    rows = len(positions)
    if skipped < 0 or len(statuses) < rows or len(sizes) < rows or len(places) == 0 or len(stack) < STACK:
        return BAD_PROGRAM
    if not tables_fit(tables, rows, numbers, lengths) or not _fits(program, tables, stack):
        return BAD_PROGRAM
    slots = tables[0, END_SLOT]
    broken, first = 0, 0
    while first < rows:
        count = min(len(places), rows - first)
        for j in range(count):
            position = np.int64(positions[first + j])
            size = np.int64(sizes[first + j])
            fits = size >= skipped and position >= 0 and size <= len(arena) - position
            places[j, _AT] = position + skipped if fits else -1
            places[j, _END] = position + size
            places[j, _NEXT] = 0
        at = np.int64(0)
        while at < len(program):
            if program[at, CODE] == LIST:
                at = _lists(arena, program, at, tables, stack, places, count, numbers, lengths, rows, first)
            else:
                _operate(arena, program, at, places, count, numbers, lengths, rows, first)
                at += 1
        for j in range(count):
            good = places[j, _AT] >= 0 and places[j, _AT] == places[j, _END]
            statuses[first + j] = DECODED if good else NULL if sizes[first + j] < 0 else BROKEN
            if not good:
                for slot in range(slots):  # the numbers of lists stay, as their items are there
                    lengths[slot * rows + first + j] = -1
                broken += sizes[first + j] >= 0
        first += count
    return broken


@inlined
def _operate(
    arena: Bytes,
    program: Sextets,
    at: int,
    places: WritableTriples,
    count: int,
    numbers: WritableInt64s,
    lengths: WritableInt32s,
    rows: int,
    first: int,
) -> None:
    """Does one operation, no LIST, on the values of a block; a broken one is at -1."""
    code, slot, size = program[at, CODE], program[at, SLOT], program[at, FIRST]
    least, most, stop = program[at, LEAST], program[at, MOST], program[at, STOP]
    for j in range(count):
        p = places[j, _AT]
        if p < 0 or places[j, _NEXT] > at:
            continue
        if code != OPTIONAL:
            out = slot * rows + first + j
            places[j, _AT] = _field(arena, p, places[j, _END], code, size, least, most, numbers, lengths, out)
            continue
        branch, p = _read(arena, p, places[j, _END])
        places[j, _AT] = p if 0 <= branch <= 1 else -1
        if branch == size:
            clear(numbers, lengths, least, most, rows, first + j)
            places[j, _NEXT] = stop


@inlined
def _lists(
    arena: Bytes,
    program: Sextets,
    at: int,
    tables: WritableSextets,
    stack: WritableInt64s,
    places: WritableTriples,
    count: int,
    numbers: WritableInt64s,
    lengths: WritableInt32s,
    rows: int,
    first: int,
) -> int:
    """Does a LIST on the values of a block; returns the operation after it."""
    slot, table, stop = program[at, SLOT], program[at, FIRST], program[at, MOST]
    for j in range(count):
        out = slot * rows + first + j
        if places[j, _AT] >= 0:
            if places[j, _NEXT] > at:
                continue
            begin_items(tables, table, stop)
            p = _items(arena, places[j, _AT], places[j, _END], program, at, tables, stack, numbers, lengths, out)
            places[j, _AT] = p
            if p >= 0:
                continue
            drop_items(tables, table, stop)
        numbers[out] = 0
    following: int = program[at, STOP]
    return following


@inlined
def _items(
    arena: Bytes,
    p: int,
    end: int,
    program: Sextets,
    at: int,
    tables: WritableSextets,
    stack: WritableInt64s,
    numbers: WritableInt64s,
    lengths: WritableInt32s,
    out: int,
) -> int:
    """Decodes one list at `p`, whose slot is at `out`, and all within; returns where it ends, -1 if it is broken."""
    level, row, left, size = 0, np.int64(0), np.int64(0), np.int64(0)
    table, stop = program[at, FIRST], program[at, STOP]
    following = stop
    while p >= 0:
        if following == stop:
            if left == 0:
                left, p = _block(arena, p, end)
            if left == 0:
                numbers[out], lengths[out] = size, 0
                if level == 0:
                    return p
                level -= 1
                at, left, size, out, row = kept(stack, level)
                table, stop = program[at, FIRST], program[at, STOP]
                continue
            left -= 1
            size += 1
            row = next_row(tables, table)
            following = at + 1
        code, argument, room = program[following, CODE], program[following, FIRST], tables[table, ROOM]
        least, most, here = program[following, LEAST], program[following, MOST], program[following, SLOT] * room + row
        following += 1
        if code == OPTIONAL:
            branch, p = _read(arena, p, end)
            p = p if 0 <= branch <= 1 else -1
            if branch == argument:
                clear(numbers, lengths, least, most, room, row)
                following = program[following - 1, STOP]
        elif code == LIST:
            level = push(stack, level, at, left, size, out, row)
            at, left, size, out = following - 1, np.int64(0), np.int64(0), here
            table, stop = argument, program[at, STOP]
            following = stop
        else:
            p = _field(arena, p, end, code, argument, least, most, numbers, lengths, here)
    return -1


@inlined
def _block(arena: Bytes, p: int, end: int) -> tuple[int, int]:
    """Reads how many items follow; (0, -1) if there are fewer bytes. A negative number comes with the bytes' number."""
    count, p = _read(arena, p, end)
    if count < 0 and p >= 0:
        count = -count
        _, p = _read(arena, p, end)  # which libraries do not look at, either
    if p < 0 or count < 0 or count > end - p:
        return np.int64(0), np.int64(-1)
    return count, p


@inlined
def _read(data: Bytes, p: int, end: int) -> tuple[int, int]:
    """Reads the number at `p` as `read_varlong` does; most take one byte."""
    if p < end:
        byte = load_byte(data, p)
        if byte < 128:
            return (byte >> 1) ^ -(byte & 1), p + 1
    return read_varlong(data, p, end)


@inlined
def _field(
    arena: Bytes,
    p: int,
    end: int,
    code: int,
    size: int,
    least: int,
    most: int,
    numbers: WritableInt64s,
    lengths: WritableInt32s,
    out: int,
) -> int:
    """Decodes one field at `p`; returns where it ends, -1 if it is broken."""
    number, length = np.int64(0), np.int64(0)
    if code == NUMBER:
        number, p = _read(arena, p, end)
        if p < 0 or number < least or number > most:
            return -1
    elif code in (TEXT, FIXED):
        length = size
        if code == TEXT:
            length, p = _read(arena, p, end)
        if p < 0 or length < 0 or length > end - p:
            return -1
        number = p
        p += length
    elif code == DOUBLE:
        if end - p < 8:
            return -1
        number = load_little_int64(arena, p)
        p += 8
    elif code == BOOLEAN:
        if end - p < 1 or load_byte(arena, p) > 1:
            return -1
        number = load_byte(arena, p)
        p += 1
    elif code == FLOAT:
        if end - p < 4:
            return -1
        number = load_float(arena, p)
        p += 4
    elif code == NOTHING:
        length = -1
    numbers[out] = number
    lengths[out] = length
    return p


@kernel
def _fits(program: Sextets, tables: WritableSextets, stack: WritableInt64s) -> bool:
    """True if operations name only slots of their table, and only later operations of their list."""
    level, table, stop = 0, np.int64(0), np.int64(len(program))
    for at in range(len(program)):
        while at == stop:
            level -= 1
            table, stop = stack[2 * level], stack[2 * level + 1]
        code, least, most = program[at, CODE], program[at, LEAST], program[at, MOST]
        if code < NOTHING or code > LIST:
            return False
        if code in (OPTIONAL, LIST) and (program[at, STOP] <= at or program[at, STOP] > stop):
            return False
        if code == OPTIONAL:
            if least < tables[table, FIRST_SLOT] or most > tables[table, END_SLOT]:
                return False
            continue
        if program[at, SLOT] < tables[table, FIRST_SLOT] or program[at, SLOT] >= tables[table, END_SLOT]:
            return False
        if code == FIXED and (program[at, FIRST] < 0 or program[at, FIRST] > 0x7FFFFFFF):
            return False
        if code == LIST:
            if program[at, FIRST] <= table or program[at, FIRST] >= most or most > len(tables):
                return False
            if level == MOST_LEVELS or program[at, STOP] == at + 1:
                return False
            stack[2 * level], stack[2 * level + 1] = table, stop
            level += 1
            table, stop = program[at, FIRST], program[at, STOP]
    return True
