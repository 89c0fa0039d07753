"""Protobuf messages as types of columns, and as tables of the kernel that decodes them (`kernels.protobuf_values`).

There are tables for messages of numbers, texts and messages, also repeated, and maps. Others (groups, required fields,
Google's own types, which JSON shows in a form of their own) are decoded by `seglog.values.protobuf`, a value at a time.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from seglog.escaping import json_value
from seglog.kernels import protobuf_values as kernel
from seglog.kernels.value_slots import MOST_LEVELS, STACK
from seglog.values.frames import MessageName
from seglog.values.protobuf import as_json, messages_of
from seglog.values.schemas import Schema
from seglog.values.shapes import (
    MOST_FIELDS,
    TEXT,
    Described,
    Items,
    Leaf,
    LeafSlot,
    ListSlot,
    MapSlot,
    Named,
    Outputs,
    Payloads,
    Program,
    Row,
    RowSlot,
    Shape,
    Slotted,
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
_MESSAGES = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP)
_OWN_FORM = "google.protobuf."


def described(schema: Schema, references: Mapping[str, Schema], name: MessageName) -> Described:
    """Returns what a message of a schema says of columns.

    Raises NotDecodedError for a schema that is wrong, or has no such message.
    """
    message = messages_of(schema, references)(name)[0]
    shape = _Walk().of_message(message, ())
    if size_of(shape) > MOST_FIELDS:
        return Described(TEXT)
    making = _Making()
    root = making.of_message(message, 0)
    return Described(shape, None if root is None else ProtobufProgram(root, making))


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return field.type in _MESSAGES and bool(kind.GetOptions().map_entry)


def _is_repeated(field: FieldDescriptor) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)  # protobuf before 6.31


def plain(message: Any, shape: Shape) -> Any:
    """Returns a decoded message for a column of a shape, in JSON's types: null where a field is not there."""
    if not isinstance(shape, Row):
        return as_json(message, True)
    shown: dict[str, Any] = {}
    found: dict[str, Any] = dict.fromkeys(name for name, _ in shape.fields)
    fields = message.DESCRIPTOR.fields_by_name
    for name, child in shape.fields:
        field = fields.get(name)
        if field is None or (field.has_presence and not message.HasField(name)):
            continue
        if child == TEXT:
            shown = shown or json.loads(as_json(message, True))
            found[name] = shown[name] if isinstance(shown[name], str) else json_value(shown[name])
            continue
        value = getattr(message, name)
        if isinstance(child, Named):
            of_value = field.message_type.fields_by_name["value"]
            found[name] = {_key(key): _single(of_value, value[key], child.value) for key in value}
        elif isinstance(child, Items):
            found[name] = [_single(field, one, child.item) for one in value]
        else:
            found[name] = _single(field, value, child)
    return found


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(key).lower()  # as JSON has them


def _single(field: FieldDescriptor, value: Any, shape: Shape) -> Any:
    if field.type in _MESSAGES:
        text = plain(value, shape)
        return str(json.loads(text)) if isinstance(text, str) and text.startswith('"') else text
    if field.enum_type is not None:
        symbol = field.enum_type.values_by_number.get(value)
        value = value if symbol is None else symbol.name
    if isinstance(value, bytes):
        return base64.b64encode(value).decode() if shape == TEXT else value.decode("iso-8859-1")
    return str(value) if field.enum_type is not None else value


class _Walk:
    """Finds the shape of a message."""

    def __init__(self) -> None:
        self._size = 0

    def of_message(self, message: Descriptor, above: tuple[str, ...]) -> Shape:
        """Returns the shape of a message, which is TEXT if it is within itself; `above` are those around it."""
        self._size += 1
        name = message.full_name
        too_much = len(above) > MOST_LEVELS or self._size > 2 * MOST_FIELDS
        if too_much or name in above or name.startswith(_OWN_FORM):
            return TEXT
        names = [field.name for field in message.fields]
        if not are_columns(names):
            return TEXT
        return Row(tuple((field.name, self._of_field(field, (*above, name))) for field in message.fields))

    def _of_field(self, field: FieldDescriptor, above: tuple[str, ...]) -> Shape:
        self._size += 1
        if _is_map(field):
            return Named(self._single(field.message_type.fields_by_name["value"], above))
        single = self._single(field, above)
        return Items(single) if _is_repeated(field) else single

    def _single(self, field: FieldDescriptor, above: tuple[str, ...]) -> Shape:
        return self.of_message(field.message_type, above) if field.type in _MESSAGES else _LEAVES[field.type][0]


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

    def of_message(self, message: Descriptor, level: int, table: int = 0, owner: int = -1) -> RowSlot | None:
        """Adds what decodes a message. Returns its slots, None if there are no tables for it.

        `owner` is a message that always has this one.
        """
        names = [field.name for field in message.fields]
        too_much = level >= MOST_LEVELS or sum(map(len, self.owners)) > MOST_FIELDS
        if too_much or message.full_name.startswith(_OWN_FORM) or not are_columns(names):
            return None
        number, first = len(self.messages), len(self.owners[table])
        self.messages.append([])
        rows, slotted = list[list[int]](), list[tuple[str, Slotted]]()
        for field in message.fields:
            within = self._of_field(field, number if owner < 0 else owner, level, table, rows)
            if within is None:
                return None
            slotted.append((field.name, within))
        _note_oneofs(message, rows)
        self.messages[number] = [first, len(self.owners[table]), table]
        self.fields[number] = sorted(rows)
        return RowSlot(tuple(slotted))

    def _of_field(
        self, field: FieldDescriptor, owner: int, level: int, table: int, rows: list[list[int]]
    ) -> Slotted | None:
        if field.is_required or field.type == FieldDescriptor.TYPE_GROUP:
            return None
        if _is_repeated(field):
            return self._repeated(field, owner, level, table, rows)
        # an entry that lacks its key or value has an empty one
        is_always = field.containing_type.GetOptions().map_entry
        slot = self._slot(table, owner, -1 if field.has_presence and not is_always else 0)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            number = len(self.messages)
            within = self.of_message(field.message_type, level + 1, table, owner if is_always else -1)
            rows.append([field.number, kernel.WITHIN, slot, len(self.owners[table]), number, 0, 0, 0])
            return None if within is None else RowSlot(within.fields, slot)
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
        item = self.of_message(field.message_type, level + 1, items)
        if item is None or not _is_map(field):
            return None if item is None else ListSlot(item, slot, items)
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
