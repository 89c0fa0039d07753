"""The type of a column of decoded keys or values, and what decodes them to it.

A table must say its types before it reads, so they come from the schemas that are known then: the given one, all
versions of the topic's subject, and those that the first values of its partitions name. What other schemas wrote does
not decode, and says so.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any
from uuid import UUID

from seglog.format.columns import Side
from seglog.model import Header
from seglog_ask.values import schemas as kinds
from seglog_ask.values.forms import BY_SCHEMA, BySchema, Forms, has_id_zero, references_of
from seglog_ask.values.frames import MessageName, frame_of, message_named
from seglog_ask.values.schemas import KnownSchemas, Naming, NotDecodedError, Read, Schema, SchemaId, SchemaSource, Text
from seglog_ask.values.shapes import Described, Shape, merged
from seglog_ask.values.single_object import Fingerprints

_logger = logging.getLogger("seglog.values.column_types")

Path = MessageName  # of a Protobuf message; () in other formats
Sample = tuple[bytes, tuple[Header, ...]]

FIRST_MESSAGE: Path = (0,)

_MOST_SEEN = 50  # ids in first values, which may be anything


@dataclass(frozen=True)
class Written:
    """A schema whose values the column has."""

    schema: Schema
    references: Mapping[str, Schema]
    path: Path
    described: Described


class ColumnType:
    """The shape of a column for one side of a topic, and its schemas. It is pickled without readers."""

    def __init__(self, side: Side, topic: str, forms: Forms, written: list[Written], shape: Shape) -> None:
        self.side, self.topic, self.shape, self.written = side, topic, shape, written
        self._forms = forms
        self._of_text: dict[tuple[str, str, str], list[Written]] = {}
        for one in written:
            self._of_text.setdefault(_named(one.schema), []).append(one)

    def of_shape(self, shape: Shape) -> ColumnType:
        """Returns the same with another shape, in which some parts are TEXT."""
        return ColumnType(self.side, self.topic, self._forms, self.written, shape)

    def __reduce__(self) -> Any:
        given = self._forms.given
        form = self._forms.of(self.side)
        forms = Forms(form, form, None if self._forms.source is None else self._snapshot(), given)
        return type(self), (self.side, self.topic, forms, self.written, self.shape)

    def _snapshot(self) -> KnownSchemas:
        """Returns the column's schemas as a source for other processes, which do not ask a registry."""
        source = self._forms.source
        assert source is not None
        known = KnownSchemas(source.where)
        if isinstance(source, KnownSchemas):  # a schema has an id, and may have a GUID
            written = {one.schema for one in self.written}
            known.ids = {number: schema for number, schema in source.ids.items() if schema in written}
        for one in self.written:
            known.add(one.schema)
            for name in one.schema.references:
                known.subjects.setdefault(name.subject, {}).setdefault(name.version, one.references[name.name])
            for within in one.references.values():
                for name in within.references:
                    known.subjects.setdefault(name.subject, {}).setdefault(name.version, one.references[name.name])
        return known

    @property
    def unframed(self) -> Written | None:
        """The given schema, if all values are to be tried by it first."""
        given = self._forms.given if self._forms.source is None else None
        return next((one for one in self.written if one.schema == given), None)

    def of_id(self, number: SchemaId) -> list[Written]:
        """Returns the schema that frames with an id or GUID mean; of Protobuf one for each message that has a path."""
        with_paths = [one for one in self.written if isinstance(one.path, tuple)]
        named = [one for one in with_paths if one.schema.id == number]
        is_plain = bool(named) and all(one.schema.says_as(named[0].schema) for one in named)
        if is_plain or self._forms.source is None or not (named or isinstance(number, UUID)):
            return named
        with contextlib.suppress(NotDecodedError):
            meant = self._forms.source.by_id(number, f"{self.topic}-{self.side}")
            return [one for one in with_paths if one.schema == meant]
        return []

    def reader(self) -> BySchema:
        """Returns what decodes a value at a time, to JSON of the column's fields: with what JSON lacks (NaN) as Python
        writes it, bytes as a character for each, dates and times as the numbers that Arrow has for them, and numbers
        that are not plain ones as text.
        """
        form = self._forms.of(self.side)
        subject = f"{self.topic}-{self.side}"
        return BySchema(self.side, subject, BY_SCHEMA[form], self._forms.source, self._forms.given, self._read)

    def _read(self, schema: Schema, references: Mapping[str, Schema]) -> Read:
        known = self._of_text.get(_named(schema), [])
        if not known:
            _described(schema, references, schema.message or FIRST_MESSAGE)  # says why it is not read at all
            raise NotDecodedError("the type of the column was made without it")
        if schema.type == kinds.AVRO:
            from seglog_ask.values import avro

            texts = avro.reader_of(schema, references, self.shape).texts
            return lambda payloads, _naming: texts(payloads)
        from seglog_ask.values import protobuf
        from seglog_ask.values.protobuf_columns import column_values

        of_messages = protobuf.reader_of(
            schema,
            references,
            lambda message, showing, remarks: json.dumps(column_values(message, self.shape, showing, remarks)),
        )
        paths = {one.path for one in known}

        def text(payload: bytes, naming: Naming) -> Text:
            try:
                named = schema.message or message_named(payload, naming)[0]
            except NotDecodedError as error:
                return error
            if named not in paths:
                return NotDecodedError(f"the column was made without its message {named}")
            return of_messages((payload,), naming)[0]

        return lambda payloads, naming: [text(payload, naming) for payload in payloads]


