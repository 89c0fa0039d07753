"""Columns of types of values for tests: planned of schemas that are known, and made of records in a log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import seglog
from seglog_ask.table.values.columns import Part, Place
from seglog_ask.table.values.typed import Shown, TypedColumn
from seglog_ask.values.column_types import ColumnType, column_type
from seglog_ask.values.forms import Forms, Tally
from seglog_ask.values.schemas import KnownSchemas, Schema
from tests.support.schema_registry import write_log


def known(*schemas: tuple[int, Any, str]) -> KnownSchemas:
    """Versions of the subject t-value, by id."""
    source = KnownSchemas("the test")
    for version, (number, schema, kind) in enumerate(schemas, 1):
        text = schema if isinstance(schema, str) else json.dumps(schema)
        source.add(Schema(kind, text, number, "t-value", version))
    return source


def planned(*schemas: tuple[int, Any, str]) -> ColumnType:
    found = column_type(Forms("auto", "registry", known(*schemas)), "value", "t", [])
    assert found is not None
    return found


def part_of(values: Sequence[bytes | None], directory: Path) -> Part:
    """The records with these values."""
    (part,) = parts_of(values, directory)
    return part


def parts_of(values: Sequence[bytes | None], directory: Path) -> list[Part]:
    """The same for many values, which may have several buffers."""
    write_log(directory / "t-0", [seglog.Record(one) for one in values])
    with seglog.open_log(directory / "t-0") as log:
        return [Part(Place("t", 0, ""), records) for records in log.columns()]


class ByKernel(TypedColumn):
    """A column all of whose values a kernel decodes."""

    def _slowly(self, part: Part, rows: Any) -> Any:
        raise AssertionError(f"{len(rows)} values are not decoded by the kernel: {part.chosen(rows).spans('value')}")


def columns_of(column: ColumnType, tally: Tally, values: Sequence[bytes], directory: Path) -> Shown:
    """The columns of values, all together, by the kernel if it decodes the schema."""
    made = ByKernel if column.written[0].described.program is not None else TypedColumn
    shown = [made(column, tally).of(part) for part in parts_of(values, directory)]
    return Shown(*(pa.concat_arrays(arrays) for arrays in zip(*shown, strict=True)))
