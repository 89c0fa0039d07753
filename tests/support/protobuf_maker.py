"""Random Protobuf schemas inside what the kernel decodes, values of them, and what a column has for a value."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor

_NUMBERS = (
    *("int32", "sint32", "sfixed32", "int64", "sint64", "sfixed64", "uint32", "fixed32", "uint64", "fixed64"),
    *("bool", "float", "double"),
)
_BITS = {"int32": (31, True), "sint32": (31, True), "sfixed32": (31, True), "uint32": (32, False)}
_BITS |= {"fixed32": (32, False), "int64": (63, True), "sint64": (63, True), "sfixed64": (63, True)}
_BITS |= {"uint64": (64, False), "fixed64": (64, False)}


class ProtobufMaker:
    """`text` is a schema, whose first message is M0."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._messages: list[str] = []
        self._message(2)
        kinds = " ".join(sorted(self._messages, key=lambda text: int(text.split()[1][1:])))
        self.text = f'syntax = "proto3"; {kinds} enum E {{ ZERO = 0; ONE = 1; MINUS = -1; }}'

    def _message(self, depth: int) -> str:
        draw, name = self.random, f"M{len(self._messages)}"
        place = len(self._messages)
        self._messages.append("")
        lines, number = [], 0
        for i in range(draw.randrange(1, 7)):
            number += draw.choice((1, 1, 1, 2, 40, 3000))
            kind = draw.choice((*_NUMBERS, "string", "string", "bytes", "E"))
            if depth and draw.random() < 0.25:
                kind = self._message(depth - 1)
            optional = "optional " if draw.random() < 0.3 else ""
            lines.append(f"{optional}{kind} f{i} = {number};")
        if draw.random() < 0.4:
            lines.append(f"oneof o {{ int32 left = {number + 1}; string right = {number + 2}; }}")
        draw.shuffle(lines)
        self._messages[place] = f"message {name} {{ {' '.join(lines)} }}"
        return name

    def value(self, message: Descriptor) -> Any:
        """A value of a message."""
        found = message_factory.GetMessageClass(message)()
        for field in message.fields:
            if self.random.random() < 0.3:
                continue
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                getattr(found, field.name).CopyFrom(self.value(field.message_type))
            else:
                setattr(found, field.name, self._number(field))
        return found

    def _number(self, field: FieldDescriptor) -> Any:
        draw = self.random
        names = {getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name for name in (*_NUMBERS, "string", "bytes")}
        kind = names.get(field.type, "enum")
        if kind in _BITS:
            bits, signed = _BITS[kind]
            number = draw.randrange(1 << draw.choice((1, 7, 20, bits)))
            return draw.choice((number, -number - 1)) if signed else number
        return {
            "bool": draw.random() < 0.5,
            "float": draw.randrange(1000) / 8,
            "double": draw.uniform(-1e300, 1e300),
            "string": "".join(draw.choices("abäλ😀\0", k=draw.randrange(9))),
            "bytes": draw.randbytes(draw.randrange(9)),
            "enum": draw.choice((0, 1, -1)),
        }[kind]

    def expected(self, value: Any) -> dict[str, Any]:
        """What a column has for a value."""
        found: dict[str, Any] = {}
        for field in value.DESCRIPTOR.fields:
            one = getattr(value, field.name)
            if field.has_presence and not value.HasField(field.name):
                found[field.name] = None
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                found[field.name] = self.expected(one)
            elif field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64):
                found[field.name] = Decimal(one)
            elif field.enum_type is not None:
                found[field.name] = field.enum_type.values_by_number[one].name
            else:
                found[field.name] = one
        return found