def column_type(forms: Forms, side: Side, topic: str, samples: Iterable[Sample]) -> ColumnType | None:
    """Returns the type of a side of a topic; None if no type expresses it, so that the column is JSON text.

    `samples` are values and headers of records, whose schemas count too. A change of type is logged.
    """
    wanted = BY_SCHEMA.get(forms.of(side), kinds.JSON)
    if wanted == kinds.JSON:
        return None
    written: dict[tuple[SchemaId | None, str, str, str, Path], Written | None] = {}
    for schema, path in _candidates(forms, side, topic, samples):
        place: Path = () if schema.type == kinds.AVRO else schema.message or path
        key = (schema.id, *_named(schema), place)
        if key in written or (wanted is not None and schema.type != wanted):
            continue
        if schema.type == kinds.JSON:
            return None
        written[key] = None
        try:
            references = references_of(schema, forms.source)
            written[key] = Written(schema, references, place, _described(schema, references, place))
        except NotDecodedError:
            continue  # its values say why
    found = [one for one in written.values() if one is not None]
    if not found:
        return None
    column = f"{topic}: {side}"
    shape = found[0].described.shape
    for other in found[1:]:
        shape = merged(shape, other.described.shape, lambda said: _logger.warning("%s", said), column)
    return ColumnType(side, topic, forms, found, shape)


def _candidates(forms: Forms, side: Side, topic: str, samples: Iterable[Sample]) -> Iterable[tuple[Schema, Path]]:
    """Yields schemas and messages that values may have: of the versions of the topic's subject those messages that the
    samples have, and the first one if there are no samples.
    """
    if forms.given is not None:
        yield forms.given, FIRST_MESSAGE
    if forms.source is None:
        return
    sampled = list(_sampled(forms.source, f"{topic}-{side}", side, samples))
    messages = dict.fromkeys(path for schema, path in sampled if schema.type == kinds.PROTOBUF) or (FIRST_MESSAGE,)
    for schema in forms.source.versions(f"{topic}-{side}"):
        for path in messages if schema.type == kinds.PROTOBUF else (FIRST_MESSAGE,):
            yield schema, path
    yield from sampled


def _sampled(
    source: SchemaSource, subject: str, side: Side, samples: Iterable[Sample]
) -> Iterable[tuple[Schema, Path]]:
    has_zero, fingerprints = partial(has_id_zero, source), Fingerprints(source, None, subject)
    known: dict[SchemaId, Schema | None] = {}
    for data, headers in samples:
        try:
            frame = frame_of(data, headers, side, has_zero)
            if frame is None:
                single = fingerprints.schema_of(data)
                if single is not None:
                    yield single, FIRST_MESSAGE
                continue
            if frame.id not in known and len(known) < _MOST_SEEN:
                known[frame.id] = None
                known[frame.id] = source.by_id(frame.id, subject)
            seen = known.get(frame.id)
            if seen is not None:
                is_message = seen.type == kinds.PROTOBUF
                yield seen, message_named(frame.payload, frame.naming)[0] if is_message else FIRST_MESSAGE
        except NotDecodedError:
            continue


def _described(schema: Schema, references: Mapping[str, Schema], path: Path) -> Described:
    if schema.type == kinds.AVRO:
        import_module("seglog_ask.values.avro")  # without its library, a table says so when it is opened
        from seglog_ask.values import avro_columns

        return avro_columns.described(schema, references)
    if schema.type == kinds.PROTOBUF:
        from seglog_ask.values import protobuf_columns

        return protobuf_columns.described(schema, references, path)
    raise NotDecodedError(f"its type is {schema.type}, for which there is no column")


def _named(schema: Schema) -> tuple[str, str, str]:
    return schema.type, schema.text, schema.message
