"""Reads and writes Kafka's generated messages by a table of their fields.

Kafka: org.apache.kafka.common.protocol (ByteBufferAccessor, the message generator's rules, KIP-482 for
flexible versions). Control records, coordinator records and metadata records are such messages.

A message is a dict by field name. UUIDs are in Kafka's text form, bytes are `bytes`. Fields that a version does not
have, and tagged fields that are not set, are absent.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from seglog.format.uuids import format_uuid, parse_uuid
from seglog.layout import INT32_MAX

NEVER = 1 << 15  # a version that no message has
FRAME_VERSION = 1

_INT16_MAX, _UINT32_MAX = 2**15 - 1, 2**32 - 1

# Kafka's messages.
_FRAME_VERSION_0 = (
    "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release of KRaft"
    " in 2.8 to newer versions are not supported."
)
_FRAME_VERSION = (
    "Could not deserialize metadata record due to unknown frame version {}(only frame version 1 is supported)"
)
_LONG_VARINT = "Varint is too long, the most significant bit in the 5th byte is set, converted value: {:x}"

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
    """Bytes that are not the expected message.

    `kafka` is the message of the exception that Kafka's classes throw: `null` if Java gives none.
    """

    def __init__(self, reason: str, kafka: str | None = None) -> None:
        self.kafka = reason if kafka is None else kafka
        super().__init__(reason)


class UnknownRecordTypeError(WireError):
    """A record of a type that is not in the table."""

    def __init__(self, record_type: int) -> None:
        self.record_type = record_type
        what = f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {record_type}"
        super().__init__(f"unknown record type {record_type}", what)


@dataclass(frozen=True, slots=True)
class FramedRecord:
    """A record of the cluster's metadata, or of remote log metadata; `name` is Kafka's, such as TOPIC_RECORD."""

    type: int
    name: str
    version: int
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """One field; `type` is the name of a fixed-size type, "string", "bytes", "uuid", or the fields of a struct.

    The field exists in versions `first` to `last`, and may be null from `nullable_from` on. With a `tag` it is a tagged
    field, which is not written if it has its `default`.
    """

    name: str
    type: str | tuple[Field, ...]
    array: bool = False
    first: int = 0
    last: int = NEVER
    nullable_from: int = NEVER
    tag: int | None = None
    default: object = None

    def exists_in(self, version: int) -> bool:
        """True if messages of `version` have the field."""
        return self.first <= version <= self.last

    def has_null_marker(self, version: int) -> bool:
        """True for a struct after a null marker: an int8 of 1, or -1 for null; in a tagged field a varint of 1 or 0."""
        is_struct = isinstance(self.type, tuple) and not self.array
        return is_struct and version >= self.nullable_from


@dataclass(frozen=True, slots=True)
class Message:
    """A message's fields, its last known version, and the first version with flexible encodings."""

    fields: tuple[Field, ...]
    last_version: int = 0
    flexible_from: int = 0


def decode_message(message: Message, data: bytes, version: int, position: int = 0) -> dict[str, Any]:
    """Decodes the message of `version` at `position`, with fields in declared order. Raises `WireError`.

    Bytes after it are ignored.
    """
    if not 0 <= version <= message.last_version:
        raise WireError(f"version {version} is not known")
    reader = Reader(data, version, version >= message.flexible_from, position)
    return reader.structure(message.fields)


def decode_framed(messages: Mapping[int, tuple[str, Message]], data: bytes) -> FramedRecord:
    """Decodes a record that begins with frame version, type and version (Kafka: AbstractApiMessageSerde).

    `messages` are name and message of each type. Like Kafka, reads an unknown version as the last known one if the
    message holds no struct. Raises `UnknownRecordTypeError`, or `WireError` with Kafka's text.
    """
    frame = Reader(data, 0, True)
    frame_version = _framed_number(frame, "frame version")
    if frame_version != FRAME_VERSION:
        raise WireError(_FRAME_VERSION_0 if frame_version == 0 else _FRAME_VERSION.format(frame_version))
    record_type, version = _framed_number(frame, "type"), _framed_number(frame, "version")
    known = messages.get(record_type)
    if known is None:
        raise UnknownRecordTypeError(record_type)
    name, message = known
    reader = Reader(data, max(version, 0), True, frame.position)  # a negative version has all fields of version 0
    try:
        value = reader.structure(message.fields, message.last_version)
    except WireError as error:
        raise WireError(f"Failed to deserialize record with type {record_type}") from error
    if reader.position < len(data):
        raise WireError(f"Found {len(data) - reader.position} byte(s) of garbage after {record_type}")
    return FramedRecord(record_type, name, version, value)


