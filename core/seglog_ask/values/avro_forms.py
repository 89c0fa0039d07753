"""What fastavro's values become: JSON, or the values of a column of a shape.

fastavro reads by a schema without logical types (`readable`), so that nothing is registered in tables of its own. What
JSON lacks is made of its values afterwards (`converter`): bytes as Avro's own JSON encoding writes them (a character
for each byte), decimals as text, dates and times in ISO 8601. Columns have numbers for dates and times, and null for
what they cannot hold. What is not shown as it should be is remarked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from seglog.escaping import json_value
from seglog.layout import INT64_MAX
from seglog_ask.values.avro_schema import PREFIX, PRIMITIVES
from seglog_ask.values.avro_texts import big_decimal_text, decimal_text, duration_text, uuid_text
from seglog_ask.values.java_times import iso_date, iso_moment, iso_time_of_day
from seglog_ask.values.schemas import Remarks
from seglog_ask.values.shapes import TEXT, Leaf, ListOf, MapOf, Shape, Struct

Convert: TypeAlias = Callable[[Any, Remarks], Any]

A_SECOND = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_A_DAY = 86400
_UNAMBIGUOUS = frozenset(PRIMITIVES) - {"bytes"}  # branches of a union that need no conversion


def readable(definition: Any) -> Any:
    """Returns a safe schema for fastavro. Each branch of a union whose values would not tell it is the only field of a
    record, which takes no bytes: its name has the number of the branch.
    """
    return _Readable().of(definition)


class _Readable:
    def __init__(self) -> None:
        self._wrapped = 0

    def of(self, definition: Any) -> Any:
        if isinstance(definition, list):
            branches = [self.of(branch) for branch in definition]
            if not _is_told_apart(definition):
                return branches
            return [self._as_field(i, branch) for i, branch in enumerate(branches)]
        if isinstance(definition, str):
            return definition
        copy = {
            name: one for name, one in definition.items() if name != "logicalType" and not name.startswith("seglog")
        }
        for part in ("items", "values"):
            if part in copy:
                copy[part] = self.of(copy[part])
        if "fields" in copy:
            copy["fields"] = [{"name": one["name"], "type": self.of(one["type"])} for one in copy["fields"]]
        return copy

    def _as_field(self, number: int, branch: Any) -> Any:
        if branch == "null":
            return branch
        self._wrapped += 1
        name = f"{PREFIX.replace('-', '_')}branch_{self._wrapped}"
        return {"type": "record", "name": name, "fields": [{"name": f"b{number}", "type": branch}]}


def _is_told_apart(union: list[Any]) -> bool:
    """True if the branches of a union are wrapped: there are several, and not all have values as they are."""
    branches = [branch for branch in union if branch != "null"]
    return len(branches) > 1 and not all(isinstance(one, str) and one in _UNAMBIGUOUS for one in branches)


def converter(definition: Any, shape: Shape | None = None) -> Convert | None:
    """Returns what makes JSON of a value that was read by `readable(definition)`, or the value of a column of a shape;
    None if it is that already.
    """
    return _Converting().of(definition, shape, "")


class _Converting:
    """Makes converters. Paths of fields are for remarks."""

    def __init__(self) -> None:
        self._definitions: dict[str, Any] = {}
        self._of_name: dict[
            str, Convert | None
        ] = {}  # for JSON; those in the making find themselves at their first use

    def of(self, definition: Any, shape: Shape | None, path: str) -> Convert | None:
        """Returns the converter of a type; of one that is named, after its definition."""
        if isinstance(shape, Leaf) and shape == TEXT:
            return _as_text(self.of(definition, None, path))
        if isinstance(definition, list):
            return self._of_union(definition, shape, path)
        if isinstance(definition, str):
            if definition in PRIMITIVES:
                return _characters if definition == "bytes" else None
            if shape is None:
                return self._mentioned(definition)
            definition = self._definitions[definition]
        name = definition.get("name")
        if name is None or shape is not None:
            if name is not None:
                self._definitions[name] = definition
            return self._of_definition(definition, shape, path)
        self._definitions[name] = definition
        self._of_name[name] = lambda value, remarks: self._converted(name, value, remarks)
        self._of_name[name] = made = self._of_definition(definition, shape, path)
        return made

    def _mentioned(self, name: str) -> Convert | None:
        if name not in self._of_name:  # so far it was only in columns
            return self.of(self._definitions[name], None, name)
        return self._of_name[name]

    def _converted(self, name: str, value: Any, remarks: Remarks) -> Any:
        convert = self._of_name[name]
        return value if convert is None else convert(value, remarks)

    def _of_union(self, union: list[Any], shape: Shape | None, path: str) -> Convert | None:
        if not _is_told_apart(union):
            convert = next((self.of(branch, shape, path) for branch in union if branch != "null"), None)
            return None if convert is None else _optional(convert)
        branches = {f"b{i}": self.of(branch, shape, path) for i, branch in enumerate(union) if branch != "null"}

        def of_branch(value: Any, remarks: Remarks) -> Any:
            if value is None:
                return None
            ((name, one),) = value.items()
            convert = branches[name]
            return one if convert is None else convert(one, remarks)

        return of_branch

    def _of_definition(self, definition: Mapping[str, Any], shape: Shape | None, path: str) -> Convert | None:
        kind = definition["type"]
        if kind == "record":
            return self._of_record(definition, shape, path)
        if kind == "array":
            item = self.of(definition["items"], shape.item if isinstance(shape, ListOf) else None, f"{path}[]")
            return None if item is None else lambda value, remarks: [item(one, remarks) for one in value]
        if kind == "map":
            of_one = self.of(definition["values"], shape.value if isinstance(shape, MapOf) else None, f"{path}[]")
            if of_one is None:
                return None
            return lambda value, remarks: {name: of_one(one, remarks) for name, one in value.items()}
        return _of_leaf(definition, shape if isinstance(shape, Leaf) else None, path)

    def _of_record(self, definition: Mapping[str, Any], shape: Shape | None, path: str) -> Convert | None:
        within = f"{path}." if path else ""
        # All in the order of the schema, in which types come before they are mentioned, maybe in a name's first field
        # of two; of these fastavro gives the last.
        fields = [(str(one["name"]), one["type"]) for one in definition["fields"]]
        if isinstance(shape, Struct):
            children = dict(shape.fields)
            made = {name: self.of(kind, children[name], f"{within}{name}") for name, kind in fields}
            columns = [(name, made.get(name), name in made) for name in children]

            def row(value: Any, remarks: Remarks) -> Any:
                return {
                    name: None if not known else value[name] if convert is None else convert(value[name], remarks)
                    for name, convert, known in columns
                }

            return row
        made = {name: self.of(kind, None, f"{within}{name}") for name, kind in fields}
        needing = [(name, convert) for name, convert in made.items() if convert is not None]

        def record(value: Any, remarks: Remarks) -> Any:
            for name, convert in needing:
                value[name] = convert(value[name], remarks)
            return value

        return record if needing else None


def _optional(convert: Convert) -> Convert:
    return lambda value, remarks: None if value is None else convert(value, remarks)


def _as_text(convert: Convert | None) -> Convert:
    def text(value: Any, remarks: Remarks) -> Any:
        shown = value if convert is None or value is None else convert(value, remarks)
        return shown if shown is None or isinstance(shown, str) else json_value(shown)

    return text


# --- values without parts -----------------------------------------------------------------------------------------


def _characters(data: bytes, _remarks: Remarks) -> str:
    return data.decode("iso-8859-1")


def _of_leaf(definition: Mapping[str, Any], leaf: Leaf | None, path: str) -> Convert:
    """Returns the converter of a type without parts that is not a primitive: for a column of a leaf, or for JSON."""
    logical = definition["logicalType"].removeprefix(PREFIX)
    if logical == "enum":
        return _symbol(definition["seglog_symbols"])
    if logical == "decimal":
        return _decimal(definition["seglog_scale"], leaf, path)
    if logical in _TEXTS:
        return _text(_TEXTS[logical], path)
    if logical == "date":
        return _date if leaf is None else _same
    unit = A_SECOND.get(logical.rpartition("-")[2])
    if unit is None:
        return _characters
    if logical.startswith("time-"):
        return _time(unit, leaf, path)
    return _moment(unit, "" if logical.startswith("local-") else "Z", leaf, path)


_TEXTS: dict[str, Callable[[bytes], str]] = {
    "uuid": uuid_text,
    "duration": duration_text,
    "big-decimal": big_decimal_text,
}


def _remarked(remarks: Remarks, path: str, sentence: str) -> None:
    remarks.add(f"{path}: {sentence}" if path else sentence)


def _same(value: Any, _remarks: Remarks) -> Any:
    return value


def _symbol(symbols: list[str]) -> Convert:
    def shown(number: int, _remarks: Remarks) -> str:
        if not 0 <= number < len(symbols):
            raise ValueError(f"its symbol is number {number} of {len(symbols)}")
        return symbols[number]

    return shown


def _text(text_of: Callable[[bytes], str], path: str) -> Convert:
    def shown(data: bytes, remarks: Remarks) -> str:
        try:
            return text_of(data)
        except ValueError as error:
            _remarked(remarks, path, str(error))
            return data.decode("iso-8859-1")

    return shown


def _decimal(scale: int, leaf: Leaf | None, path: str) -> Convert:
    def shown(data: bytes, remarks: Remarks) -> str | None:
        try:
            return decimal_text(data, scale)
        except ValueError as error:
            _remarked(remarks, path, str(error))
            return data.decode("iso-8859-1") if leaf is None else None

    return shown


def _date(days: int, _remarks: Remarks) -> str:
    return iso_date(days)


def _time(a_second: int, leaf: Leaf | None, path: str) -> Convert:
    def shown(value: int, remarks: Remarks) -> Any:
        if 0 <= value < _A_DAY * a_second:
            return value if leaf is not None else iso_time_of_day(value, a_second)
        _remarked(remarks, path, f"{value} is not a time of day")
        return None if leaf is not None else value

    return shown


def _moment(a_second: int, zone: str, leaf: Leaf | None, path: str) -> Convert:
    if leaf is None:
        return lambda value, _remarks: iso_moment(value, a_second) + zone
    # the column of another unit, as Spark has them
    times, rest = divmod(A_SECOND.get(leaf.kind.rpartition("-")[2], a_second), a_second)
    if times == 1 or rest:
        return _same

    def number(value: int, remarks: Remarks) -> int | None:
        if -INT64_MAX - 1 <= value * times <= INT64_MAX:
            return value * times
        _remarked(remarks, path, f"{iso_moment(value, a_second)}{zone} does not fit {leaf}")
        return None

    return number
