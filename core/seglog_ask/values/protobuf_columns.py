"""Protobuf messages as types of columns, and as tables of the kernel that decodes them (`kernels.protobuf_values`).

There are tables for messages of numbers, texts and messages, also repeated, and maps. Of Google's own types, which JSON
shows in a form of their own, Timestamp is a moment, Duration a number of seconds, and a wrapper what it wraps. Others
(groups, required fields, Struct, Any …) are decoded by `seglog_ask.values.protobuf`, a value at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from seglog.escaping import json_value
from seglog.kernels import protobuf_values as kernel
from seglog.kernels.value_slots import MOST_LEVELS, STACK
from seglog.layout import INT64_MAX
from seglog_ask.values.frames import MessageName
from seglog_ask.values.protobuf import messages_of
from seglog_ask.values.protobuf_forms import (
    DURATION,
    MESSAGES,
    OWN,
    TIMESTAMP,
    Pair,
    Showing,
    base64_text,
    fields_of,
    is_map,
    is_pair,
    is_repeated,
    is_wrapper,
    key_text,
    moment_text,
    name_of,
    wrong_pair,
)
from seglog_ask.values.schemas import Remarks, Schema
from seglog_ask.values.shapes import (
    MOST_FIELDS,
    TEXT,
    Described,
    Leaf,
    LeafSlot,
    ListOf,
    ListSlot,
    MapOf,
    MapSlot,
    Outputs,
    PairSlot,
    Payloads,
    Program,
    Shape,
    Slotted,
    Struct,
    StructSlot,
    are_columns,
    size_of,
)

_UNSIGNED = Leaf("unsigned")
# For each type, what its column is and how the kernel reads it.
_LEAVES: dict[int, tuple[Leaf, int]] = {
    FieldDescriptor.TYPE_INT64: (Leaf("long"), kernel.INT64),
    FieldDescriptor.TYPE_INT32: (Leaf("int"), kernel.INT32),
    FieldDescriptor.TYPE_UINT64: (_UNSIGNED, kernel.INT64),
    FieldDescriptor.TYPE_UINT32: (Leaf("long"), kernel.UINT32),
    FieldDescriptor.TYPE_SINT64: (Leaf("long"), kernel.SINT64),
    FieldDescriptor.TYPE_SINT32: (Leaf("int"), kernel.SINT32),
    FieldDescriptor.TYPE_BOOL: (Leaf("boolean"), kernel.BOOL),
    FieldDescriptor.TYPE_FIXED64: (_UNSIGNED, kernel.FIXED64),
    FieldDescriptor.TYPE_SFIXED64: (Leaf("long"), kernel.FIXED64),
    FieldDescriptor.TYPE_DOUBLE: (Leaf("double"), kernel.FIXED64),
    FieldDescriptor.TYPE_FIXED32: (Leaf("long"), kernel.UFIXED32),
    FieldDescriptor.TYPE_SFIXED32: (Leaf("int"), kernel.FIXED32),
    FieldDescriptor.TYPE_FLOAT: (Leaf("float"), kernel.UFIXED32),
    FieldDescriptor.TYPE_STRING: (Leaf("string"), kernel.TEXT),
    FieldDescriptor.TYPE_BYTES: (Leaf("bytes"), kernel.TEXT),
    FieldDescriptor.TYPE_ENUM: (Leaf("string"), kernel.INT32),
}
# Google's own types that are columns: a moment, and seconds, which have all the digits of a duration.
_PAIRS = {TIMESTAMP: Leaf("timestamp-nanos"), DURATION: Leaf("decimal", 28, 9)}


def described(schema: Schema, references: Mapping[str, Schema], name: MessageName) -> Described:
    """Returns what a message of a schema says of columns.

    Raises NotDecodedError for a schema that is wrong, or has no such message.
    """
    message = messages_of(schema, references).named(name)[0]
    shape = _Walk().of_message(message, ())
    if size_of(shape) > MOST_FIELDS:
        return Described(TEXT)
    making = _Making()
    root = making.of_type(message, 0)
    return Described(shape, None if root is None else ProtobufProgram(root, making))


def column_values(message: Any, shape: Shape, showing: Showing, remarks: Remarks) -> Any:
    """Returns a decoded message for a column of a shape, in JSON's types: null where a field is not there."""
    if not isinstance(shape, Struct):
        return _of_message(message, shape, showing, remarks)
    found: dict[str, Any] = dict.fromkeys(name for name, _ in shape.fields)
    fields = {name_of(field): field for field in fields_of(message.DESCRIPTOR)}
    for name, child in shape.fields:
        field = fields.get(name)
        if field is None or (field.has_presence and not _is_there(message, field)):
            continue
        value = message.Extensions[field] if field.is_extension else getattr(message, field.name)
        if child == TEXT:
            found[name] = _as_text(field, value, showing, remarks)
        elif isinstance(child, MapOf):
            of_value = field.message_type.fields_by_name["value"]
            found[name] = {key_text(key): _single(of_value, value[key], child.value, showing, remarks) for key in value}
        elif isinstance(child, ListOf):
            found[name] = [_single(field, one, child.item, showing, remarks) for one in value]
        else:
            found[name] = _single(field, value, child, showing, remarks)
    return found


