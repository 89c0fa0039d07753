"""Schemas as a registry keeps them, and where they are asked for.

A `SchemaSource` answers by the numbers that frames carry, and by subject. `closure` collects the schemas that one
refers to, so that a format gets all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol
from uuid import UUID

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
TYPES = (AVRO, PROTOBUF, JSON)
EXTENSIONS = {AVRO: ".avsc", PROTOBUF: ".proto", JSON: ".json"}

MOST_SCHEMA_BYTES = 1 << 20
MOST_REFERENCES = 1000  # that one schema needs, also through others
MOST_NODES = 4_000_000  # that a value expands to; a node takes about 200 bytes in Python, and 20 as text
NAME_BYTES = 16  # of a name or symbol that count as a node: each value repeats them

_MOST_REASON = 300  # characters: names in a schema may be long

SchemaId = int | UUID


class NotDecodedError(ValueError):
    """Why a value, or any value of a schema, is not decoded; a sentence without a full stop, cut if it is long."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason if len(reason) <= _MOST_REASON else f"{reason[: _MOST_REASON - 1]}…")


@dataclass(frozen=True, slots=True)
class RemarkedText:
    """A text that does not show all of its value, or shows it otherwise, and why; a sentence without a full stop.

    `is_decoded` is False for bytes that are shown as text because nothing decodes them.
    """

    text: str
    why: str
    is_decoded: bool = True


Text = str | RemarkedText | NotDecodedError  # of a value in JSON, or why it has none


class Remarks:
    """What is said of the parts of one value: the first sentence, and how many there are."""

    __slots__ = ("count", "first")

    def __init__(self) -> None:
        self.first, self.count = "", 0

    def add(self, sentence: str) -> None:
        """Adds a sentence without a full stop."""
        self.first, self.count = self.first or sentence, self.count + 1

    def on(self, text: str) -> str | RemarkedText:
        """Returns a text with what is said of it."""
        return RemarkedText(text, self.why) if self.count else text

    @property
    def why(self) -> str:
        """What is said, in one sentence without a full stop."""
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        return f"{self.first[:_MOST_REASON]}{more}"


class Naming(NamedTuple):
    """How a value in Protobuf names its message; other formats need nothing of it."""

    how: Literal["path before", "number before", "path", "type", "first"]
    what: bytes = b""  # a path or the name of a type that a header has


Read = Callable[[Sequence[bytes], Naming], list[Text]]  # reads payloads of one schema


@dataclass(frozen=True, slots=True)
class Reader:
    """Decodes values of one schema to JSON texts by a library's `read`, with every error as a reason.

    A value is `named` in the reason; one of more than `most_bytes` is not given to the library.
    """

    read: Callable[[bytes], str | RemarkedText]
    named: str
    most_bytes: int | None
    reason_of: Callable[[Exception], str]

    def text(self, data: bytes) -> Text:
        """Returns the text of one value, or why it has none."""
        (text,) = self.texts((data,))
        return text

    def texts(self, payloads: Iterable[bytes]) -> list[Text]:
        """Returns the text of each value, or why it has none."""
        read, most_bytes = self.read, self.most_bytes
        texts: list[Text] = []
        for data in payloads:
            if most_bytes is not None and len(data) > most_bytes:
                sentence = f"{len(data)} bytes of its schema may expand to more than {MOST_NODES} parts"
                texts.append(NotDecodedError(sentence))
                continue
            try:
                texts.append(read(data))
            except NotDecodedError as error:
                texts.append(error)
            except Exception as error:  # noqa: BLE001  a reason, whatever the library raises
                texts.append(NotDecodedError(f"it is not a {self.named}: {self.reason_of(error)}"))
        return texts


