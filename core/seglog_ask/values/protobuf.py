"""Decodes Protobuf with Google's library (extra `schemas`): schemas become pools of descriptors, values messages.

What messages become is in `protobuf_forms`. Protobuf takes bytes of another type without a word: what it does not know
becomes unknown fields, which JSON would hide. So a value that has such fields is decoded with a remark, and one that
has no others, and may be text, is not decoded.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from seglog_ask.values.fast_json import json_writer
from seglog_ask.values.frames import MessageName, message_named
from seglog_ask.values.protobuf_forms import ANY, MESSAGES, Showing, discard_unknown, fields_of
from seglog_ask.values.protoc import compiled
from seglog_ask.values.schemas import (
    MOST_NODES,
    NAME_BYTES,
    Naming,
    NotDecodedError,
    Read,
    Reader,
    RemarkedText,
    Remarks,
    Schema,
    Text,
    first_line,
)

_write = json_writer(None)
_MAIN = "seglog_main.proto"
_PROVIDED = "google/protobuf/"
_MODULES = (  # of Google's library, whose files a schema may import, and whose types an Any may have
    *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type"),
    "wrappers",
)

# What makes a text of a message: by functions that show parts of it (with absent fields), with remarks.
Shown = Callable[[Any, "Showing", Remarks], str]


class Messages(NamedTuple):
    """The messages of a schema: `named` gives those that a name may mean, the likelier first, and raises
    NotDecodedError for one that is not there.
    """

    pool: Any
    main: Any  # the file of the schema
    named: Callable[[MessageName], list[Descriptor]]

    def showing(self, *, shows_absent: bool) -> Showing:
        """Returns what shows its messages."""
        return Showing(self.pool, lambda name: _provide(self.pool, name), shows_absent=shows_absent)


def reader_of(schema: Schema, references: Mapping[str, Schema], shown: Shown | None = None) -> Read:
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
                meant = messages.named(name)[: 1 if shown else None]  # a column has the fields of the first
                readers[name] = [_reader_of_message(messages, message, shown) for message in meant]
        except NotDecodedError as error:
            return error
        first, *others = readers[name]
        return _first_whole(first.text(payload[start:]), (other.text(payload[start:]) for other in others))

    return lambda payloads, naming: [text(payload, naming) for payload in payloads]


def _first_whole(first: Text, others: Iterator[Text]) -> Text:
    """Returns the first text that shows all, or one that does not, or why there is none."""
    if isinstance(first, str):
        return first
    for other in others:
        if isinstance(other, str):
            return other
        first = other if isinstance(first, NotDecodedError) and isinstance(other, RemarkedText) else first
    return first


def messages_of(schema: Schema, references: Mapping[str, Schema]) -> Messages:
    """Returns the messages of a schema. Raises NotDecodedError for one that is not read."""
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

    return Messages(pool, main, meant)


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
    pool = descriptor_pool.DescriptorPool()
    try:
        files = _files(schema, references)
        for file in files:
            pool.Add(file)
        return pool, pool.FindFileByName(files[-1].name)
    except (DecodeError, TypeError, KeyError, ValueError) as error:
        if isinstance(error, NotDecodedError):
            raise
        raise NotDecodedError(f"its descriptors are refused: {_line(error)}") from error


def _files(schema: Schema, references: Mapping[str, Schema]) -> list[Any]:
    """Returns the descriptors of a schema and of what it imports, each after those that it needs."""
    main = _serialized(schema.text)
    if main is None:
        return _compiled(_MAIN, schema.text, references)
    found: dict[str, Any] = {}

    def add(file: Any, above: tuple[str, ...]) -> None:
        for name in file.dependency:
            if name in found or name in above:
                continue
            if name in references:
                text = references[name].text
                files = [_serialized(text)] if _serialized(text) else _compiled(name, text, references)
                files[-1].name = name
            else:
                provided = _provided(name)  # None: the pool says what is missing
                files = [] if provided is None else [provided]
            for one in files:
                add(one, (*above, name))
        found.setdefault(file.name, file)

    add(main, (main.name,))
    return list(found.values())


def _compiled(name: str, text: str, references: Mapping[str, Schema]) -> list[Any]:
    texts = {path: one.text for path, one in references.items() if not path.startswith(_PROVIDED)}
    return list(descriptor_pb2.FileDescriptorSet.FromString(compiled(name, {**texts, name: text})).file)


def _provided(path: str) -> Any:
    """Returns the descriptor of a file that Google's library has; None for another one."""
    stem = path.removeprefix(_PROVIDED).removesuffix(".proto")
    if path != f"{_PROVIDED}{stem}.proto" or stem not in _MODULES:
        return None
    file = descriptor_pb2.FileDescriptorProto()
    import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(file)
    return file