def _is_there(message: Any, field: FieldDescriptor) -> bool:
    return bool(message.HasExtension(field) if field.is_extension else message.HasField(field.name))


def _as_text(field: FieldDescriptor, value: Any, showing: Showing, remarks: Remarks) -> Any:
    of_field = showing.of_field(field)
    shown = value if of_field is None else of_field(value, remarks)
    return shown if isinstance(shown, str) else json_value(shown)


def _of_message(message: Any, shape: Shape, showing: Showing, remarks: Remarks) -> Any:
    """Returns a message that is not a row: one of Google's own types, or the text of any."""
    kind = message.DESCRIPTOR
    if shape == TEXT:
        shown = showing.of(kind)(message, remarks)
        return shown if isinstance(shown, str) else json_value(shown)
    if is_wrapper(kind):
        return _single(kind.fields_by_name["value"], message.value, shape, showing, remarks)
    pair, name = Pair(message.seconds, message.nanos), kind.name
    if kind.full_name == DURATION:
        if not pair.is_duration:
            remarks.add(wrong_pair(pair, name))
            return None
        return f"{'-' if pair.total < 0 else ''}{abs(pair.seconds)}.{abs(pair.nanos):09}"
    if not pair.is_moment:
        remarks.add(wrong_pair(pair, name))
        return None
    if not -INT64_MAX - 1 <= pair.total <= INT64_MAX:
        remarks.add(f"{moment_text(pair)} does not fit {shape}")
        return None
    return pair.total


def _single(field: FieldDescriptor, value: Any, shape: Shape, showing: Showing, remarks: Remarks) -> Any:
    if field.type in MESSAGES:
        return column_values(value, shape, showing, remarks)
    if field.enum_type is not None:
        symbol = field.enum_type.values_by_number.get(value)
        return str(value) if symbol is None else symbol.name
    if isinstance(value, bytes):
        return base64_text(value) if shape == TEXT else value.decode("iso-8859-1")
    return value


class _Walk:
    """Finds the shape of a message."""

    def __init__(self) -> None:
        self._size = 0

    def of_message(self, message: Descriptor, above: tuple[str, ...]) -> Shape:
        """Returns the shape of a message, which is TEXT if it is within itself; `above` are those around it."""
        self._size += 1
        name = message.full_name
        too_much = len(above) > MOST_LEVELS or self._size > 2 * MOST_FIELDS
        if is_pair(message):
            return _PAIRS[name]
        if is_wrapper(message):
            return _LEAVES[message.fields_by_name["value"].type][0]
        if too_much or name in above or name.startswith(OWN):
            return TEXT
        fields = fields_of(message)
        if not are_columns([name_of(field) for field in fields]):
            return TEXT
        return Struct(tuple((name_of(field), self._of_field(field, (*above, name))) for field in fields))

    def _of_field(self, field: FieldDescriptor, above: tuple[str, ...]) -> Shape:
        self._size += 1
        if is_map(field):
            return MapOf(self._single(field.message_type.fields_by_name["value"], above))
        single = self._single(field, above)
        return ListOf(single) if is_repeated(field) else single

    def _single(self, field: FieldDescriptor, above: tuple[str, ...]) -> Shape:
        return self.of_message(field.message_type, above) if field.type in MESSAGES else _LEAVES[field.type][0]


# --- tables ---------------------------------------------------------------------------------------------------


