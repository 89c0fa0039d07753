"""Decodes Protobuf values by tables of their fields into slots (`value_slots`), without recursion.

`messages` has a row for each message that a value may hold, the value itself first: its fields, and its slots. `fields`
has the fields, message by message, in the order of numbers. What is there more than once wins the last time, and a
message is merged. Tables are for messages of numbers, texts and messages; other ones have none. Whatever else is in a
value makes it BROKEN: an unknown field or type on the wire, a text or a member of a oneof that is written twice. Then
whoever calls asks a library of Protobuf. Protocol Buffers, "Encoding".
"""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import inlined, kernel, load_byte, load_little_int64
from seglog.kernels.arrays import (
    Bytes,
    Int32Column,
    Int32s,
    Quads,
    Septets,
    WritableInt8s,
    WritableInt32s,
    WritableInt64s,
)
from seglog.kernels.value_slots import BROKEN, DECODED, NULL, clear, load_float

# Columns of a field: number, how it is read, its slots (a message's with all within), the message that it is, and the
# slots of its oneof (STOP of 0: none).
NUMBER, KIND, SLOT, END, MESSAGE, ONEOF, ONEOF_END = range(7)
# Columns of a message: its fields and its slots.
FIELDS, FIELDS_END, SLOTS, SLOTS_END = range(4)

# Kinds. The first seven are varints.
INT64, INT32, UINT32, SINT64, SINT32, BOOL, FIXED64, FIXED32, UFIXED32, TEXT, WITHIN = range(11)

BAD_TABLES = -1
MOST_LEVELS = 64

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # types on the wire
_LOW = 0xFFFFFFFF


@inlined
def _read(data: Bytes, p: int, end: int) -> tuple[int, int]:
    """Reads the varint of at most 10 bytes at `p` as the 64 bits of an int64; (0, -1) if it does not end by `end`."""
    value = np.int64(0)
    shift = 0
    while p < end:
        byte = load_byte(data, p)
        p += 1
        if shift == 63:
            if byte > 1:
                return 0, -1
            if byte == 1:
                value = value | np.int64(-0x8000000000000000)
            return value, p
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, p
        shift += 7
    return 0, -1


@inlined
def _signed(value: int) -> int:
    """Returns the low 32 bits as a number with a sign."""
    low = value & _LOW
    return low - 0x100000000 if low > 0x7FFFFFFF else low


@inlined
def _begin(
    message: int,
    messages: Quads,
    owners: Int32s,
    absent: Int32s,
    numbers: WritableInt64s,
    lengths: WritableInt32s,
    rows: int,
    row: int,
) -> None:
    """Gives the slots of a message what they have if no field is there: those of messages within are null."""
    for slot in range(messages[message, SLOTS], messages[message, SLOTS_END]):
        numbers[slot * rows + row] = 0
        lengths[slot * rows + row] = absent[slot] if owners[slot] == message else -1


@kernel
def decode_protobuf(
    arena: Bytes,
    positions: Int32Column,
    sizes: Int32Column,
    skipped: int,
    messages: Quads,
    fields: Septets,
    owners: Int32s,
    absent: Int32s,
    stack: WritableInt64s,
    numbers: WritableInt64s,
    lengths: WritableInt32s,
    statuses: WritableInt8s,
) -> int:
    """Decodes the values of `sizes[i]` bytes at `positions[i]`, of which a frame takes the first `skipped`.

    `owners` and `absent` say for each slot which message has it, and its length where the field is not there. `stack`
    is room for 2 * MOST_LEVELS numbers; the other outputs are those of `avro_values.decode_avro`. Returns the number of
    BROKEN values, or BAD_TABLES if the arrays do not fit.
    """
    rows = len(positions)
    slots = len(owners)
    if not _fit(messages, fields, owners, absent) or skipped < 0 or len(statuses) < rows or len(sizes) < rows:
        return BAD_TABLES
    if len(numbers) < slots * rows or len(lengths) < slots * rows or len(stack) < 2 * MOST_LEVELS:
        return BAD_TABLES
    broken = 0
    for i in range(rows):
        p = np.int64(positions[i])
        size = np.int64(sizes[i])
        if size < 0:
            statuses[i] = NULL
        elif p < 0 or size < skipped or size > len(arena) - p:
            statuses[i] = BROKEN
        else:
            end = p + size
            _begin(0, messages, owners, absent, numbers, lengths, rows, i)
            good = _message(arena, p + skipped, end, messages, fields, owners, absent, stack, numbers, lengths, rows, i)
            statuses[i] = DECODED if good else BROKEN
        if statuses[i] != DECODED:
            clear(numbers, lengths, 0, slots, rows, i)
            broken += statuses[i] == BROKEN
    return broken


