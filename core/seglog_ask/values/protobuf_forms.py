"""What messages of Google's library become: JSON, as its `json_format` has it, with names as they are in the schema.

Where that raises an error for a whole message, here a field keeps what it has, and a remark says why: an Any of a type
that the schema does not know, a Timestamp that is none, a path of a FieldMask that no name in JSON stands for. Types
are looked up in the schema's own pool and nowhere else, so that nothing depends on what a process has imported.

Protocol Buffers, "ProtoJSON Format"; `JsonFormat` of Java and `json_format` of Python.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from seglog_ask.values.java_times import iso_moment
from seglog_ask.values.schemas import Remarks

Show: TypeAlias = Callable[[Any, Remarks], Any]

MESSAGES = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP)
A_SECOND = 10**9  # in nanoseconds
OWN = "google.protobuf."
TIMESTAMP, DURATION, ANY = (f"{OWN}{name}" for name in ("Timestamp", "Duration", "Any"))
_WRAPPERS = frozenset(
    f"{OWN}{kind}Value" for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TEXTS_OF_NUMBERS = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
_CAMEL_CASE = re.compile(r"(?:[^A-Z_]|_[a-z])*")  # paths that have a name in JSON, from which they can be made again


class Pair(NamedTuple):
    """The seconds and nanoseconds of a Timestamp or Duration."""

    seconds: int
    nanos: int

    @property
    def is_moment(self) -> bool:
        """True for what a Timestamp may have; its year is not looked at."""
        return 0 <= self.nanos < A_SECOND

    @property
    def is_duration(self) -> bool:
        """True for what a Duration may have: both have one sign."""
        have_one_sign = self.seconds == 0 or self.nanos == 0 or (self.seconds < 0) == (self.nanos < 0)
        return have_one_sign and abs(self.nanos) < A_SECOND

    @property
    def total(self) -> int:
        """All in nanoseconds."""
        return self.seconds * A_SECOND + self.nanos


def is_map(field: FieldDescriptor) -> bool:
    """True for a field that is a map."""
    return field.type in MESSAGES and bool(field.message_type.GetOptions().map_entry)


def is_repeated(field: FieldDescriptor) -> bool:
    """True for a field with several values."""
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)  # protobuf before 6.31


def is_pair(message: Descriptor) -> bool:
    """True for Timestamp and Duration, unless a schema has others of its own under these names."""
    return message.full_name in (TIMESTAMP, DURATION) and [(one.name, one.type) for one in message.fields] == [
        ("seconds", FieldDescriptor.TYPE_INT64),
        ("nanos", FieldDescriptor.TYPE_INT32),
    ]


def is_wrapper(message: Descriptor) -> bool:
    """True for a wrapper of a value without parts, unless a schema has another of its own under its name."""
    fields = list(message.fields)
    return (
        message.full_name in _WRAPPERS
        and len(fields) == 1
        and fields[0].name == "value"
        and fields[0].type not in (*MESSAGES, FieldDescriptor.TYPE_ENUM)
        and not is_repeated(fields[0])
        and not fields[0].has_presence
    )


def name_of(field: FieldDescriptor) -> str:
    """Returns the name of a field in JSON and in columns."""
    return f"[{field.full_name}]" if field.is_extension else str(field.name)


def fields_of(message: Descriptor) -> list[FieldDescriptor]:
    """Returns the fields of a message, its extensions after the others in the order of their numbers."""
    extensions = message.file.pool.FindAllExtensions(message) if message.is_extendable else ()
    return [*message.fields, *sorted(extensions, key=lambda field: field.number)]


def key_text(key: Any) -> str:
    """Returns a map's key as JSON has it."""
    return key if isinstance(key, str) else str(key).lower()


def base64_text(data: bytes) -> str:
    """Returns bytes as JSON has them."""
    return base64.b64encode(data).decode()


