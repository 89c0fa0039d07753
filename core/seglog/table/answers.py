"""An engine's answer, given as Arrow batches, as rows of text or of JSON values.

Timestamps become RFC 3339 in UTC; bytes become text, with `\\xNN` for what is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seglog.table.columns import readable_text
from seglog.units import format_time

_IN_SECONDS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


class Answer:
    """The columns and rows of an answer; rows are made while they are iterated over, once. `count` is their number."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader, self.count = reader, 0
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
            yield from zip(*(_values(column) for column in batch.columns), strict=True)


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
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        parts = _IN_SECONDS[kind.unit]
        numbers = column.cast(pa.int64()).to_pylist()
        return [None if number is None else _time_text(number, parts) for number in numbers]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        column = readable_text(column.cast(pa.binary()))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind):
        return list(column.to_pylist())
    if pa.types.is_dictionary(kind):
        return _values(pc.cast(column, kind.value_type))
    return [_plain(value) for value in column.to_pylist()]


def _time_text(number: int, parts: int) -> str:
    text = format_time(number * 1000 // parts)
    below = number % (parts // 1000) if parts > 1000 else 0
    return text[:-1] + f"{below:0{len(str(parts // 1000)) - 1}d}Z" if below and text.endswith("Z") else text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime | date | time | timedelta):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
