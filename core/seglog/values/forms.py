"""The forms in which keys and values are shown, and the asking for them: from options to a decoder for each topic.

`Forms` is what is asked for. `Values` makes a `TopicDecoder` for each topic of it, and counts what became of the
values. A value that does not decode is never left out: its result has the reason, and whoever shows it has the bytes.
"""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from seglog import layout
from seglog.escaping import json_value, safe_json
from seglog.format.columns import Records
from seglog.model import Header
from seglog.values import schemas as kinds
from seglog.values.frames import SIDES, Frame, Side, frame_of
from seglog.values.internal_topics import DECODERS
from seglog.values.schemas import NotDecodedError, Schema, SchemaId, SchemaSource, closure

AUTO, KAFKA = "auto", "kafka"
# The forms that need schemas, and the type that each wants.
BY_SCHEMA: dict[str, str | None] = {
    "avro": kinds.AVRO,
    "protobuf": kinds.PROTOBUF,
    "json-schema": kinds.JSON,
    "registry": None,
}

_READERS_KEPT = 10_000
_REASONS_KEPT = 100
_OTHER_REASONS = "other reasons"


class Decoded(NamedTuple):
    """A key or value in its form: JSON text, or None and the reason. `schema` is by which it was written, if known."""

    json: str | None
    schema: SchemaId | None = None
    error: str = ""

    @property
    def text(self) -> str:
        """The JSON text; of a string its characters, with escapes for surrogates, which are none."""
        text = self.json or ""
        if not text.startswith('"'):
            return text
        return str(json.loads(text)).encode("utf-8", "backslashreplace").decode()


# --- forms without schemas ------------------------------------------------------------------------------------


def _string(data: bytes) -> str:
    try:
        return json_value(data.decode())
    except UnicodeDecodeError as error:
        raise NotDecodedError(f"byte {error.start} is not UTF-8") from error


def _number(size: int) -> Callable[[bytes], str]:
    def decode(data: bytes) -> str:
        if len(data) != size:
            raise NotDecodedError(f"it has {len(data)} bytes, not {size}")
        return str(int.from_bytes(data, "big", signed=True))

    return decode


def _not_a_number(text: str) -> None:
    raise NotDecodedError(f"it is no JSON: {text}")


def json_document(data: bytes) -> str:
    """Returns JSON as it is, in one line, so that no number loses a digit. Raises NotDecodedError for anything else."""
    try:
        text = data.decode()
        json.loads(text, parse_constant=_not_a_number, parse_int=len, parse_float=len)
    except NotDecodedError:
        raise
    except (ValueError, RecursionError) as error:
        raise NotDecodedError(f"it is no JSON: {error}") from error
    return safe_json(text.strip().replace("\n", " ").replace("\r", " "))  # between tokens: strings have them escaped


_PLAIN: dict[str, Callable[[bytes], str]] = {
    "string": _string,
    "hex": lambda data: f'"{data.hex()}"',
    "base64": lambda data: f'"{base64.b64encode(data).decode()}"',
    "int": _number(4),
    "long": _number(8),
    "json": json_document,
}
FORMS = (AUTO, *_PLAIN, KAFKA, *BY_SCHEMA)


# --- what is asked for, and what became of it -----------------------------------------------------------------


@dataclass(frozen=True)
class Forms:
    """The forms of keys and values (of FORMS). `source` has schemas by the ids of frames; `given` is the schema of
    values without a frame.
    """

    key: str = AUTO
    value: str = AUTO
    source: SchemaSource | None = None
    given: Schema | None = None

    @property
    def are_plain(self) -> bool:
        """True if everything is shown as it is."""
        return self.key == self.value == AUTO

    @property
    def told(self) -> tuple[Side, ...]:
        """The sides of which tables have columns for the schema and for the reason why it is not decoded."""
        return tuple(side for side in SIDES if self.of(side) not in (AUTO, KAFKA, "base64", "hex"))

    def of(self, side: Side) -> str:
        """Returns the form of a side."""
        return self.key if side == "key" else self.value