def _framed_number(frame: Reader, what: str) -> int:
    try:
        number = frame.signed_varint()
    except WireError as error:
        raise WireError(f"Error while reading {what}") from error
    if number > _INT16_MAX:
        raise WireError(f"Value for {what} was too large.")
    return int(_SHORT.unpack(_LONG.pack(number)[2:])[0])  # Java's cast


def encode_message(message: Message, value: Mapping[str, Any], version: int) -> bytes:
    """Returns the bytes of the message in `version`. Raises `KeyError` for a missing field."""
    writer = Writer(version, version >= message.flexible_from)
    writer.structure(message.fields, value)
    return bytes(writer.data)


class Reader:
    """Reads one message from its bytes; checks every bound."""

    def __init__(self, data: bytes, version: int, flexible: bool, position: int = 0) -> None:
        self._data, self._version, self._flexible, self.position = data, version, flexible, position
        self._last_version = version

    def structure(self, fields: tuple[Field, ...], last_version: int | None = None) -> dict[str, Any]:
        """Reads the fields of a struct, and its tagged fields if the version is flexible.

        `last_version` is given for a message: the last version in which its own structs can be read.
        """
        if last_version is not None:
            self._last_version = last_version
        elif self._version > self._last_version:
            raise WireError(f"Can't read version {self._version}")
        present = [field for field in fields if field.exists_in(self._version)]
        value = {field.name: self._field(field) for field in present if field.tag is None}
        if self._flexible:
            tagged = {field.tag: field for field in fields if field.tag is not None}
            for _ in range(self.signed_varint()):
                tag, size = self.unsigned_varint(), self.signed_varint()
                if tag in tagged:  # whatever size it claims, as in Kafka
                    field = tagged[tag]
                    if not field.exists_in(self._version):
                        raise WireError(f"Tag {tag} is not valid for version {self._version}")
                    value[field.name] = self._field(field)
                    if value[field.name] == field.default:
                        del value[field.name]
                else:  # a field of a later version
                    self._array(size)
            if tagged:
                value = {field.name: value[field.name] for field in present if field.name in value}
        return value

    def take(self, size: int) -> bytes:
        """Returns the next `size` bytes."""
        start, end = self.position, self.position + size
        if end > len(self._data):  # Java: BufferUnderflowException, without a message
            raise WireError(f"{size} bytes are expected at byte {start}, {len(self._data) - start} are left", "null")
        self.position = end
        return self._data[start:end]

    def unsigned_varint(self) -> int:
        """Reads an unsigned LEB128 number of 32 bits."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & _UINT32_MAX
        raise WireError(f"the number before byte {self.position} is too long", _LONG_VARINT.format(value & _UINT32_MAX))

    def signed_varint(self) -> int:
        """Reads an unsigned varint as a signed int, like Java."""
        value = self.unsigned_varint()
        return value - (1 << 32) if value > INT32_MAX else value

    def _array(self, size: int) -> bytes:
        left = len(self._data) - self.position
        if size > left:
            raise WireError(f"Error reading byte array of {size} byte(s): only {left} byte(s) available")
        if size < 0:  # Java: NegativeArraySizeException
            raise WireError(f"an array of {size} bytes", str(size))
        return self.take(size)

    def _field(self, field: Field) -> Any:
        if not field.array:
            return self._value(field.type, field.name, field)
        count = self._length(_LONG)
        if count < 0:
            return self._null(field.name, field)
        left = len(self._data) - self.position
        if count > left:  # an element takes at least one byte
            raise WireError(
                f"Tried to allocate a collection of size {count}, but there are only {left} bytes remaining."
            )
        return [self._value(field.type, f"{field.name} element", None) for _ in range(count)]

    def _value(self, kind: str | tuple[Field, ...], name: str, field: Field | None) -> Any:
        if isinstance(kind, tuple):
            if field is not None and field.has_null_marker(self._version):
                is_null = self.take(1)[0] > 0x7F if field.tag is None else self.signed_varint() <= 0
                if is_null:
                    return None
            return self.structure(kind)
        if kind == "uuid":
            return format_uuid(UUID(bytes=self.take(16)))
        if kind in ("string", "bytes"):
            size = self._length(_SHORT if kind == "string" else _LONG)
            if size < 0:
                return self._null(name, field)
            if kind == "bytes":
                return self._array(size)
            if size > _INT16_MAX:
                raise WireError(f"string field {name} had invalid length {size}")
            return java_text(self._array(size))
        fixed = _FIXED[kind]
        return fixed.unpack(self.take(fixed.size))[0]

    def _length(self, prefix: struct.Struct) -> int:
        if self._flexible:
            return int(_LONG.unpack(struct.pack(">I", (self.unsigned_varint() - 1) & _UINT32_MAX))[0])
        return int(prefix.unpack(self.take(prefix.size))[0])

    def _null(self, name: str, field: Field | None) -> None:
        if field is None or self._version < field.nullable_from:
            raise WireError(f"non-nullable field {name} was serialized as null")


def java_text(data: bytes) -> str:
    """Decodes like Java's `new String(data, UTF_8)`: a surrogate becomes one U+FFFD, not three as in Python."""
    return data.decode("utf-8", _JAVA_ERRORS)


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    data, at = error.object, error.start
    surrogate = data[at] == 0xED and at + 1 < len(data) and 0xA0 <= data[at + 1] <= 0xBF
    if not surrogate:
        return "\ufffd", error.end
    whole = at + 2 < len(data) and data[at + 2] & 0xC0 == 0x80
    return "\ufffd", at + (3 if whole else 2)


