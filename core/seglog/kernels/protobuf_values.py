"""Decodes Protobuf values by tables of their fields into slots (`value_slots`), without recursion.

`messages` has a row for each message that a value may hold, the value itself first: its fields, and its slots. `fields`
has the fields, message by message, in the order of numbers. What is there more than once wins the last time, and a
message is merged; what repeats gets one more item, or as many as are packed. The entries of maps are messages, too.
There are no such tables for groups. Whatever else is in a value makes it BROKEN: an unknown field or type on the wire,
a text or a member of a oneof that is written twice. Then whoever calls asks a library of Protobuf.
Protocol Buffers, "Encoding".
"""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import inlined, kernel, load_byte, load_little_int64
from seglog.kernels.arrays import (
    Bytes,
    Int32Column,
    Int32s,
    Octets,
    Quintets,
    WritableInt8s,
    WritableInt32s,
    WritableInt64s,
    WritableSextets,
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

# Columns of a field: number, how it is read, its slots (a message's with all within), the message that it is, the slots
# of its oneof (the same number twice: none), and the table of its items if it repeats.
NUMBER, KIND, SLOT, END, MESSAGE, ONEOF, ONEOF_END, ITEMS_TABLE = range(8)
# Columns of a message: its fields, its slots, and their table.
FIELDS, FIELDS_END, SLOTS, SLOTS_END, TABLE = range(5)

# Kinds. The first six are varints. A field that repeats has REPEATED more.
INT64, INT32, UINT32, SINT64, SINT32, BOOL, FIXED64, FIXED32, UFIXED32, TEXT, WITHIN = range(11)
REPEATED = 16

BAD_TABLES = -1

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
    messages: Quintets,
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
    messages: Quintets,
    fields: Octets,
    owners: Int32s,
    absent: Int32s,
    tables: WritableSextets,
    stack: WritableInt64s,
    numbers: WritableInt64s,
    lengths: WritableInt32s,
    statuses: WritableInt8s,
) -> int:
    """Decodes the values of `sizes[i]` bytes at `positions[i]`, of which a frame takes the first `skipped`.

    `owners` and `absent` say for each slot which message has it, and its length where the field is not there. `stack`
    is room for STACK numbers; the other outputs are those of `avro_values.decode_avro`. Returns the number of BROKEN
    values, or BAD_TABLES if the arrays do not fit.
    """
    rows = len(positions)
    if skipped < 0 or len(statuses) < rows or len(sizes) < rows or len(stack) < STACK:
        return BAD_TABLES
    if not tables_fit(tables, rows, numbers, lengths) or not _fit(messages, fields, owners, absent, tables):
        return BAD_TABLES
    slots = tables[0, END_SLOT]
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
            begin_items(tables, 1, len(tables))
            _begin(0, messages, owners, absent, numbers, lengths, rows, i)
            p += skipped
            good = _message(
                arena, p, end, messages, fields, owners, absent, tables, stack, numbers, lengths, np.int64(rows), i
            )
            statuses[i] = DECODED if good else BROKEN
            if not good:
                drop_items(tables, 1, len(tables))
        if statuses[i] != DECODED:
            clear(numbers, lengths, 0, slots, rows, i)
            broken += statuses[i] == BROKEN
    return broken


@inlined
def _message(
    arena: Bytes,
    p: int,
    end: int,
    messages: Quintets,
    fields: Octets,
    owners: Int32s,
    absent: Int32s,
    tables: WritableSextets,
    stack: WritableInt64s,
    numbers: WritableInt64s,
    lengths: WritableInt32s,
    rows: int,
    row: int,
) -> bool:
    """Decodes one value at `p` into a row; returns False if it is broken."""
    message, level, expected = np.int64(0), 0, messages[0, FIELDS]
    while p >= 0 and (level > 0 or p < end):
        if p >= end:
            level -= 1
            message, end, expected, rows, row = kept(stack, level)
            continue
        tag, p = _read(arena, p, end)
        field = _found(fields, messages[message, FIELDS], messages[message, FIELDS_END], expected, tag >> 3)
        if p < 0 or tag > _LOW or field < 0 or _is_another_member(fields, field, lengths, rows, row):
            return False
        kind, out, of_item, item = fields[field, KIND], fields[field, SLOT] * rows + row, rows, row
        expected = field + 1
        if kind >= REPEATED:
            kind, expected, table = kind - REPEATED, field, fields[field, ITEMS_TABLE]
            if kind < TEXT and tag & 7 == _BYTES:
                count, p = _packed(arena, p, end, kind, table, tables, numbers, lengths)
                numbers[out] += count
                continue
            numbers[out] += 1
            of_item, item = tables[table, ROOM], next_row(tables, table)
            out = tables[table, FIRST_SLOT] * of_item + item
            numbers[out], lengths[out] = 0, -1
        value, p = _value(arena, p, end, kind, tag & 7)
        if p < 0 or (kind == WITHIN and level == MOST_LEVELS):
            return False
        if kind < TEXT:
            numbers[out], lengths[out] = value, 0
        elif kind == TEXT:
            if numbers[out] != 0:  # the text before this one would go unseen, and it may be no UTF-8
                return False
            numbers[out], lengths[out] = p, value
            p += value
        else:
            level = push(stack, level, message, end, expected, rows, row)
            message, end, rows, row = fields[field, MESSAGE], p + value, of_item, item
            expected = messages[message, FIELDS]
            if lengths[out] < 0:
                lengths[out] = 0
                _begin(message, messages, owners, absent, numbers, lengths, rows, row)
    return bool(p >= 0)