def _provide(pool: Any, name: str) -> bool:
    """Adds the file that has one of Google's own types to a pool that has it not. Returns False if none has it."""
    for stem in _MODULES:
        file = _provided(f"{_PROVIDED}{stem}.proto")
        if name in {f"{file.package}.{message.name}" for message in file.message_type}:
            _add_provided(pool, file)
            return True
    return False


def _add_provided(pool: Any, file: Any) -> None:
    try:
        pool.FindFileByName(file.name)
    except KeyError:
        for path in file.dependency:
            _add_provided(pool, _provided(path))
        pool.Add(file)


def _serialized(text: str) -> Any:
    """Returns the descriptor that some registries keep in base64 in place of a text."""
    if "{" in text or ";" in text:
        return None
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _reader_of_message(messages: Messages, message: Descriptor, shown: Shown | None) -> Reader:
    kind = message_factory.GetMessageClass(message)
    reached = list(_reached(messages, message))
    # A field takes two bytes at least (packed numbers one), a message within shows fields that it does not have, too.
    of_fields = max((_cost(field) for each in reached for field in fields_of(each)), default=1)
    absent = max(sum(_cost(field) for field in each.fields if not field.has_presence) for each in reached) // 2
    whole, sparse = (messages.showing(shows_absent=one) for one in (True, False))
    show_whole, show_sparse = whole.of(message), sparse.of(message)

    def decode(data: bytes) -> str | RemarkedText:
        value, remarks = kind.FromString(data), Remarks()
        unknown = discard_unknown(value)
        if unknown:
            why = f"{unknown} bytes are fields that {message.full_name} does not have"
            if unknown == len(data) and _is_text(data):
                raise NotDecodedError(why)
            remarks.add(why)
        shows_absent = len(data) * (of_fields + absent) <= MOST_NODES
        if shown is None:
            return remarks.on(_write((show_whole if shows_absent else show_sparse)(value, remarks)))
        if not shows_absent:
            raise NotDecodedError(f"{len(data)} bytes of {message.full_name} expand to more than {MOST_NODES} parts")
        return remarks.on(shown(value, whole, remarks))

    return Reader(decode, message.full_name, MOST_NODES // of_fields, _line)


def _is_text(data: bytes) -> bool:
    """True for bytes that are text without controls, which values of Protobuf hardly are."""
    try:
        return all(one.isprintable() or one in "\t\n\r" for one in data.decode())
    except UnicodeDecodeError:
        return False


def _cost(field: FieldDescriptor) -> int:
    symbols = () if field.enum_type is None else field.enum_type.values_by_name
    return 1 + (len(field.name) + max(map(len, symbols), default=0)) // NAME_BYTES


def _reached(messages: Messages, message: Descriptor) -> Iterator[Descriptor]:
    """Yields a message and all that may be within; in an Any, that is every one that the schema has."""
    seen, waiting = {message.full_name}, [message]
    while waiting:
        one = waiting.pop()
        yield one
        within = [field.message_type for field in fields_of(one) if field.type in MESSAGES]
        if one.full_name == ANY:
            files = _imported(messages.main, set())
            within += [each for file in files for each in _with_nested(file.message_types_by_name.values())]
        for kind in within:
            if kind.full_name not in seen:
                seen.add(kind.full_name)
                waiting.append(kind)


def _imported(file: Any, seen: set[str]) -> Iterator[Any]:
    """Yields a file and all that it imports."""
    seen.add(file.name)
    yield file
    for one in file.dependencies:
        if one.name not in seen:
            yield from _imported(one, seen)


def _line(error: Exception) -> str:
    return first_line(error) or type(error).__name__
