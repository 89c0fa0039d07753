"""Kafka's generated messages, read and written by a table of their fields.

Kafka: org.apache.kafka.common.protocol (ByteBufferAccessor, the message generator's rules, KIP-482 for
flexible versions). Control records, coordinator records and metadata records are such messages.

A message is a dict by field name. UUIDs are in Kafka's text form, bytes are `bytes`; fields that a version
does not have, and tagged fields that are not set, are absent.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from seglog.format.uuids import format_uuid, parse_uuid

NEVER = 1 << 15  # a version that no message has

_FIXED = {
    "bool": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
_SHORT = _FIXED["int16"]
_LONG = _FIXED["int32"]


class WireError(ValueError):
    """Bytes that are not the message they should be."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `type` is a name of a fixed-size type, "string", "bytes", "uuid", or the fields of a struct.

    It exists in versions `first` to `last`, may be null from `nullable_from` on, and is a tagged one when
    `tag` is given.
    """

    name: str
    type: str | tuple[Field, ...]
    array: bool = False
    first: int = 0
    last: int = NEVER
    nullable_from: int = NEVER
    tag: int | None = None

    def exists_in(self, version: int) -> bool:
        """Whether messages of `version` have the field."""
        return self.first <= version <= self.last

    def has_null_marker(self, version: int) -> bool:
        """Whether it is a struct behind an int8 of 1, or -1 for null; a tagged struct is there or not."""
        is_struct = isinstance(self.type, tuple) and not self.array
        return is_struct and self.tag is None and version >= self.nullable_from


@dataclass(frozen=True, slots=True)
class Message:
    """A message's fields, its last known version, and the first one with flexible encodings."""

    fields: tuple[Field, ...]
    last_version: int = 0
    flexible_from: int = 0


def decode_message(
    message: Message, data: bytes, version: int, position: int = 0, *, exact: bool = False
) -> dict[str, Any]:
    """The message of `version` at `position`, its fields in declared order. Raises `WireError`.

    Bytes behind it are ignored, or an error when `exact`.
    """
    if not 0 <= version <= message.last_version:
        raise WireError(f"version {version} is not known")
    reader = Reader(data, version, version >= message.flexible_from, position)
    value = reader.structure(message.fields)
    if exact and reader.position < len(data):
        raise WireError(f"{len(data) - reader.position} bytes follow the message")
    return value


def encode_message(message: Message, value: Mapping[str, Any], version: int) -> bytes:
    """The bytes of the message in `version`. Raises `KeyError` for a missing field."""
    writer = Writer(version, version >= message.flexible_from)
    writer.structure(message.fields, value)
    return bytes(writer.data)


class Reader:
    """Reads one message from its bytes; every bound is checked."""

    def __init__(self, data: bytes, version: int, flexible: bool, position: int = 0) -> None:
        self._data, self._version, self._flexible, self.position = data, version, flexible, position

    def structure(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        """The fields of a struct, and its tagged fields if the version is flexible."""
        present = [field for field in fields if field.exists_in(self._version)]
        value = {field.name: self._field(field) for field in present if field.tag is None}
        if self._flexible:
            tagged = {field.tag: field for field in present if field.tag is not None}
            for _ in range(self.unsigned_varint()):
                tag, size = self.unsigned_varint(), self.unsigned_varint()
                content = Reader(self.take(size), self._version, True)
                if tag in tagged:  # tags of later versions are skipped
                    value[tagged[tag].name] = content._field(tagged[tag])
            if tagged:
                value = {field.name: value[field.name] for field in present if field.name in value}
        return value

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        start, end = self.position, self.position + size
        if size < 0 or end > len(self._data):
            raise WireError(f"{size} bytes are wanted at byte {start}, {len(self._data) - start} are left")
        self.position = end
        return self._data[start:end]

    def unsigned_varint(self) -> int:
        """An unsigned LEB128 number of 32 bits."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFF
        raise WireError(f"the number before byte {self.position} is too long")

    def _field(self, field: Field) -> Any:
        if not field.array:
            return self._value(field.type, field)
        count = self._length(_LONG)
        if count < 0:
            return self._null(field)
        if count > len(self._data) - self.position:  # an element takes a byte at least
            raise WireError(f"an array of {count} elements with {len(self._data) - self.position} bytes left")
        return [self._value(field.type, None) for _ in range(count)]

    def _value(self, kind: str | tuple[Field, ...], field: Field | None) -> Any:
        if isinstance(kind, tuple):
            if field is not None and field.has_null_marker(self._version) and self.take(1)[0] > 0x7F:
                return None
            return self.structure(kind)
        if kind == "uuid":
            return format_uuid(UUID(bytes=self.take(16)))
        if kind in ("string", "bytes"):
            size = self._length(_SHORT if kind == "string" else _LONG)
            if size < 0:
                return self._null(field)
            content = self.take(size)
            return content.decode("utf-8", "replace") if kind == "string" else content
        fixed = _FIXED[kind]
        return fixed.unpack(self.take(fixed.size))[0]

    def _length(self, prefix: struct.Struct) -> int:
        if self._flexible:
            return self.unsigned_varint() - 1
        return int(prefix.unpack(self.take(prefix.size))[0])

    def _null(self, field: Field | None) -> None:
        if field is None or self._version < field.nullable_from:
            raise WireError(f"null at byte {self.position}, where it is not allowed")


class Writer:
    """Writes one message; the mirror of `Reader`."""

    def __init__(self, version: int, flexible: bool) -> None:
        self._version, self._flexible = version, flexible
        self.data = bytearray()

    def structure(self, fields: tuple[Field, ...], value: Mapping[str, Any]) -> None:
        """The fields of a struct, and its tagged fields if the version is flexible."""
        present = [field for field in fields if field.exists_in(self._version)]
        for field in present:
            if field.tag is None:
                self._field(field, value[field.name])
        if self._flexible:
            tagged = [(field.tag, field) for field in present if field.tag is not None and field.name in value]
            self.unsigned_varint(len(tagged))
            for tag, field in sorted(tagged, key=lambda pair: pair[0]):
                content = Writer(self._version, True)
                content._field(field, value[field.name])
                self.unsigned_varint(tag)
                self.unsigned_varint(len(content.data))
                self.data += content.data

    def unsigned_varint(self, value: int) -> None:
        """An unsigned LEB128 number in its shortest form."""
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def _field(self, field: Field, value: Any) -> None:
        if not field.array:
            if field.has_null_marker(self._version):
                self.data.append(0xFF if value is None else 1)
                if value is None:
                    return
            self._value(field.type, value)
        elif value is None:
            self._length(-1, _LONG)
        else:
            self._length(len(value), _LONG)
            for each in value:
                self._value(field.type, each)

    def _value(self, kind: str | tuple[Field, ...], value: Any) -> None:
        if isinstance(kind, tuple):
            self.structure(kind, value)
        elif kind == "uuid":
            self.data += parse_uuid(value).bytes
        elif kind in ("string", "bytes"):
            content = value.encode() if isinstance(value, str) else value
            self._length(-1 if content is None else len(content), _SHORT if kind == "string" else _LONG)
            self.data += content or b""
        else:
            self.data += _FIXED[kind].pack(value)

    def _length(self, length: int, prefix: struct.Struct) -> None:
        if self._flexible:
            self.unsigned_varint(length + 1)
        else:
            self.data += prefix.pack(length)