@inlined
def _message(
    arena: Bytes,
    p: int,
    end: int,
    messages: Quads,
    fields: Septets,
    owners: Int32s,
    absent: Int32s,
    stack: WritableInt64s,
    numbers: WritableInt64s,
    lengths: WritableInt32s,
    rows: int,
    row: int,
) -> bool:
    """Decodes one value at `p` into a row; returns False if it is broken."""
    message, level = np.int64(0), 0
    expected = messages[0, FIELDS]
    while True:
        if p >= end:
            if level == 0:
                return True
            level -= 1
            message, end = stack[2 * level], stack[2 * level + 1]
            expected = messages[message, FIELDS]
            continue
        tag, p = _read(arena, p, end)
        if p < 0 or tag < 8 or tag > _LOW:
            return False
        field = _found(fields, messages[message, FIELDS], messages[message, FIELDS_END], expected, tag >> 3)
        if field < 0 or _is_another_member(fields, field, lengths, rows, row):
            return False
        expected = field + 1
        kind, out = fields[field, KIND], fields[field, SLOT] * rows + row
        value, p = _value(arena, p, end, kind, tag & 7)
        if p < 0:
            return False
        if kind < TEXT:
            numbers[out] = value
            lengths[out] = 0
        elif kind == TEXT:
            if numbers[out] != 0:  # the text before this one would go unseen, and it may be no UTF-8
                return False
            numbers[out] = p
            lengths[out] = value
            p += value
        else:
            if level == MOST_LEVELS:
                return False
            stack[2 * level], stack[2 * level + 1] = message, end
            level += 1
            message, end = fields[field, MESSAGE], p + value
            expected = messages[message, FIELDS]
            if lengths[out] < 0:
                lengths[out] = 0
                _begin(message, messages, owners, absent, numbers, lengths, rows, row)


@inlined
def _value(data: Bytes, p: int, end: int, kind: int, wire: int) -> tuple[int, int]:
    """Reads a number, or the size of a text or message, and returns it and where it ends; (0, -1) if it is broken."""
    if kind <= BOOL or kind >= TEXT:
        value, p = _read(data, p, end)
        if kind >= TEXT:
            return (value, p) if p >= 0 and wire == _BYTES and 0 <= value <= end - p else (np.int64(0), -1)
        if kind == INT32:
            value = _signed(value)
        elif kind == UINT32:
            value &= _LOW
        elif kind == SINT64:
            value = ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
        elif kind == SINT32:
            value = ((value & _LOW) >> 1) ^ -(value & 1)
        elif kind == BOOL:
            value = np.int64(value != 0)
        return value, (p if wire == _VARINT else -1)
    if kind == FIXED64:
        if wire != _EIGHT or end - p < 8:
            return np.int64(0), -1
        return load_little_int64(data, p), p + 8
    if wire != _FOUR or end - p < 4:
        return np.int64(0), -1
    value = load_float(data, p)
    return (_signed(value) if kind == FIXED32 else value), p + 4


@inlined
def _is_another_member(fields: Septets, field: int, lengths: WritableInt32s, rows: int, row: int) -> bool:
    """True if another member of the field's oneof is there."""
    for slot in range(fields[field, ONEOF], fields[field, ONEOF_END]):
        if lengths[slot * rows + row] >= 0 and (slot < fields[field, SLOT] or slot >= fields[field, END]):
            return True
    return False


@inlined
def _found(fields: Septets, first: int, stop: int, expected: int, number: int) -> int:
    """Returns the field with this number, which mostly is the one that is expected; -1 if there is none."""
    if expected < stop and fields[expected, NUMBER] == number:
        return expected
    low, high = first, stop
    while low < high:
        middle = (low + high) >> 1
        if fields[middle, NUMBER] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and fields[low, NUMBER] == number else -1


@kernel
def _fit(messages: Quads, fields: Septets, owners: Int32s, absent: Int32s) -> bool:
    """True if the tables name only messages, fields and slots that are there."""
    slots = len(owners)
    if len(messages) == 0 or len(absent) < slots:
        return False
    for at in range(len(messages)):
        if messages[at, FIELDS] < 0 or messages[at, FIELDS_END] > len(fields):
            return False
        if messages[at, FIELDS_END] < messages[at, FIELDS]:
            return False
        if messages[at, SLOTS] < 0 or messages[at, SLOTS_END] > slots:
            return False
    for at in range(len(fields)):
        if fields[at, KIND] < INT64 or fields[at, KIND] > WITHIN:
            return False
        if fields[at, SLOT] < 0 or fields[at, SLOT] >= slots:
            return False
        if fields[at, ONEOF] < 0 or fields[at, ONEOF_END] > slots:
            return False
        if fields[at, MESSAGE] < 0 or fields[at, MESSAGE] >= len(messages):
            return False
    return True
