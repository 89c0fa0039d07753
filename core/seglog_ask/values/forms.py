"""The forms in which keys and values are shown, and the asking for them: from options to a decoder for each topic.

`Forms` is what is asked for. `Values` makes a `TopicDecoder` for each topic of it, and counts what became of the
values. A value that does not decode is never left out: its result has the reason, and whoever shows it has the bytes.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from seglog.escaping import json_value
from seglog.format.columns import SIDES, Records, Side
from seglog.format.control import ControlRecordError
from seglog.format.decoder import control_batches
from seglog.model import Header
from seglog_ask.values import schemas as kinds
from seglog_ask.values.frames import (
    FIRST,
    PATH_BEFORE,
    PLAIN_FRAME_BYTES,
    Frame,
    frame_of,
    named_in_headers,
    plain_frames,
)
from seglog_ask.values.internal_topics import KINDS, Decode, control_texts, kind_of
from seglog_ask.values.plain_forms import PLAIN, json_document, text_or_reason
from seglog_ask.values.schemas import (
    Naming,
    NotDecodedError,
    Read,
    RemarkedText,
    Schema,
    SchemaId,
    SchemaSource,
    Text,
    closure,
)
from seglog_ask.values.single_object import HEAD_BYTES, Fingerprints

AUTO, KAFKA = "auto", "kafka"
OF_KIND = f"{KAFKA}:"  # begins the form of what a topic holds whose name does not say it
# The forms that need schemas, and the type that each wants.
BY_SCHEMA: dict[str, str | None] = {
    "avro": kinds.AVRO,
    "protobuf": kinds.PROTOBUF,
    "json-schema": kinds.JSON,
    "registry": None,
}

_READERS_KEPT = 10_000
MOST_TEXT = 512 << 20  # characters of the values of one batch, which are in memory together
_NO_ROOM = NotDecodedError(f"those before it expand to more than {MOST_TEXT} characters: begin with its offset")
_REASONS_KEPT = 100
_OTHER_REASONS = "other reasons"


@dataclass(frozen=True, slots=True)
class Column:
    """The keys or values of some records in their form, by the record's place.

    `texts` are JSON. Where one is None, `errors` has the reason, or the bytes in `data`, which may be null, are shown
    as they are. Where there are both, the value is decoded in part (its place is in `partial`), or bytes that do not
    decode are shown as text. `schemas` are those by which they were written, if known.
    """

    data: list[bytes | None]
    texts: list[str | None]
    schemas: list[SchemaId | None]
    errors: dict[int, str]
    partial: set[int]

    @classmethod
    def of(cls, data: list[bytes | None]) -> Column:
        """Returns a column in which everything is shown as it is."""
        return cls(data, [None] * len(data), [None] * len(data), {}, set())

    def shows_bytes(self, place: int) -> bool:
        """True for bytes that do not decode, and are shown as text."""
        return self.texts[place] is not None and place in self.errors and place not in self.partial

    def put(self, places: Sequence[int], texts: Sequence[Text], schema: SchemaId | None = None) -> None:
        """Sets what some keys or values are, or why they do not decode."""
        for place, text in zip(places, texts, strict=True):
            if isinstance(text, str):
                self.texts[place] = text
            elif isinstance(text, RemarkedText):
                self.texts[place], self.errors[place] = text.text, text.why
                if text.is_decoded:
                    self.partial.add(place)
            else:
                self.errors[place] = str(text)
            self.schemas[place] = schema


FORMS = (AUTO, *PLAIN, KAFKA, *BY_SCHEMA)


def is_form(text: str) -> bool:
    """True for one of FORMS, and for `kafka:` with a kind of internal topics."""
    return text in FORMS or (text.startswith(OF_KIND) and text.removeprefix(OF_KIND) in KINDS)


# --- what is asked for, and what became of it -----------------------------------------------------------------


@dataclass(frozen=True)
class Forms:
    """The forms of keys and values (see `is_form`). `source` has schemas by the ids of frames; `given` is the schema of
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
        return tuple(side for side in SIDES if self.of(side) not in (AUTO, "base64", "hex"))

    @property
    def by_schema(self) -> tuple[Side, ...]:
        """The sides that schemas describe."""
        return tuple(side for side in SIDES if self.of(side) in BY_SCHEMA)

    def of(self, side: Side) -> str:
        """Returns the form of a side."""
        return self.key if side == "key" else self.value