_JAVA_ERRORS = "seglog.java"
codecs.register_error(_JAVA_ERRORS, _replace_as_java)


class Writer:
    """Writes one message; the mirror of `Reader`."""

    def __init__(self, version: int, flexible: bool) -> None:
        self._version, self._flexible = version, flexible
        self.data = bytearray()

    def structure(self, fields: tuple[Field, ...], value: Mapping[str, Any]) -> None:
        """Writes the fields of a struct, and its tagged fields if the version is flexible."""
        present = [field for field in fields if field.exists_in(self._version)]
        for field in present:
            if field.tag is None:
                self._field(field, value[field.name])
        if self._flexible:
            tagged = [
                (field.tag, field)
                for field in present
                if field.tag is not None and value.get(field.name, field.default) != field.default
            ]
            self.unsigned_varint(len(tagged))
            for tag, field in sorted(tagged, key=lambda pair: pair[0]):
                content = Writer(self._version, True)
                content._field(field, value[field.name])
                self.unsigned_varint(tag)
                self.unsigned_varint(len(content.data))
                self.data += content.data

    def unsigned_varint(self, value: int) -> None:
        """Writes an unsigned LEB128 number in its shortest form."""
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def content(self, data: bytes) -> None:
        """Writes the bytes of a field, after their number."""
        self.data += data

    def _field(self, field: Field, value: Any) -> None:
        if not field.array:
            if field.has_null_marker(self._version):
                self.data.append(1 if value is not None else 0xFF if field.tag is None else 0)
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
            if content is not None:
                self.content(content)
        else:
            self.data += _FIXED[kind].pack(value)

    def _length(self, length: int, prefix: struct.Struct) -> None:
        if self._flexible:
            self.unsigned_varint(length + 1)
        else:
            self.data += prefix.pack(length)
