"""Random schemas of Protobuf, as the texts that a registry keeps and as descriptors, and values of their messages.

The texts are written here from the descriptors, so that a reader of the texts is compared with what protoc has no part
in. Both syntaxes, every type of field, packed and not, maps, oneofs, optional fields, enums, messages within messages,
recursive ones, Google's own types, and imports of other files; or only what a column of rows can hold.
"""

from __future__ import annotations

import math
import random
import string
import struct
from itertools import accumulate
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

Field = descriptor_pb2.FieldDescriptorProto
MODULES = (any_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
WELL_KNOWN = (
    *("Timestamp", "Duration", "FieldMask", "Struct", "Value", "ListValue"),
    *("Int64Value", "UInt32Value", "DoubleValue", "BoolValue", "StringValue", "BytesValue"),
)
SCALARS = {
    name: getattr(Field, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes"),
        *("uint32", "sfixed32", "sfixed64", "sint32", "sint64"),
    )
}
NAMES = {number: name for name, number in SCALARS.items()}
KEYS = ("string", "int32", "int64", "uint32", "bool", "sint64", "fixed32")
TEXT = string.printable + "\0äλ\u2028\u202e😀\x7f"


class Files:
    """A schema, `main`, and what it imports: `texts` by path, and `message(path)`, a message's class by its path.

    With `rows_only` it has what a column of rows can hold: proto3 without imports and recursion.
    """

    def __init__(self, seed: int, *, rows_only: bool = False) -> None:
        self.random, self._count, self._rows_only = random.Random(seed), 0, rows_only
        self._types: list[tuple[str, int]] = []  # full names of messages and enums that fields may have
        self._closed: list[tuple[str, int]] = []  # enums that only proto2 may have
        self.files: list[Any] = []
        for number in range(0 if rows_only else self.random.randrange(3)):
            self.files.append(self._file(f"shared/part{number}.proto", number))
        self.main = self._file("main.proto", len(self.files))
        self.texts = {file.name: text_of(file) for file in [*self.files, self.main]}
        self.pool = descriptor_pool.DescriptorPool()
        for module in MODULES:
            self.pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        for file in [*self.files, self.main]:
            self.pool.Add(file)

    def paths(self) -> list[tuple[int, ...]]:
        """The paths of the messages of `main`, without the entries of maps, which texts do not have."""
        found: list[tuple[int, ...]] = []

        def walk(messages: Any, above: tuple[int, ...]) -> None:
            for number, one in enumerate(one for one in messages if not one.options.map_entry):
                found.append((*above, number))
                walk(one.nested_type, (*above, number))

        walk(self.main.message_type, ())
        return found

    def message(self, path: tuple[int, ...]) -> Any:
        """The class of the message at a path."""
        level, name = self.main.message_type, self.main.package
        for number in path:
            one = [one for one in level if not one.options.map_entry][number]
            name, level = f"{name}.{one.name}".lstrip("."), one.nested_type
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(name))

    def _file(self, path: str, number: int) -> Any:
        draw = self.random
        syntax = "proto3" if self._rows_only else draw.choice(("proto2", "proto3"))
        package = draw.choice(("", f"p{number}", f"p{number}.q")) if path == "main.proto" else f"s{number}"
        file = descriptor_pb2.FileDescriptorProto(name=path, package=package)
        if syntax == "proto3":
            file.syntax = syntax
        if not self._rows_only:
            file.dependency.extend(module.DESCRIPTOR.name for module in MODULES)
        file.dependency.extend(one.name for one in self.files)
        for _ in range(draw.randrange(1, 3)):
            self._enum(file.enum_type.add(), package, syntax)
        for _ in range(draw.randrange(1, 4)):
            self._message(file.message_type, package, syntax, 2)
        return file

    def _name(self, start: str) -> str:
        self._count += 1
        return f"{start}{self._count}"

    def _enum(self, enum: Any, above: str, syntax: str) -> None:
        enum.name = self._name("E")
        for number in (0, 1, self.random.choice((5, -3, 1 << 30))):
            enum.value.add(name=f"{enum.name.upper()}_{number}".replace("-", "M"), number=number)
        (self._types if syntax == "proto3" else self._closed).append(
            (f".{above}.{enum.name}".replace("..", "."), Field.TYPE_ENUM)
        )

    def _message(self, level: Any, above: str, syntax: str, depth: int) -> None:
        draw, message = self.random, level.add()
        message.name = self._name(draw.choice(("M", "A", "Z")))
        full = f"{above}.{message.name}".lstrip(".")
        for _ in range(draw.randrange(3) if depth else 0):
            self._message(message.nested_type, full, syntax, depth - 1)
        if draw.random() < 0.3:
            self._enum(message.enum_type.add(), full, syntax)
        if not self._rows_only and draw.random() < 0.7:
            self._types.append((f".{full}", Field.TYPE_MESSAGE))  # from here on: its own fields may have it, too
        numbers = list(accumulate(draw.choice((1, 1, 1, 2, 40, 2000)) for _ in range(draw.randrange(1, 9))))
        draw.shuffle(numbers)
        choice = None
        optional = []
        for number in numbers:
            field = Field(name=self._name("f"), number=number)
            kind = draw.randrange(10)
            if kind == 0:
                self._map(field, message, full, syntax)
            else:
                self._typed(field, syntax)
                if kind in (1, 2):
                    self._repeated(field)
                elif kind in (3, 4):
                    if choice is None:
                        choice = len(message.oneof_decl)
                        message.oneof_decl.add(name=self._name("o"))
                    field.label, field.oneof_index = Field.LABEL_OPTIONAL, choice
                else:
                    field.label = Field.LABEL_OPTIONAL
                    if syntax == "proto2" and kind == 5 and field.type != Field.TYPE_MESSAGE:  # that may need itself
                        field.label = Field.LABEL_REQUIRED
                    elif syntax == "proto3" and kind == 5:
                        field.proto3_optional = True
                        optional.append(number)
            message.field.append(field)
        if self._rows_only:
            self._types.append((f".{full}", Field.TYPE_MESSAGE))
        for field in message.field:  # after the others
            if field.number in optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _typed(self, field: Any, syntax: str) -> None:
        draw = self.random
        kind = draw.random()
        known = self._types if syntax == "proto3" else self._types + self._closed
        if kind < 0.2 and known:
            field.type_name, field.type = draw.choice(known)
        elif kind < 0.3 and not self._rows_only:
            field.type_name, field.type = f".google.protobuf.{draw.choice(WELL_KNOWN)}", Field.TYPE_MESSAGE
        else:
            field.type = draw.choice(list(SCALARS.values()))

    def _repeated(self, field: Any) -> None:
        field.label = Field.LABEL_REPEATED
        packable = field.type not in (Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE)
        if packable and self.random.random() < 0.6:
            field.options.packed = self.random.random() < 0.5

    def _map(self, field: Any, message: Any, full: str, syntax: str) -> None:
        entry = message.nested_type.add(name=f"{field.name.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=Field.LABEL_OPTIONAL, type=SCALARS[self.random.choice(KEYS)])
        value = entry.field.add(name="value", number=2, label=Field.LABEL_OPTIONAL)
        self._typed(value, syntax)
        field.label, field.type, field.type_name = Field.LABEL_REPEATED, Field.TYPE_MESSAGE, f".{full}.{entry.name}"

    def fill(self, message: Any, depth: int = 3) -> Any:
        """Sets random fields of a message, and all that are required; returns it."""
        for field in message.DESCRIPTOR.fields:
            required = field.is_required
            if (not required and self.random.random() < 0.4) or (depth == 0 and field.message_type and not required):
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                self._fill_map(getattr(message, field.name), field.message_type.fields_by_name, depth)
            elif field.is_repeated:
                for _ in range(self.random.randrange(4)):
                    if field.message_type is None:
                        getattr(message, field.name).append(self._value(field))
                    else:
                        self._fill_message(getattr(message, field.name).add(), depth)
            elif field.message_type is not None:
                getattr(message, field.name).SetInParent()
                self._fill_message(getattr(message, field.name), depth)
            else:
                setattr(message, field.name, self._value(field))
        return message

    def _fill_map(self, entries: Any, parts: Any, depth: int) -> None:
        for _ in range(self.random.randrange(3)):
            key = self._value(parts["key"])
            if parts["value"].message_type is None:
                entries[key] = self._value(parts["value"])
            else:
                self._fill_message(entries[key], depth)

    def _fill_message(self, message: Any, depth: int) -> None:
        draw, name = self.random, message.DESCRIPTOR.full_name
        if name == "google.protobuf.Timestamp":
            message.seconds, message.nanos = draw.randrange(-(10**10), 10**11), draw.randrange(10**9)
        elif name == "google.protobuf.Duration":
            message.seconds, message.nanos = draw.randrange(10**9), draw.choice((0, 5, 7 * 10**6))
        elif name == "google.protobuf.FieldMask":
            message.paths.extend(draw.sample(["a", "b.c_d", "long_name"], 2))
        elif name == "google.protobuf.Struct":
            for _ in range(draw.randrange(3)):
                self._fill_message(message.fields[draw.choice("abc")], depth - 1)
        elif name == "google.protobuf.ListValue":
            for _ in range(draw.randrange(3) if depth > 0 else 0):
                self._fill_message(message.values.add(), depth - 1)
        elif name == "google.protobuf.Value":
            kind = draw.choice(("null_value", "number_value", "string_value", "bool_value", "list_value"))
            if kind == "list_value":
                message.list_value.SetInParent()
                self._fill_message(message.list_value, depth - 1)
            else:
                setattr(
                    message, kind, {"null_value": 0, "number_value": 1.5, "string_value": "x", "bool_value": True}[kind]
                )
        else:
            self.fill(message, depth - 1)

    def _value(self, field: Any) -> Any:
        draw = self.random
        if field.enum_type is not None:
            known = [value.number for value in field.enum_type.values]
            return draw.choice(known if field.enum_type.is_closed or self._rows_only else [*known, 77])
        name = NAMES[field.type]
        if name in ("double", "float"):
            size, form = (8, "<d") if name == "double" else (4, "<f")
            (anything,) = struct.unpack(form, draw.randbytes(size))
            number = draw.choice((0.0, 1.5, -0.1, float("inf"), float("nan"), anything))
            return 0.0 if self._rows_only and math.isnan(number) else number  # rows are compared, and it equals nothing
        if name == "bool":
            return draw.random() < 0.5
        if name == "string":
            return "".join(draw.choices(TEXT, k=draw.randrange(9)))
        if name == "bytes":
            return draw.randbytes(draw.randrange(9))
        bits = 64 if name.endswith("64") else 32
        low, high = (0, 1 << bits) if name.startswith(("u", "fixed")) else (-(1 << bits - 1), 1 << bits - 1)
        return draw.choice((low, high - 1, 0, draw.randrange(low, high), draw.randrange(0, 300)))


def text_of(file: Any) -> str:
    """The text of a file's descriptor."""
    proto3 = file.syntax == "proto3"
    lines = [f'syntax = "{"proto3" if proto3 else "proto2"}";']
    if file.package:
        lines.append(f"package {file.package};")
    lines += [f'import "{name}";' for name in file.dependency]
    for enum in file.enum_type:
        lines += _enum_text(enum)
    for message in file.message_type:
        lines += _message_text(message, proto3)
    return "\n".join(lines) + "\n"


def _enum_text(enum: Any) -> list[str]:
    return [f"enum {enum.name} {{", *(f"{one.name} = {one.number};" for one in enum.value), "}"]


def _message_text(message: Any, proto3: bool) -> list[str]:
    lines = [f"message {message.name} {{"]
    entries = {one.name: one for one in message.nested_type if one.options.map_entry}
    lines += [line for one in message.enum_type for line in _enum_text(one)]
    within: dict[int, list[str]] = {}
    for field in message.field:
        entry = entries.get(field.type_name.rpartition(".")[2])
        kind = NAMES.get(field.type, field.type_name)
        if entry is not None:
            key, value = (NAMES.get(one.type, one.type_name) for one in entry.field)
            lines.append(f"map<{key}, {value}> {field.name} = {field.number};")
            continue
        packed = f" [packed = {str(field.options.packed).lower()}]" if field.options.HasField("packed") else ""
        words = f"{kind} {field.name} = {field.number}{packed};"
        if field.HasField("oneof_index") and not field.proto3_optional:
            within.setdefault(field.oneof_index, []).append(words)
            continue
        label = {Field.LABEL_REPEATED: "repeated ", Field.LABEL_REQUIRED: "required "}.get(field.label, "")
        lines.append(("optional " if not label and (not proto3 or field.proto3_optional) else label) + words)
    for number, fields in within.items():
        lines += [f"oneof {message.oneof_decl[number].name} {{", *fields, "}"]
    for nested in message.nested_type:
        if not nested.options.map_entry:
            lines += _message_text(nested, proto3)
    return [*lines, "}"]