@inlined
def _packed(
    data: Bytes,
    p: int,
    end: int,
    kind: int,
    table: int,
    tables: WritableSextets,
    numbers: WritableInt64s,
    lengths: WritableInt32s,
) -> tuple[int, int]:
    """Reads packed numbers as items of a table; returns their number and where they end; (0, -1) if they are broken."""
    size, p = _read(data, p, end)
    if p < 0 or size < 0 or size > end - p:
        return np.int64(0), np.int64(-1)
    count, stop, first = np.int64(0), p + size, tables[table, FIRST_SLOT] * tables[table, ROOM]
    wire = _EIGHT if kind == FIXED64 else _FOUR if kind >= FIXED32 else _VARINT
    while p < stop:
        value, p = _value(data, p, stop, kind, wire)
        if p < 0:
            return np.int64(0), np.int64(-1)
        out = first + next_row(tables, table)
        numbers[out] = value
        lengths[out] = 0
        count += 1
    return count, p


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
def _is_another_member(fields: Octets, field: int, lengths: WritableInt32s, rows: int, row: int) -> bool:
    """True if another member of the field's oneof is there."""
    for slot in range(fields[field, ONEOF], fields[field, ONEOF_END]):
        if lengths[slot * rows + row] >= 0 and (slot < fields[field, SLOT] or slot >= fields[field, END]):
            return True
    return False


@inlined
def _found(fields: Octets, first: int, stop: int, expected: int, number: int) -> int:
    """Returns the field with this number, which mostly is the one that is expected; -1 if there is none."""
    if expected < stop and fields[expected, NUMBER] == number:
        return expected
    if expected + 1 < stop and fields[expected + 1, NUMBER] == number:  # after a field that repeats, or is not there
        return expected + 1
    low, high = first, stop
    while low < high:
        middle = (low + high) >> 1
        if fields[middle, NUMBER] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and fields[low, NUMBER] == number else -1


@kernel
def _fit(messages: Quintets, fields: Octets, owners: Int32s, absent: Int32s, tables: WritableSextets) -> bool:
    """True if messages and fields name only what is there, and slots of their own table."""
    if len(messages) == 0 or messages[0, TABLE] != 0:
        return False
    for table in range(len(tables)):
        if tables[table, END_SLOT] > min(len(owners), len(absent)):
            return False
    for at in range(len(messages)):
        table = messages[at, TABLE]
        if table < 0 or table >= len(tables):
            return False
        least, most = tables[table, FIRST_SLOT], tables[table, END_SLOT]
        if messages[at, SLOTS] < least or messages[at, SLOTS_END] > most:
            return False
        if messages[at, FIELDS] < 0 or messages[at, FIELDS_END] > len(fields):
            return False
        if messages[at, FIELDS_END] < messages[at, FIELDS]:
            return False
        for field in range(messages[at, FIELDS], messages[at, FIELDS_END]):
            if not _field_fits(fields, field, messages, table, tables):
                return False
    return True


@inlined
def _field_fits(fields: Octets, field: int, messages: Quintets, table: int, tables: WritableSextets) -> bool:
    """True if a field of a message with this table names only what is there."""
    least, most = tables[table, FIRST_SLOT], tables[table, END_SLOT]
    if fields[field, SLOT] < least or fields[field, SLOT] >= most:
        return False
    if fields[field, ONEOF] < least or fields[field, ONEOF_END] > most:
        return False
    kind, items, message = fields[field, KIND], fields[field, ITEMS_TABLE], fields[field, MESSAGE]
    repeats = kind >= REPEATED
    kind -= REPEATED if repeats else 0
    if kind < INT64 or kind > WITHIN or items < 0 or items >= len(tables) or message < 0 or message >= len(messages):
        return False
    if repeats and tables[items, FIRST_SLOT] >= tables[items, END_SLOT]:
        return False
    return bool(kind != WITHIN or messages[message, TABLE] == (items if repeats else table))
