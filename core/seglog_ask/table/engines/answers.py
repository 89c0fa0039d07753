"""An engine's answer, given as Arrow batches, as rows of text or of JSON values.

Each kind of value has one form, at any depth (`forms`):

| kind | form |
|---|---|
| whole numbers of any size, booleans | numbers, true and false |
| floating-point numbers | numbers; the texts "NaN", "Infinity", "-Infinity" |
| decimal numbers | text with every digit of their scale: JSON's readers take numbers for floating-point ones |
| timestamps | RFC 3339, with Z if they are instants; other years as in Java: `+10000-01-01T00:00:00.000Z` |
| dates, times of day | ISO 8601; infinity and -infinity, which DuckDB has |
| bytes | text, with `\\xNN` for what is not UTF-8 |
| structs, maps | objects; a map of which two keys have one text is a list of objects of key and value |
| lists, arrays | lists |
| unions, enums | the value |

What Arrow does not hold exactly (intervals, bits, times with a zone) the engine gives as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seglog.layout import INT32_MAX, INT64_MAX
from seglog_ask.table.values.columns import readable_text
from seglog_ask.values.java_times import iso_date, iso_moment, iso_time_of_day

_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_HUGE = {"hugeint": True, "uhugeint": False}  # integers of 128 bits, by DuckDB's name; whether they are signed


class Answer:
    """The columns and rows of an answer; rows are made while they are iterated over, once. `count` is their number.

    `is_plan`: the answer explains a query; its last column has texts of several lines.
    """

    def __init__(self, reader: pa.RecordBatchReader, *, is_plan: bool = False) -> None:
        self._reader, self.count, self.is_plan = reader, 0, is_plan
        self.names = _distinct(reader.schema.names)
        self.right = [i for i, kind in enumerate(reader.schema.types) if _is_number(kind)]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the batches, with distinct column names."""
        for batch in self._reader:
            self.count += batch.num_rows
            yield batch.rename_columns(self.names)

    @property
    def schema(self) -> pa.Schema:
        """The schema of `batches`."""
        return pa.schema([field.with_name(name) for field, name in zip(self._reader.schema, self.names, strict=True)])

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yields rows of values that JSON knows: None, bool, int, float, str, lists and dicts."""
        for batch in self.batches():
            yield from zip(*map(forms, batch.columns), strict=True)


def _distinct(names: list[str]) -> list[str]:
    """Returns the names, with a number after those that were there before."""
    found: list[str] = []
    for name in names:
        shown, number = name, 1
        while shown in found:
            shown, number = f"{name}_{number}", number + 1
        found.append(shown)
    return found


def _is_number(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or (isinstance(kind, pa.OpaqueType) and kind.type_name in _HUGE)
    )


# --- forms of values ------------------------------------------------------------------------------------------


def forms(array: pa.Array) -> list[Any]:
    """Returns the values of an array as values that JSON knows. Raises TypeError for a type that no engine gives."""
    kind = array.type
    for is_kind, made in _FORMS:
        if is_kind(kind):
            return made(array)
    raise TypeError(f"answers have no form for {kind}")


def _each(array: pa.Array, form: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else form(value) for value in array.to_pylist()]


def _as_they_are(array: pa.Array) -> list[Any]:
    return list(array.to_pylist())


def _floats(array: pa.Array) -> list[Any]:
    values = _as_they_are(array)
    if pc.all(pc.is_finite(array)).as_py() is not False:
        return values
    return [value if value is None or abs(value) < float("inf") else _not_finite(value) for value in values]


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _decimals(array: pa.Array) -> list[Any]:
    return _each(array, "{:f}".format)


def _timestamps(array: pa.Array) -> list[Any]:
    form = partial(iso_moment, a_second=_A_SECOND[array.type.unit])
    zone = "" if array.type.tz is None else "Z"
    return _each(array.cast(pa.int64()), lambda number: _infinity(number, INT64_MAX) or form(number) + zone)


def _dates(array: pa.Array) -> list[Any]:
    return _each(array.cast(pa.int32()), lambda days: _infinity(days, INT32_MAX) or iso_date(days))


def _infinity(number: int, most: int) -> str:
    """Returns the name of an infinite date or time; an empty text for others."""
    return "infinity" if number == most else "-infinity" if number == -most else ""


def _times(array: pa.Array) -> list[Any]:
    numbers = array.cast(pa.int64() if pa.types.is_time64(array.type) else pa.int32())
    return _each(numbers, partial(iso_time_of_day, a_second=_A_SECOND[array.type.unit]))


def _bytes(array: pa.Array) -> list[Any]:
    return _as_they_are(readable_text(array.cast(pa.binary())))


def _structs(array: pa.StructArray) -> list[Any]:
    names = [field.name for field in array.type]
    columns = [forms(array.field(i)) for i in range(len(names))]
    rows = zip(*columns, strict=True) if columns else ((),) * len(array)
    valid = array.is_valid().to_pylist()
    return [dict(zip(names, row, strict=True)) if there else None for there, row in zip(valid, rows, strict=True)]


def _lists(array: pa.Array) -> list[Any]:
    return _cut(forms(array.flatten()), pc.list_value_length(array).to_pylist())


def _maps(array: pa.MapArray) -> list[Any]:
    offsets = array.offsets.to_pylist()
    first, count = offsets[0], offsets[-1] - offsets[0]
    keys, values = (forms(side.slice(first, count)) for side in (array.keys, array.items))
    pairs = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
    ends = zip(array.is_valid().to_pylist(), offsets, offsets[1:], strict=False)
    return [_object(pairs[start - first : end - first]) if there else None for there, start, end in ends]


def _object(pairs: list[dict[str, Any]]) -> Any:
    found = {_text(pair["key"]): pair["value"] for pair in pairs}
    return found if len(found) == len(pairs) else pairs


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(values: list[Any], lengths: list[int | None]) -> list[Any]:
    """Returns lists of so many values each; None for each length that is None."""
    found, at = list[Any](), 0
    for length in lengths:
        found.append(None if length is None else values[at : at + length])
        at += length or 0
    return found


def _unions(array: pa.UnionArray) -> list[Any]:
    members = [forms(array.field(i)) for i in range(array.type.num_fields)]
    return [members[code][row] for row, code in enumerate(array.type_codes.to_pylist())]


def _extensions(array: pa.ExtensionArray) -> list[Any]:
    kind = array.type
    if isinstance(kind, pa.OpaqueType) and kind.type_name in _HUGE:
        signed = _HUGE[kind.type_name]
        return _each(array.storage, lambda data: int.from_bytes(data, "little", signed=signed))
    return _as_they_are(array) if isinstance(kind, pa.Bool8Type) else forms(array.storage)


_FORMS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], list[Any]]], ...] = (
    (lambda kind: isinstance(kind, pa.BaseExtensionType), _extensions),
    (pa.types.is_integer, _as_they_are),
    (pa.types.is_string, _as_they_are),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_boolean, _as_they_are),
    (pa.types.is_null, _as_they_are),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), _bytes),
    (pa.types.is_dictionary, lambda array: forms(array.dictionary_decode())),
    (pa.types.is_date32, _dates),
    (pa.types.is_time, _times),
    (pa.types.is_struct, _structs),
    (pa.types.is_map, _maps),
    (lambda kind: pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind), _lists),
    (pa.types.is_union, _unions),
)
