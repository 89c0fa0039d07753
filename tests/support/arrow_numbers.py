"""Values of Arrow's columns for tests, whose dates and times may be beyond those of Python."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def by_numbers(array: pa.Array) -> list[Any]:
    """The values of a column, with numbers for dates and times, of which Python's have not all."""
    return list(array.cast(_numbers(array.type)).to_pylist())


def _numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _numbers(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_numbers(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _numbers(kind.item_type))
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind
