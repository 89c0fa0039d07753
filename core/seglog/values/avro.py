"""Decodes Avro with fastavro (extra `schemas`) to JSON: the one module that knows this library.

Its reader in C decodes; that in Python only recursive schemas, as it ends with an error where the one in C ends the
process. A value must be consumed to its end. Both give values that JSON has: bytes as Avro's own JSON encoding writes
them (a character for each byte), decimals as text, and dates and times in ISO 8601.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import fastavro
from fastavro import _read, _read_py

from seglog.values.avro_schema import PREFIX, safe_schema
from seglog.values.fast_json import json_writer
from seglog.values.schemas import MOST_NODES, NotDecodedError, Reader, Schema, first_line

_FLOATS = [kind for one in ("float", "double") for kind in (one, ["null", one], [one, "null"])]
_OPTIONS = {"handle_unicode_errors": "strict"}
_MOST_DECIMAL_BYTES = 512  # writing a number takes the square of its size
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1)


def reader_of(schema: Schema, references: Mapping[str, Schema], shown: Callable[[Any], str] | None = None) -> Reader:
    """Returns the reader of a schema's values, which are JSON, or the texts that `shown` makes of Python's values.

    Raises NotDecodedError for a schema that is not decoded by.
    """
    safe = safe_schema(schema, references)
    names: dict[str, Any] = {"writer": {}, "reader": {}}
    try:
        parsed = fastavro.parse_schema(safe.definition, names["writer"])
    except Exception as error:
        raise NotDecodedError(f"fastavro refuses it: {_reason(error)}") from error
    write = json_writer(_fields_with_floats(safe.definition)) if shown is None else shown
    # fastavro's own, the same from 1.9 to 1.13: its public reader looks at the schema anew for each value
    read, read_safely = _read._read_data, _read_py.schemaless_reader

    def decode(data: bytes) -> str:
        file = BytesIO(data)
        value = read_safely(file, parsed, None) if safe.recursive else read(file, parsed, names, None, _OPTIONS)
        left = len(data) - file.tell()
        if left:
            raise NotDecodedError(f"{left} bytes follow the value")
        return write(value)

    cost = safe.cost
    most_bytes = max(MOST_NODES - cost.fixed, 0) // cost.per_byte if cost.per_byte else None
    return Reader(decode, "value of its schema", most_bytes, _reason)


def _fields_with_floats(definition: Any) -> tuple[str, ...] | None:
    """Returns the names of a record's fields that are floats; None if there are floats within others, too."""
    fields = definition.get("fields", ()) if isinstance(definition, dict) else ()
    shallow = [field for field in fields if field["type"] in _FLOATS]
    deep = [field for field in fields if field not in shallow] if fields else definition
    text = repr(deep)
    return None if "'float'" in text or "'double'" in text else tuple(field["name"] for field in shallow)


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "it ends early"
    if isinstance(error, RecursionError):
        return "it nests too deeply"
    text = first_line(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# --- logical types --------------------------------------------------------------------------------------------


def _characters(data: bytes, *_schemas: Any) -> str:
    return data.decode("iso-8859-1")


def _decimal(data: bytes, schema: Mapping[str, Any], *_reader: Any) -> str:
    if len(data) > _MOST_DECIMAL_BYTES:
        raise ValueError(f"a decimal number of {len(data)} bytes")
    digits, scale = int.from_bytes(data, "big", signed=True), schema["seglog_scale"]
    if not scale:
        return str(digits)
    text = str(abs(digits)).rjust(scale + 1, "0")
    return f"{'-' if digits < 0 else ''}{text[:-scale]}.{text[-scale:]}"


def _symbol(number: int, schema: Mapping[str, Any], *_reader: Any) -> str:
    symbols: list[str] = schema["seglog_symbols"]
    if not 0 <= number < len(symbols):
        raise ValueError(f"its symbol {number} is none of {len(symbols)}")
    return symbols[number]


def _date(days: int, *_schemas: Any) -> str:
    return datetime.date.fromordinal(days + _EPOCH_DAY).isoformat()


def _time(a_second: int) -> Callable[..., str]:
    digits = len(str(a_second)) - 1

    def shown(value: int, *_schemas: Any) -> str:
        if not 0 <= value < 86400 * a_second:
            raise ValueError(f"{value} is no time of a day")
        seconds, fraction = divmod(value, a_second)
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:0{digits}}"

    return shown


def _timestamp(a_second: int, zone: str) -> Callable[..., str]:
    digits = len(str(a_second)) - 1

    def shown(value: int, *_schemas: Any) -> str:
        seconds, fraction = divmod(value, a_second)
        moment = _EPOCH + datetime.timedelta(seconds=seconds)
        return f"{moment.isoformat()}.{fraction:0{digits}}{zone}"

    return shown


_UNITS = {"millis": 1000, "micros": 1_000_000, "nanos": 1_000_000_000}
# fastavro's tables have a reader for each type and logical type; these names are nobody else's.
_READERS: dict[str, Callable[..., str]] = {
    f"bytes-{PREFIX}bytes": _characters,
    f"fixed-{PREFIX}fixed": _characters,
    f"bytes-{PREFIX}decimal": _decimal,
    f"fixed-{PREFIX}decimal": _decimal,
    f"int-{PREFIX}enum": _symbol,
    f"int-{PREFIX}date": _date,
    f"int-{PREFIX}time-millis": _time(_UNITS["millis"]),
    f"long-{PREFIX}time-micros": _time(_UNITS["micros"]),
    **{f"long-{PREFIX}timestamp-{unit}": _timestamp(size, "Z") for unit, size in _UNITS.items()},
    **{f"long-{PREFIX}local-timestamp-{unit}": _timestamp(size, "") for unit, size in _UNITS.items()},
}
for _table in (_read.LOGICAL_READERS, _read_py.LOGICAL_READERS):
    _table.update(_READERS)