@dataclass
class Tally:
    """How many keys and values were decoded by each schema, and how many were not, by side and reason."""

    decoded: Counter[tuple[Side, str]] = field(default_factory=Counter)
    failed: Counter[tuple[Side, str]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, decoded: Mapping[tuple[Side, str], int], failed: Mapping[tuple[Side, str], int]) -> None:
        """Adds counts; threads may call it."""
        with self._lock:
            self.decoded.update(decoded)
            for place, count in failed.items():
                known = place in self.failed or len(self.failed) < _REASONS_KEPT
                self.failed[place if known else (place[0], _OTHER_REASONS)] += count


@dataclass
class Values:
    """Decodes the records of topics in the forms that were asked for, and counts (`tally`)."""

    forms: Forms
    tally: Tally = field(default_factory=Tally)
    _topics: dict[str, TopicDecoder | None] = field(default_factory=dict, repr=False)

    def of_topic(self, topic: str) -> TopicDecoder | None:
        """Returns the decoder for a topic's records; None if they are shown as they are."""
        if topic not in self._topics:
            decoder = TopicDecoder(self.forms, topic, self.tally)
            self._topics[topic] = decoder if decoder.sides else None
        return self._topics[topic]


Wanted = tuple[bytes | None, bytes | None, int]  # key, value, offset
Results = tuple[Decoded | None, ...]


class TopicDecoder:
    """Decodes keys and values of one topic. `sides` are those that are not shown as they are."""

    def __init__(self, forms: Forms, topic: str, tally: Tally) -> None:
        self._tally, self._internal = tally, DECODERS.get(topic)
        self._forms: dict[Side, str] = {"key": forms.key, "value": forms.value}
        if self._internal is None:  # Kafka's decoders are for Kafka's topics; others stay as they are
            self._forms = {side: AUTO if form == KAFKA else form for side, form in self._forms.items()}
        self.sides: tuple[Side, ...] = tuple(side for side, form in self._forms.items() if form != AUTO)
        self._schemas: dict[Side, _BySchema] = {}
        for side in self.sides:
            if self._forms[side] in BY_SCHEMA:
                wanted = BY_SCHEMA[self._forms[side]]
                self._schemas[side] = _BySchema(side, f"{topic}-{side}", wanted, forms.source, forms.given)

    def form(self, side: Side) -> str:
        """Returns the form of a side of this topic."""
        return self._forms[side]

    def of_records(self, records: Records) -> list[tuple[Wanted, Results]]:
        """Returns for each record its (key, value, offset), and the results of `sides`; None: shown as it is, maybe
        null. Control records, which no producer wrote, are not decoded.
        """
        batches = records.batches
        control = (batches["magic"] >= 2) & (batches["attributes"] & layout.CONTROL_MASK != 0)
        is_control = control[records.rows["batch"]].tolist()
        written = list(records)
        wanted = [(record.key, record.value, record.offset or 0) for record in written]
        columns = []
        for side in self.sides:
            decode = self._decoder_of(side)
            place = SIDES.index(side)
            column = [
                None if row[place] is None or is_marker else decode(row, record.headers)
                for row, record, is_marker in zip(wanted, written, is_control, strict=True)
            ]
            self._count(side, column)
            columns.append(column)
        return list(zip(wanted, zip(*columns, strict=True), strict=True))

    def _count(self, side: Side, column: Sequence[Decoded | None]) -> None:
        numbers: Counter[SchemaId | None] = Counter()
        failed: Counter[tuple[Side, str]] = Counter()
        for one in column:
            if one is None:
                continue
            if one.error:
                failed[side, one.error] += 1
            else:
                numbers[one.schema] += 1
        by_schema = self._schemas.get(side)
        decoded = {} if by_schema is None else {(side, by_schema.label(each)): n for each, n in numbers.items()}
        self._tally.add(decoded, failed)

    def _decoder_of(self, side: Side) -> Callable[[Wanted, Sequence[Header]], Decoded | None]:
        """Returns what decodes a side of a record, which is not null."""
        place, form = SIDES.index(side), self._forms[side]
        if side in self._schemas:
            decode = self._schemas[side].decoded
            return lambda row, headers: decode(row[place], headers)  # type: ignore[arg-type]
        internal = self._internal
        if form == KAFKA and internal is not None:
            return lambda row, _headers: _of_text(internal(*row)[place])
        plain = _PLAIN[form]
        return lambda row, _headers: _of_bytes(plain, row[place])  # type: ignore[arg-type]