class _Making:
    """Collects the tables of a message and those within. Slots of a message are side by side, with all within.

    `messages` have their slots and the table of these, `owners` and `absent` of each table what the kernel wants.
    """

    def __init__(self) -> None:
        self.messages: list[list[int]] = []
        self.fields: dict[int, list[list[int]]] = {}
        self.owners: list[list[int]] = [[]]
        self.absent: list[list[int]] = [[]]

    def of_type(
        self, message: Descriptor, level: int, table: int = 0, owner: int = -1, slot: int = -1
    ) -> Slotted | None:
        """Adds what decodes a message. Returns its slots, None if there are no tables for it.

        `owner` is a message that always has this one; `slot` tells whether it is there (-1: always).
        """
        name = message.full_name
        is_leaf = is_pair(message) or is_wrapper(message)
        within = None if name.startswith(OWN) and not is_leaf else self._of_message(message, level, table, owner)
        if within is None or not is_leaf:
            return None if within is None else StructSlot(within.fields, slot)
        leaves = [one for _, one in within.fields]
        if is_wrapper(message):
            return leaves[0]
        seconds, nanos = (one.slot for one in leaves if isinstance(one, LeafSlot))
        return PairSlot(_PAIRS[name], seconds, nanos)

    def _of_message(self, message: Descriptor, level: int, table: int, owner: int) -> StructSlot | None:
        fields = fields_of(message)
        too_much = level >= MOST_LEVELS or sum(map(len, self.owners)) > MOST_FIELDS
        if too_much or not are_columns([name_of(field) for field in fields]):
            return None
        number, first = len(self.messages), len(self.owners[table])
        self.messages.append([])
        rows, slotted = list[list[int]](), list[tuple[str, Slotted]]()
        for field in fields:
            within = self._of_field(field, number if owner < 0 else owner, level, table, rows)
            if within is None:
                return None
            slotted.append((name_of(field), within))
        _note_oneofs(message, rows)
        self.messages[number] = [first, len(self.owners[table]), table]
        self.fields[number] = sorted(rows)
        return StructSlot(tuple(slotted))

    def _of_field(
        self, field: FieldDescriptor, owner: int, level: int, table: int, rows: list[list[int]]
    ) -> Slotted | None:
        if field.is_required or field.type == FieldDescriptor.TYPE_GROUP:
            return None
        if is_repeated(field):
            return self._repeated(field, owner, level, table, rows)
        # an entry that lacks its key or value has an empty one
        is_always = field.containing_type.GetOptions().map_entry
        slot = self._slot(table, owner, -1 if field.has_presence and not is_always else 0)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            number = len(self.messages)
            within = self.of_type(field.message_type, level + 1, table, owner if is_always else -1, slot)
            rows.append([field.number, kernel.WITHIN, slot, len(self.owners[table]), number, 0, 0, 0])
            return within
        rows.append([field.number, _LEAVES[field.type][1], slot, slot + 1, 0, 0, 0, 0])
        return _leaf_slot(field, slot)

    def _repeated(
        self, field: FieldDescriptor, owner: int, level: int, table: int, rows: list[list[int]]
    ) -> Slotted | None:
        slot, items = self._slot(table, owner, 0), len(self.owners)
        self.owners.append([])
        self.absent.append([])
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            kind = kernel.REPEATED + _LEAVES[field.type][1]
            rows.append([field.number, kind, slot, slot + 1, 0, 0, 0, items])
            return ListSlot(_leaf_slot(field, self._slot(items, owner, 0)), slot, items)
        kind = kernel.REPEATED + kernel.WITHIN
        rows.append([field.number, kind, slot, slot + 1, len(self.messages), 0, 0, items])
        item = self.of_type(field.message_type, level + 1, items)
        if item is None or not is_map(field):
            return None if item is None else ListSlot(item, slot, items)
        assert isinstance(item, StructSlot)
        (_, key), (_, value) = item.fields
        assert isinstance(key, LeafSlot)
        return MapSlot(key, value, slot, items)

    def _slot(self, table: int, owner: int, absent: int) -> int:
        self.owners[table].append(owner)
        self.absent[table].append(absent)
        return len(self.owners[table]) - 1


def _leaf_slot(field: FieldDescriptor, slot: int) -> LeafSlot:
    leaf = _LEAVES[field.type][0]
    if field.enum_type is None:
        return LeafSlot(leaf, slot)
    return LeafSlot(leaf, slot, {number: value.name for number, value in field.enum_type.values_by_number.items()})


def _note_oneofs(message: Descriptor, rows: list[list[int]]) -> None:
    """Gives each member of a oneof the slots of all of them, which are side by side."""
    of_number = {row[kernel.NUMBER]: row for row in rows}
    for oneof in message.oneofs:
        members = [of_number[field.number] for field in oneof.fields]
        first, stop = min(row[kernel.SLOT] for row in members), max(row[kernel.END] for row in members)
        for row in members if len(members) > 1 else ():
            row[kernel.ONEOF], row[kernel.ONEOF_END] = first, stop


class ProtobufProgram(Program):
    """Decodes values of a message by `kernels.protobuf_values`."""

    def __init__(self, root: Slotted, making: _Making) -> None:
        super().__init__(root, list(map(len, making.owners)))
        messages, fields = list[list[int]](), list[list[int]]()
        for number, (first, stop, table) in enumerate(making.messages):
            shift = self.firsts[table]
            of_message = making.fields[number]
            messages.append([len(fields), len(fields) + len(of_message), first + shift, stop + shift, table])
            fields += [_shifted(row, shift) for row in of_message]
        self.tables = (
            np.array(messages, dtype=np.int64),
            np.array(fields, dtype=np.int64).reshape(-1, 8),
            np.array([*chain(*making.owners)], dtype=np.int32),
            np.array([*chain(*making.absent)], dtype=np.int32),
        )

    def _decode(self, payloads: Payloads, tables: np.ndarray, outputs: Outputs) -> None:
        stack = np.empty(STACK, dtype=np.int64)
        done = kernel.decode_protobuf(*payloads, *self.tables, tables, stack, *outputs)
        assert done != kernel.BAD_TABLES


def _shifted(row: list[int], shift: int) -> list[int]:
    """Returns a field whose slots are counted through all tables."""
    slots = (kernel.SLOT, kernel.END, kernel.ONEOF, kernel.ONEOF_END)
    return [number + shift if column in slots else number for column, number in enumerate(row)]