@dataclass
class Tally:
    """How many keys and values were decoded by each schema, how many of these in part, and how many were not, by side
    and reason. `texts` of these are text that only the bytes beside a column with types have.
    """

    decoded: Counter[tuple[Side, str]] = field(default_factory=Counter)
    failed: Counter[tuple[Side, str]] = field(default_factory=Counter)
    partial: Counter[tuple[Side, str]] = field(default_factory=Counter)
    texts: Counter[Side] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, decoded: Mapping[tuple[Side, str], int]) -> None:
        """Adds counts of what decodes; threads may call it."""
        with self._lock:
            self.decoded.update(decoded)

    def add_texts(self, side: Side, undecoded: Iterable[bytes]) -> None:
        """Counts those that are text, of what a column with types does not hold; threads may call it."""
        count = sum(map(_is_text, undecoded))
        with self._lock:
            self.texts[side] += count

    def add_column(self, side: Side, column: Column, label: Callable[[SchemaId | None], str] | None) -> None:
        """Adds the keys or values of a column; `label` names a schema, None: they need none. Threads may call it."""
        counts = {True: Counter[tuple[Side, str]](), False: Counter[tuple[Side, str]]()}
        for place, reason in sorted(column.errors.items()):
            counts[place in column.partial][side, reason] += 1
        decoded = {} if label is None else _of_schemas(side, column, label)
        with self._lock:
            self.decoded.update(decoded)
            for is_partial, total in ((True, self.partial), (False, self.failed)):
                for reasoned, count in counts[is_partial].items():
                    known = reasoned in total or len(total) < _REASONS_KEPT
                    total[reasoned if known else (side, _OTHER_REASONS)] += count


def _is_text(data: bytes) -> bool:
    """True for what UTF-8 has, without the zero byte with which frames begin."""
    try:
        return b"\0" not in data and bool(data.decode())
    except UnicodeDecodeError:
        return False


def _of_schemas(side: Side, column: Column, label: Callable[[SchemaId | None], str]) -> Counter[tuple[Side, str]]:
    """Returns how many keys or values each schema decoded; one may have an id and a GUID."""
    pairs = zip(column.texts, column.schemas, strict=True)
    numbers = Counter([number for text, number in pairs if text is not None])
    numbers.subtract(column.schemas[place] for place in column.errors if column.shows_bytes(place))
    decoded = Counter[tuple[Side, str]]()
    for number, count in numbers.items():
        if count:
            decoded[side, label(number)] += count
    return decoded


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


class TopicDecoder:
    """Decodes keys and values of one topic. `sides` are those that are not shown as they are."""

    def __init__(self, forms: Forms, topic: str, tally: Tally) -> None:
        self._tally = tally
        self._forms: dict[Side, str] = {side: forms.of(side) for side in SIDES}
        self._internal: dict[Side, Decode] = {}
        for side, form in self._forms.items():
            if form == KAFKA or form.startswith(OF_KIND):
                kind = kind_of(topic) if form == KAFKA else KINDS[form.removeprefix(OF_KIND)]
                self._forms[side] = AUTO if kind is None else KAFKA  # topics that are nobody's own stay as they are
                if kind is not None:
                    self._internal[side] = kind.decode
        self.sides: tuple[Side, ...] = tuple(side for side, form in self._forms.items() if form != AUTO)
        self._schemas: dict[Side, BySchema] = {}
        for side in self.sides:
            if self._forms[side] in BY_SCHEMA:
                wanted = BY_SCHEMA[self._forms[side]]
                self._schemas[side] = BySchema(side, f"{topic}-{side}", wanted, forms.source, forms.given)

    def form(self, side: Side) -> str:
        """Returns the form of a side of this topic."""
        return self._forms[side]

    def shown(self, records: Records, sides: Iterable[Side]) -> list[Column]:
        """Returns the columns of these sides, of which those that are not decoded show what is there."""
        columns = self.columns(records)
        return [columns.get(side) or Column.of(records.parts(side)) for side in sides]

    def columns(self, records: Records) -> dict[Side, Column]:
        """Returns the columns of `sides`. Control records, which no producer wrote, are only decoded as Kafka's own."""
        control = are_control(records)
        places, of_control = np.flatnonzero(~control).tolist(), np.flatnonzero(control).tolist()
        columns = {}
        for side in self.sides:
            column = Column.of(records.parts(side))
            self._decode(side, column, [place for place in places if column.data[place] is not None], records)
            if self._forms[side] == KAFKA:
                self._decode_control(side, column, of_control, records)
            by_schema = self._schemas.get(side)
            self._tally.add_column(side, column, None if by_schema is None else by_schema.label)
            columns[side] = column
        return columns

    def _decode(self, side: Side, column: Column, places: Sequence[int], records: Records) -> None:
        """Decodes the keys or values in some places, which are not null."""
        form = self._forms[side]
        if side in self._schemas:
            self._schemas[side].decode(column, places, naming_headers(records, side))
        elif form == KAFKA:
            self._decode_internal(side, column, places, records)
        else:
            column.put(places, _plain_texts(PLAIN[form], [column.data[place] for place in places]))  # type: ignore[misc]

    def _decode_internal(self, side: Side, column: Column, places: Sequence[int], records: Records) -> None:
        decode = self._internal[side]
        rows = list(zip(records.parts("key"), records.parts("value"), records.rows["offset"].tolist(), strict=True))
        for place in places:
            text = decode(*rows[place])[SIDES.index(side)]
            if text is not None:
                column.put((place,), (text,))

    def _decode_control(self, side: Side, column: Column, places: Sequence[int], records: Records) -> None:
        for place in places:
            try:
                text = control_texts(records.key(place), records.value(place))[SIDES.index(side)]
            except ControlRecordError as error:
                column.put((place,), (NotDecodedError(str(error)),))
                continue
            if text is not None:
                column.put((place,), (json_value(json.loads(text)),))