def discard_unknown(message: Any) -> int:
    """Takes the fields that its type has not out of a message, and returns their bytes."""
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return int(size - message.ByteSize())


class Showing:
    """Makes functions that show messages of a pool. `shows_absent`: with the fields that are not there and have a value
    nevertheless. `provide` adds a file of Google's own types to the pool if one has a name.
    """

    def __init__(self, pool: Any, provide: Callable[[str], bool], *, shows_absent: bool) -> None:
        self._pool, self._provide, self._shows_absent = pool, provide, shows_absent
        self._known: dict[str, Show] = {}
        self._own: Mapping[str, Show] = {
            TIMESTAMP: _timestamp,
            DURATION: _duration,
            ANY: self._any,
            f"{OWN}FieldMask": _field_mask,
            f"{OWN}Struct": _struct,
            f"{OWN}Value": _value,
            f"{OWN}ListValue": _list_value,
        }

    def of(self, message: Descriptor) -> Show:
        """Returns what shows messages of a type."""
        name = message.full_name
        if name in self._own:
            return self._own[name]
        if name not in self._known:
            self._known[name] = lambda value, remarks: self._known[name](value, remarks)  # for messages in themselves
            self._known[name] = self._wrapper(message) if is_wrapper(message) else self._message(message)
        return self._known[name]

    def _message(self, message: Descriptor) -> Show:
        forms = {field.number: (name_of(field), self.of_field(field)) for field in fields_of(message)}
        absent = [] if not self._shows_absent else [one for one in message.fields if not one.has_presence]
        defaults = [(str(one.name), *_default(one)) for one in absent]

        def show(value: Any, remarks: Remarks) -> Any:
            row = {}
            for field, content in value.ListFields():
                name, of_field = forms[field.number]
                row[name] = content if of_field is None else of_field(content, remarks)
            for name, default, make in defaults:
                if name not in row:
                    row[name] = default if make is None else make()
            return row

        return show

    def of_field(self, field: FieldDescriptor) -> Show | None:
        """Returns what shows the value of a field, which is there; None: it is JSON already."""
        if is_map(field):
            of_value = self._single(field.message_type.fields_by_name["value"])
            if of_value is None:
                return lambda entries, _remarks: {key_text(key): entries[key] for key in entries}
            return lambda entries, remarks: {key_text(key): of_value(entries[key], remarks) for key in entries}
        single = self._single(field)
        if not is_repeated(field):
            return single
        if single is None:
            return lambda values, _remarks: list(values)
        return lambda values, remarks: [single(one, remarks) for one in values]

    def _single(self, field: FieldDescriptor) -> Show | None:
        if field.type in MESSAGES:
            return self.of(field.message_type)
        return _scalar(field)

    def _wrapper(self, message: Descriptor) -> Show:
        of_value = _scalar(message.fields_by_name["value"])
        if of_value is None:
            return lambda value, _remarks: value.value
        return lambda value, remarks: of_value(value.value, remarks)

    def _any(self, value: Any, remarks: Remarks) -> Any:
        url, data = value.type_url, value.value
        if not url and not data:
            return {}
        name = url.rpartition("/")[2]
        try:
            kind = self._type(name)
            within = message_factory.GetMessageClass(kind).FromString(data)
        except (KeyError, DecodeError) as error:
            why = "not a type of its schema" if isinstance(error, KeyError) else "not what its bytes are"
            remarks.add(f"{name or 'nothing'} is {why}, so that an Any has only its bytes")
            return {"@type": url, "value_b64": base64_text(data)}
        unknown = discard_unknown(within)
        if unknown:
            remarks.add(f"{unknown} bytes are fields that {name} does not have")
        form = self.of(kind)(within, remarks)
        if name in self._own or is_wrapper(kind):
            return {"@type": url, "value": form}
        return {"@type": url, **form}

    def _type(self, name: str) -> Descriptor:
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            if not self._provide(name):
                raise
            return self._pool.FindMessageTypeByName(name)