def first_line(error: Exception) -> str:
    """Returns the beginning of a library's sentence, which may quote the value at length."""
    return str(error).partition("\n")[0][:200]


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema's mention of another: the name that its text uses, and the subject and version that are meant."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema: its type (AVRO, PROTOBUF, JSON), its text, and what the text refers to.

    `id`, `subject` and `version` are None or empty where nothing tells them. A `deleted` one still decodes.
    """

    type: str
    text: str
    id: SchemaId | None = None
    subject: str = ""
    version: int | None = None
    references: tuple[Reference, ...] = ()
    deleted: bool = False
    message: str = ""  # of Protobuf: the message to use if no frame names one
    metadata: str = ""  # tags and properties, which decoding does not need: JSON, or empty
    rules: str = ""  # Confluent's rule set: JSON, or empty
    shares_id: str = field(default="", compare=False)  # other schemas with its id: a sentence, or empty

    @property
    def label(self) -> str:
        """How a summary names it."""
        name = f"schema {self.id}" if self.id is not None else "the schema"
        told = "; ".join(filter(None, (self.place, self.shares_id)))
        return f"{name} ({told})" if told else name

    @property
    def place(self) -> str:
        """Its subject and version, as far as they are known."""
        version = "" if self.version is None else f" version {self.version}"
        return f"{self.subject}{version}" if self.subject else ""

    def says_as(self, other: Schema) -> bool:
        """True if another schema says the same: a registry gives one id to both."""
        return (self.type, self.text, self.references) == (other.type, other.text, other.references)


class SchemaSource(Protocol):
    """Where schemas come from. The methods for one schema raise NotDecodedError if they do not have it; `versions` has
    all of a subject, the deleted ones too. `where` names the place in sentences. Of several schemas with one id,
    `by_id` gives that of the subject.
    """

    where: str

    def by_id(self, number: SchemaId, subject: str = "") -> Schema: ...

    def latest(self, subject: str) -> Schema: ...

    def version(self, subject: str, version: int) -> Schema: ...

    def versions(self, subject: str) -> list[Schema]: ...

    def related(self, subject: str) -> list[Schema]: ...  # that values of a subject may be of, as far as that is known


@dataclass
class KnownSchemas:
    """A source in memory. `where` names it in sentences; `twins` has the different schemas that have one id."""

    where: str
    ids: dict[SchemaId, Schema] = field(default_factory=dict)
    subjects: dict[str, dict[int, Schema]] = field(default_factory=dict)
    twins: dict[SchemaId, list[Schema]] = field(default_factory=dict)

    def add(self, schema: Schema, *, is_elsewhere: bool = False) -> None:
        """Adds a schema under its id and its version, if it has them. `is_elsewhere`: its id is one of other numbers,
        which counts only where nothing else has it.
        """
        if schema.id is not None:
            known = self.ids.get(schema.id)
            if known is None or (known.deleted and not is_elsewhere):
                self.ids[schema.id] = schema
            if known is not None and not is_elsewhere:
                self._note_twin(schema.id, known, schema)
        if schema.subject:
            versions = self.subjects.setdefault(schema.subject, {})
            versions[schema.version if schema.version is not None else max(versions, default=0) + 1] = schema

    def _note_twin(self, number: SchemaId, known: Schema, schema: Schema) -> None:
        twins = self.twins.get(number, [known])
        if not any(one.says_as(schema) and one.subject == schema.subject for one in twins):
            twins = [*twins, schema]
            if not all(one.says_as(schema) for one in twins):
                self.twins[number] = twins

    def by_id(self, number: SchemaId, subject: str = "") -> Schema:
        """Returns the schema with this id or GUID: of several, the subject's, or the only one that is not deleted."""
        twins = self.twins.get(number)
        if twins is None:
            try:
                return self.ids[number]
            except KeyError:
                raise NotDecodedError(f"schema id {number} is not in {self.where}") from None
        own = [one for one in twins if one.subject == subject] or [one for one in twins if not one.deleted]
        if not own or not all(one.says_as(own[0]) for one in own):
            raise NotDecodedError(f"schema id {number} is of {_places(twins)}, and none of these is the topic's alone")
        others = [one for one in twins if not one.says_as(own[0])]
        return replace(own[0], shares_id=f"{_places(others)} {'has' if len(others) == 1 else 'have'} this id, too")

    def latest(self, subject: str) -> Schema:
        """Returns the newest version of a subject; a deleted one only if there is no other."""
        versions = self.subjects.get(subject)
        if not versions:
            raise NotDecodedError(f"subject {subject} is not in {self.where}")
        return max(versions.items(), key=lambda item: (not item[1].deleted, item[0]))[1]

    def version(self, subject: str, version: int) -> Schema:
        """Returns a version of a subject."""
        try:
            return self.subjects[subject][version]
        except KeyError:
            raise NotDecodedError(f"version {version} of subject {subject} is not in {self.where}") from None

    def versions(self, subject: str) -> list[Schema]:
        """Returns all versions of a subject."""
        return list(self.subjects.get(subject, {}).values())

    def related(self, subject: str) -> list[Schema]:
        """Returns all schemas, those of a subject first."""
        others = (one for name, versions in self.subjects.items() if name != subject for one in versions.values())
        return [*self.versions(subject), *others, *self.ids.values()]


def _places(schemas: Iterable[Schema]) -> str:
    """Returns the subjects and versions of schemas that share an id."""
    return " and ".join(one.place or "a schema without a subject" for one in schemas)


def closure(schema: Schema, source: SchemaSource) -> Mapping[str, Schema]:
    """Returns the schemas that `schema` refers to, also through others, by the names that the texts use; the ones that
    others need come first.

    Raises NotDecodedError if one is missing, if they refer to each other in a circle, or if there are too many.
    """
    found: dict[str, Schema] = {}
    places: dict[str, tuple[str, int]] = {}

    def visit(one: Schema, above: tuple[tuple[str, int], ...]) -> None:
        for reference in one.references:
            place = reference.subject, reference.version
            if place in above:
                raise NotDecodedError(f"{reference.subject} version {reference.version} refers to itself")
            known = places.get(reference.name)
            if known is not None and known != place:
                raise NotDecodedError(f"{reference.name} is two schemas: {known} and {place}")
            if known is not None:
                continue
            if len(places) == MOST_REFERENCES or len(above) == MOST_REFERENCES // 10:
                raise NotDecodedError(f"it refers to more than {MOST_REFERENCES} schemas, or too deeply")
            places[reference.name] = place
            meant = source.version(*place)
            visit(meant, (*above, place))
            found[reference.name] = meant

    visit(schema, ())
    return found