def _plain_texts(decode: Callable[[bytes], Text], values: Sequence[bytes]) -> list[Text]:
    """Returns the texts of values, of which few bytes may be many: those that find no room are left undecoded."""
    texts, left = list[Text](), MOST_TEXT
    for data in values:
        text = _NO_ROOM if left < 0 else text_or_reason(decode, data)
        left -= len(text) if isinstance(text, str) else 0
        texts.append(text)
    return texts


def are_control(records: Records) -> np.ndarray:
    """Returns a mask of the control records, which no producer wrote."""
    control: np.ndarray = control_batches(records.batches)[records.rows["batch"]]
    return control


def naming_headers(records: Records, side: Side) -> dict[int, Sequence[Header]]:
    """Returns the headers that may say the schema of a key or value, by the record's place."""
    if not records.rows["header_count"].any():
        return {}
    written = enumerate(records.parts("headers"))
    return {i: records.headers(i) for i, data in written if data is not None and named_in_headers(data, side)}


def text_of_bytes(data: bytes, reason: NotDecodedError) -> Text:
    """Returns bytes that do not decode as text, with the reason, or only this if they are not text."""
    try:
        return RemarkedText(json_value(data.decode()), str(reason), is_decoded=False)
    except UnicodeDecodeError:
        return reason