def _default(field: FieldDescriptor) -> tuple[Any, Callable[[], Any] | None]:
    """Returns what is shown of a field that is not there, or what makes it anew each time."""
    if is_repeated(field):
        return None, dict if is_map(field) else list
    show = _scalar(field)
    return (field.default_value if show is None else show(field.default_value, Remarks())), None


def _scalar(field: FieldDescriptor) -> Show | None:
    """Returns what shows a value without parts; None: as it is."""
    if field.enum_type is not None:
        if field.enum_type.full_name == f"{OWN}NullValue":
            return lambda _value, _remarks: None
        names = {number: symbol.name for number, symbol in field.enum_type.values_by_number.items()}
        return lambda value, _remarks: names.get(value, value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value, _remarks: base64_text(value)
    if field.cpp_type in _TEXTS_OF_NUMBERS:
        return lambda value, _remarks: str(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return _double
    return _float if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT else None


def _double(value: float, _remarks: Remarks) -> float | str:
    if value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _float(value: float, remarks: Remarks) -> float | str:
    """Returns the number with the fewest digits that is this one in 32 bits."""
    if value - value != 0:
        return _double(value, remarks)
    exact = struct.pack("<f", value)
    shorter = (float(f"{value:.{digits}g}") for digits in range(6, 9))
    return next((number for number in shorter if struct.pack("<f", number) == exact), float(f"{value:.9g}"))


# --- Google's own types ---------------------------------------------------------------------------------------


def _fraction(nanos: int) -> str:
    if not nanos:
        return ""
    digits = 3 if nanos % 10**6 == 0 else 6 if nanos % 10**3 == 0 else 9
    return f".{nanos // 10 ** (9 - digits):0{digits}}"


def moment_text(pair: Pair) -> str:
    """Returns a Timestamp, of any year, as JSON has it, with 3 digits below seconds where JSON may have none."""
    return f"{iso_moment(pair.total, A_SECOND)}Z"


def _timestamp(value: Any, remarks: Remarks) -> Any:
    pair = Pair(value.seconds, value.nanos)
    return moment_text(pair) if pair.is_moment else _parts(pair, "Timestamp", remarks)


def _duration(value: Any, remarks: Remarks) -> Any:
    pair = Pair(value.seconds, value.nanos)
    if not pair.is_duration:
        return _parts(pair, "Duration", remarks)
    sign = "-" if pair.total < 0 else ""
    return f"{sign}{abs(pair.seconds)}{_fraction(abs(pair.nanos))}s"


def _parts(pair: Pair, name: str, remarks: Remarks) -> dict[str, Any]:
    remarks.add(wrong_pair(pair, name))
    return {"seconds": str(pair.seconds), "nanos": pair.nanos}


def wrong_pair(pair: Pair, name: str) -> str:
    """Returns the sentence for what is not a Timestamp or Duration."""
    return f"{pair.seconds} seconds and {pair.nanos} nanoseconds are not a valid {name}"


def _field_mask(value: Any, _remarks: Remarks) -> str:
    return ",".join(_mask_paths(value.paths))


def _mask_paths(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        is_told = _CAMEL_CASE.fullmatch(path)
        yield re.sub("_([a-z])", lambda match: match[1].upper(), path) if is_told else path


def _struct(value: Any, remarks: Remarks) -> dict[str, Any]:
    fields = value.fields
    return {key: _value(fields[key], remarks) for key in fields}


def _list_value(value: Any, remarks: Remarks) -> list[Any]:
    return [_value(one, remarks) for one in value.values]


def _value(value: Any, remarks: Remarks) -> Any:
    which = value.WhichOneof("kind")
    if which is None or which == "null_value":
        return None
    content = getattr(value, which)
    if which == "struct_value":
        return _struct(content, remarks)
    if which == "list_value":
        return _list_value(content, remarks)
    return _double(content, remarks) if which == "number_value" else content
