"""Decodes Avro values by a program into slots (`value_slots`), without recursion: one operation on a block of values
after the other, because a processor guesses right what the same operation does next.

An operation is a row of int64: code, slot, and four numbers that depend on the code. A program is for records of
records, numbers, texts and what may be null; schemas with more (lists, other unions) have none. A value is DECODED only
if it is consumed to its last byte and every number is in the range of its operation; all others are BROKEN, and whoever
calls asks a library of Avro for the reason. Apache Avro 1.12, "Binary Encoding".
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
    WritableTriples,
)
from seglog.kernels.value_slots import BROKEN, DECODED, NULL, clear, load_float
from seglog.kernels.varint import read_varlong

# Columns of an operation.
CODE, SLOT, FIRST, STOP, LEAST, MOST = range(6)

# Codes. NUMBER: a varint between LEAST and MOST. FIXED: FIRST bytes. OPTIONAL: a union of null and one more, whose null
# is branch FIRST; null clears the slots from LEAST to before MOST and goes on at operation STOP. PRESENT: a record that
# may be null is there. NOTHING: null, without bytes.
NOTHING, BOOLEAN, NUMBER, FLOAT, DOUBLE, TEXT, FIXED, OPTIONAL, PRESENT = range(9)

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
    slots: int,
    places: WritableTriples,
    numbers: WritableInt64s,
    lengths: WritableInt32s,
    statuses: WritableInt8s,
) -> int:
    """Decodes the values of `sizes[i]` bytes at `positions[i]`, of which a frame takes the first `skipped`.

    `places` is room for the values of a block. `numbers` and `lengths` have `slots` times as many items as there are
    values, `statuses` one for each. Returns the number of BROKEN values, or BAD_PROGRAM if an operation or an array
    does not fit.
    """
    rows = len(positions)
    if not _fits(program, slots) or skipped < 0 or len(statuses) < rows or len(sizes) < rows or len(places) == 0:
        return BAD_PROGRAM
    if len(numbers) < slots * rows or len(lengths) < slots * rows:
        return BAD_PROGRAM
    broken = 0
    for first in range(0, rows, len(places)):
        count = min(len(places), rows - first)
        for j in range(count):
            position = np.int64(positions[first + j])
            size = np.int64(sizes[first + j])
            fits = size >= skipped and position >= 0 and size <= len(arena) - position
            places[j, _AT] = position + skipped if fits else -1
            places[j, _END] = position + size
            places[j, _NEXT] = 0
        for at in range(len(program)):
            _operate(arena, program, at, places, count, numbers, lengths, rows, first)
        for j in range(count):
            good = places[j, _AT] >= 0 and places[j, _AT] == places[j, _END]
            statuses[first + j] = DECODED if good else NULL if sizes[first + j] < 0 else BROKEN
            if not good:
                clear(numbers, lengths, 0, slots, rows, first + j)
                broken += sizes[first + j] >= 0
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
    """Does one operation on the values of a block; a broken one is at -1."""
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
def _fits(program: Sextets, slots: int) -> bool:
    """True if operations name only slots that are there, and only later operations."""
    if slots < 0:
        return False
    for at in range(len(program)):
        code = program[at, CODE]
        if code < NOTHING or code > PRESENT:
            return False
        if code == OPTIONAL:
            if program[at, STOP] <= at or program[at, STOP] > len(program):
                return False
            if program[at, LEAST] < 0 or program[at, MOST] > slots:
                return False
        elif program[at, SLOT] < 0 or program[at, SLOT] >= slots:
            return False
        if code == FIXED and (program[at, FIRST] < 0 or program[at, FIRST] > 0x7FFFFFFF):
            return False
    return True