class BySchema:
    """Decodes keys or values by the schema that each names, or by the one of its topic.

    `made` gives the reader of a schema, and raises NotDecodedError for one that is not read.
    """

    def __init__(
        self,
        side: Side,
        subject: str,
        wanted: str | None,
        source: SchemaSource | None,
        given: Schema | None,
        made: Callable[[Schema, Mapping[str, Schema]], Read] | None = None,
    ) -> None:
        self._make = _reader_of if made is None else made
        self._side, self._subject, self._wanted, self._source, self._given = side, subject, wanted, source, given
        self._only_given = source is None and given is not None
        self._as_text = wanted is None and made is None  # of a registry's topics, some may never have had a schema
        self._fingerprints = Fingerprints(source, given, subject)
        self._read: dict[SchemaId | Schema | None, Read | NotDecodedError] = {}
        self._labels: dict[SchemaId | None, str] = {}
        self._unframed: SchemaId | None = None  # the id of the schema of values without a frame
        self._zero: bool | None = None  # if there is a schema with the id 0, where this was asked

    def has_zero(self) -> bool:
        """True if there is a schema with the id 0."""
        if self._zero is None:
            self._zero = has_id_zero(self._source)
        return self._zero

    def label(self, number: SchemaId | None) -> str:
        """Returns the name of a schema by which values were decoded."""
        return self._labels.get(number, "the schema")

    def decode(self, column: Column, places: Sequence[int], headers: Mapping[int, Sequence[Header]]) -> None:
        """Decodes the keys or values in some places, which are not null, those of one schema together.

        `headers` are those that may name a schema, by place.
        """
        others: Sequence[int] = places
        if not self._only_given:
            plain = [place for place in places if place not in headers] if headers else places
            groups, others = plain_frames(column.data, plain)
            others += [place for place in places if place in headers]
            for number, group in groups.items():
                payloads = [column.data[place][PLAIN_FRAME_BYTES:] for place in group]  # type: ignore[index]
                column.put(group, self._texts(number, payloads, PATH_BEFORE), number)
        self._decode_others(column, others, headers)

    def _decode_others(self, column: Column, places: Sequence[int], headers: Mapping[int, Sequence[Header]]) -> None:
        """Decodes what has another frame, or none. Bytes that look like a frame may be the value's own where a schema
        is given, so they are tried first.
        """
        bare, frames = dict[int, bytes](), dict[int, Frame]()
        for place in places:
            data = column.data[place]
            assert data is not None
            try:
                frame = frame_of(data, headers.get(place, ()), self._side, self.has_zero)
            except NotDecodedError as error:
                column.put((place,), (error,))
                continue
            single = self._fingerprints.schema_of(data) if frame is None else None
            if single is not None:
                column.put((place,), self._texts(single, (data[HEAD_BYTES:],), FIRST), single.id)
                continue
            if frame is None or self._only_given:
                bare[place] = data
            if frame is not None:
                frames[place] = frame
        texts = dict(zip(bare, self._texts(None, list(bare.values()), FIRST) if bare else (), strict=True))
        for place, text in texts.items():
            if place not in frames:
                shown = (
                    text_of_bytes(bare[place], text) if self._as_text and isinstance(text, NotDecodedError) else text
                )
                column.put((place,), (shown,), None if shown is not text else self._id_of_unframed(text))
            elif isinstance(text, str):
                column.put((place,), (text,), self._unframed)
                frames.pop(place)
        for place, frame in frames.items():
            number = None if self._only_given else frame.id
            text = self._texts(number, (frame.payload,), frame.naming)[0]
            of_all = texts.get(place)
            if isinstance(text, NotDecodedError) and isinstance(of_all, RemarkedText):
                column.put((place,), (of_all,), self._unframed)
            else:
                column.put((place,), (text,), frame.id)

    def _id_of_unframed(self, text: Text) -> SchemaId | None:
        return None if isinstance(text, NotDecodedError) else self._unframed

    def _texts(self, number: SchemaId | Schema | None, payloads: Sequence[bytes], naming: Naming) -> Sequence[Text]:
        """Reads payloads by a schema or the one with this id; None: by that of values without a frame."""
        read = self._read.get(number)
        if read is None:
            if len(self._read) >= _READERS_KEPT:
                self._read.clear()
            try:
                read = self._made(number)
            except NotDecodedError as error:
                read = error
            self._read[number] = read
        return [read] * len(payloads) if isinstance(read, NotDecodedError) else read(payloads, naming)

    def _made(self, number: SchemaId | Schema | None) -> Read:
        if self._source is None and self._given is None:
            raise NotDecodedError("there are no schemas to decode it by")
        if isinstance(number, Schema):
            schema, number = number, number.id
        elif number is not None:
            assert self._source is not None
            schema = self._source.by_id(number, self._subject)
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
        try:
            return self._make(schema, references_of(schema, self._source))
        except NotDecodedError as error:
            raise NotDecodedError(f"{schema.label} is not read: {error}") from error


def has_id_zero(source: SchemaSource | None) -> bool:
    """True if a source has a schema with the id 0."""
    try:
        return source is not None and bool(source.by_id(0))
    except NotDecodedError:
        return False


def references_of(schema: Schema, source: SchemaSource | None) -> Mapping[str, Schema]:
    """Returns what a schema refers to. Raises NotDecodedError if the source does not have it."""
    return closure(schema, source) if schema.references and source is not None else {}


def _reader_of(schema: Schema, references: Mapping[str, Schema]) -> Read:
    """Returns the reader of a schema, from the module of its format. Raises ModuleNotFoundError without its library."""
    if schema.type == kinds.AVRO:
        from seglog_ask.values import avro

        texts = avro.reader_of(schema, references).texts
        return lambda payloads, _naming: texts(payloads)
    if schema.type == kinds.PROTOBUF:
        from seglog_ask.values import protobuf

        return protobuf.reader_of(schema, references)
    if schema.type == kinds.JSON:
        return lambda payloads, _naming: [text_or_reason(json_document, data) for data in payloads]
    raise NotDecodedError(f"its type is {schema.type}, not one of {', '.join(kinds.TYPES)}")
