"""Decodes Avro with fastavro (extra `schemas`) to JSON: the one module that knows this library.

Its reader in C decodes; that in Python only recursive schemas, as it ends with an error where the one in C ends the
process. A value must be consumed to its end. What both give becomes JSON in `avro_forms`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro
from fastavro import _read, _read_py
from fastavro.schema import fingerprint as crc_of
from fastavro.schema import to_parsing_canonical_form

from seglog_ask.values.avro_forms import converter, readable
from seglog_ask.values.avro_schema import PRIMITIVES, safe_schema
from seglog_ask.values.fast_json import json_writer
from seglog_ask.values.schemas import MOST_NODES, NotDecodedError, Reader, RemarkedText, Remarks, Schema, first_line
from seglog_ask.values.shapes import Shape

_FLOATS = [kind for one in ("float", "double") for kind in (one, ["null", one], [one, "null"])]
_CANONICAL = ("name", "namespace", "type", "fields", "symbols", "items", "values", "size")
_STRICT, _REPLACING = ({"handle_unicode_errors": how} for how in ("strict", "replace"))


def reader_of(schema: Schema, references: Mapping[str, Schema], shape: Shape | None = None) -> Reader:
    """Returns the reader of a schema's values, which are JSON; of a shape, JSON of the values of its columns
    (`ColumnType.reader`).

    Raises NotDecodedError for a schema that is not decoded by.
    """
    safe = safe_schema(schema, references)
    names: dict[str, Any] = {"writer": {}, "reader": {}}
    try:
        parsed = fastavro.parse_schema(readable(safe.definition), names["writer"])
    except Exception as error:
        raise NotDecodedError(f"fastavro refuses it: {_reason(error)}") from error
    convert = converter(safe.definition, shape)
    write = json_writer(_fields_with_floats(safe.definition)) if shape is None else json.dumps
    # fastavro's own, the same from 1.9 to 1.13: its public reader looks at the schema anew for each value
    in_c, in_python = _read._read_data, _read_py.schemaless_reader

    def read(file: BytesIO, options: dict[str, str]) -> Any:
        if safe.recursive:
            return in_python(file, parsed, None, **options)
        return in_c(file, parsed, names, None, options)

    def decode(data: bytes) -> str | RemarkedText:
        file, remarks = BytesIO(data), Remarks()
        try:
            value = read(file, _STRICT)
        except UnicodeDecodeError:
            file.seek(0)
            value = read(file, _REPLACING)  # as Java reads it
            remarks.add("a text in it is not UTF-8, and has \ufffd in place of some bytes")
        left = len(data) - file.tell()
        if left:
            raise NotDecodedError(f"{left} bytes follow the value")
        return remarks.on(write(value if convert is None else convert(value, remarks)))

    cost = safe.cost
    most_bytes = max(MOST_NODES - cost.fixed, 0) // cost.per_byte if cost.per_byte else None
    return Reader(decode, "value of its schema", most_bytes, _reason)


def fingerprint(schema: Schema) -> bytes:
    """Returns the CRC-64-AVRO of a schema's canonical form, as single-object encoding has it.

    Raises NotDecodedError for a schema that is not decoded by, or that refers to others.
    """
    safe_schema(schema, {})
    text = schema.text.strip()
    try:
        form = to_parsing_canonical_form(text if text in PRIMITIVES else _bare(json.loads(text)))
    except Exception as error:
        raise NotDecodedError(f"fastavro refuses it: {_reason(error)}") from error
    return bytes.fromhex(crc_of(form, "CRC-64-AVRO"))


def _bare(schema: Any) -> Any:
    """Returns a schema without what its canonical form has not: fastavro would check a logical type that is ignored."""
    if isinstance(schema, list):
        return [_bare(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _bare(one) for name, one in schema.items() if name in _CANONICAL}


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
