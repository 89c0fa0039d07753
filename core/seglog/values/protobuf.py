"""Decodes Protobuf with Google's library (extra `schemas`) to JSON: the one module that knows it.

Protobuf takes bytes of another type without a word: what it does not know becomes unknown fields. A value that leaves
such fields is decoded, but JSON would hide them, so it counts as not decoded.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from seglog.values.fast_json import json_writer
from seglog.values.frames import MessageName, message_named
from seglog.values.protoc import compiled
from seglog.values.schemas import (
    MOST_NODES,
    NAME_BYTES,
    Naming,
    NotDecodedError,
    Read,
    Reader,
    Schema,
    Text,
    first_line,
)

_write = json_writer(None)
_MAIN = "seglog_main.proto"
_PROVIDED = "google/protobuf/"


def reader_of(schema: Schema, references: Mapping[str, Schema], shown: Callable[[Any], str] | None = None) -> Read:
    """Returns the reader of a schema's values, which are JSON, or the texts that `shown` makes of messages.

    Raises NotDecodedError for a schema that is not decoded by.
    """
    messages = messages_of(schema, references)
    readers: dict[MessageName, list[Reader]] = {}

    def text(payload: bytes, naming: Naming) -> Text:
        try:
            name, start = message_named(payload, naming)
            name = schema.message or name
            if name not in readers:
                meant = messages(name)[:1] if shown else messages(name)  # a column has the fields of the first
                readers[name] = [_reader_of_message(message, shown) for message in meant]
        except NotDecodedError as error:
            return error
        texts = (reader.text(payload[start:]) for reader in readers[name])
        first = next(texts)
        return first if isinstance(first, str) else next((other for other in texts if isinstance(other, str)), first)

    return lambda payloads, naming: [text(payload, naming) for payload in payloads]


def messages_of(schema: Schema, references: Mapping[str, Schema]) -> Callable[[MessageName], list[Descriptor]]:
    """Returns a function that gives the messages that a name of the schema may mean, the likelier first.

    It raises NotDecodedError for a message that is not there; so does this for a schema that is not read.
    """
    pool, main = _pool_of(schema, references)
    top = list(main.message_types_by_name.values())  # in the order of the file

    def meant(name: MessageName) -> list[Descriptor]:
        if isinstance(name, tuple):
            found = [_at(top, name, entries=False), _at(top, name, entries=True)]
            messages = list({one.full_name: one for one in found if one is not None}.values())
        elif isinstance(name, int):
            messages = sorted(_with_nested(top), key=lambda one: str(one.full_name))[name : name + 1]
        else:
            messages = _called(pool, top, name)
        if not messages:
            words = f"at the path {list(name)}" if isinstance(name, tuple) else name
            raise NotDecodedError(f"the schema has no message {words}")
        return messages

    return meant


def _called(pool: Any, top: list[Descriptor], name: str) -> list[Descriptor]:
    """Returns the messages with a name, which may be without those around them."""
    try:
        return [pool.FindMessageTypeByName(name)]
    except KeyError:
        return [one for one in _with_nested(top) if one.name == name]


def _at(top: list[Descriptor], path: tuple[int, ...], *, entries: bool) -> Descriptor | None:
    """Returns the message at a path. `entries`: those of maps, which are messages within, count too."""
    level, message = top, None
    for index in path:
        if not 0 <= index < len(level):
            return None
        message = level[index]
        level = [one for one in message.nested_types if entries or not one.GetOptions().map_entry]
    return message


def _with_nested(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    for message in messages:
        yield message
        yield from _with_nested(message.nested_types)


def _pool_of(schema: Schema, references: Mapping[str, Schema]) -> tuple[descriptor_pool.DescriptorPool, Any]:
    serialized = _serialized(schema.text)
    pool = descriptor_pool.DescriptorPool()
    try:
        if serialized is None:
            texts = {name: one.text for name, one in references.items() if not name.startswith(_PROVIDED)}
            serialized_set = compiled(_MAIN, {**texts, _MAIN: schema.text})
            files = list(descriptor_pb2.FileDescriptorSet.FromString(serialized_set).file)
        else:
            files = [serialized]
        for file in files:
            pool.Add(file)
        return pool, pool.FindFileByName(files[-1].name)
    except (DecodeError, TypeError, KeyError, ValueError) as error:
        if isinstance(error, NotDecodedError):
            raise
        raise NotDecodedError(f"its descriptors are refused: {_line(error)}") from error


def _serialized(text: str) -> Any:
    """Returns the descriptor that some registries keep in base64 in place of a text."""
    if "{" in text or ";" in text:
        return None
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _reader_of_message(message: Descriptor, shown: Callable[[Any], str] | None) -> Reader:
    kind = message_factory.GetMessageClass(message)
    reached = list(_reached(message))
    # A field takes two bytes at least (packed numbers one), a message within shows fields that it does not have, too.
    of_fields = max((_cost(field) for each in reached for field in each.fields), default=1)
    absent = max(sum(_cost(field) for field in each.fields if not field.has_presence) for each in reached) // 2

    def decode(data: bytes) -> str:
        value = kind.FromString(data)
        size = value.ByteSize()
        shows_absent = len(data) * (of_fields + absent) <= MOST_NODES
        if shown is None:
            found = as_json(value, shows_absent)
        elif shows_absent:
            found = shown(value)
        else:
            raise NotDecodedError(f"{len(data)} bytes of {message.full_name} expand to more than {MOST_NODES} parts")
        value.DiscardUnknownFields()
        if value.ByteSize() != size:
            raise NotDecodedError(f"{size - value.ByteSize()} bytes are fields that {message.full_name} has not")
        return found

    return Reader(decode, message.full_name, MOST_NODES // of_fields, _line)


def as_json(message: Any, shows_absent: bool) -> str:
    """Returns a message as JSON; `shows_absent`: with the fields that are not there and have a value nevertheless."""
    return _write(
        json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=shows_absent
        )
    )


def _cost(field: FieldDescriptor) -> int:
    symbols = () if field.enum_type is None else field.enum_type.values_by_name
    return 1 + (len(field.name) + max(map(len, symbols), default=0)) // NAME_BYTES


def _reached(message: Descriptor) -> Iterator[Descriptor]:
    seen, waiting = {message.full_name}, [message]
    while waiting:
        one = waiting.pop()
        yield one
        for field in one.fields:
            if field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP):
                kind = field.message_type
                if kind.full_name not in seen:
                    seen.add(kind.full_name)
                    waiting.append(kind)


def _line(error: Exception) -> str:
    return first_line(error) or type(error).__name__