def _of_bytes(decode: Callable[[bytes], str], data: bytes) -> Decoded:
    try:
        return Decoded(decode(data))
    except NotDecodedError as error:
        return Decoded(None, None, str(error))


def _of_text(text: str | None) -> Decoded | None:
    """Returns what a decoder of an internal topic says: a JSON object, or a text in quotes; None if nothing."""
    if text is None:
        return None
    if text.startswith("{"):
        try:
            return Decoded(json_value(json.loads(text)))
        except ValueError:
            return Decoded(json_value(text))  # as Java prints it
    return Decoded(json_value(text))


Read = Callable[[Frame], str]


class _BySchema:
    """Decodes keys or values by the schema that each names, or by the one of its topic."""

    def __init__(
        self, side: Side, subject: str, wanted: str | None, source: SchemaSource | None, given: Schema | None
    ) -> None:
        self._side, self._subject, self._wanted, self._source, self._given = side, subject, wanted, source, given
        self._read: dict[SchemaId | None, Read | NotDecodedError] = {}
        self._labels: dict[SchemaId | None, str] = {}
        self._unframed: SchemaId | None = None  # the id of the schema of values without a frame

    def label(self, number: SchemaId | None) -> str:
        """Returns the name of a schema by which values were decoded."""
        return self._labels.get(number, "the schema")

    def decoded(self, data: bytes, headers: Sequence[Header]) -> Decoded:
        """Decodes one key or value; its result has the reason if it does not decode."""
        frame: Frame | None = None
        try:
            frame = frame_of(data, headers, self._side)
            if frame is None or (self._source is None and self._given is not None):
                return self._without_frame(data, frame)
            return Decoded(self._reader(frame.id)(frame), frame.id)
        except NotDecodedError as error:
            return Decoded(None, None if frame is None else frame.id, str(error))

    def _without_frame(self, data: bytes, frame: Frame | None) -> Decoded:
        """Decodes by the given schema. Bytes that look like a frame may be the value's own, so they are tried first."""
        try:
            return Decoded(self._reader(None)(Frame(0, data, 0)), self._unframed)
        except NotDecodedError:
            if frame is None:
                raise
            return Decoded(self._reader(None)(frame), frame.id)

    def _reader(self, number: SchemaId | None) -> Read:
        found = self._read.get(number)
        if found is None:
            if len(self._read) >= _READERS_KEPT:
                self._read.clear()
            try:
                found = self._made(number)
            except NotDecodedError as error:
                found = error
            self._read[number] = found
        if isinstance(found, NotDecodedError):
            raise NotDecodedError(str(found))
        return found

    def _made(self, number: SchemaId | None) -> Read:
        if self._source is None and self._given is None:
            raise NotDecodedError("there are no schemas to decode it by")
        if number is not None:
            assert self._source is not None
            schema = self._source.by_id(number)
        elif self._given is not None:
            schema = self._given
        else:
            assert self._source is not None
            try:
                schema = self._source.latest(self._subject)
            except NotDecodedError as error:
                raise NotDecodedError(f"it has no frame of a registry, and {error}") from error
        self._labels[schema.id if number is None else number] = schema.label
        if number is None:
            self._unframed = schema.id
        if self._wanted is not None and schema.type != self._wanted:
            raise NotDecodedError(f"{schema.label} is of the type {schema.type}, not {self._wanted}")
        references = closure(schema, self._source) if schema.references and self._source is not None else {}
        try:
            return _reader_of(schema, references)
        except NotDecodedError as error:
            raise NotDecodedError(f"{schema.label} is not read: {error}") from error


def _reader_of(schema: Schema, references: Mapping[str, Schema]) -> Read:
    """Returns the reader of a schema, from the module of its format. Raises ModuleNotFoundError without its library."""
    if schema.type == kinds.AVRO:
        from seglog.values import avro

        decode = avro.reader_of(schema, references)
        return lambda frame: decode(frame.data[frame.start :])
    if schema.type == kinds.PROTOBUF:
        from seglog.values import protobuf

        return protobuf.reader_of(schema, references)
    if schema.type == kinds.JSON:
        return lambda frame: json_document(frame.data[frame.start :])
    raise NotDecodedError(f"its type is {schema.type}, which is none of {', '.join(kinds.TYPES)}")
