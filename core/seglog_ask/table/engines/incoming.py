"""Converts rows of Arrow batches to the engine's columns, for who appends them: `append_table` and Spark's writer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglog.errors import AppendError
from seglog.format.builder import columns_of, columns_of_arrays
from seglog.format.columns import Records
from seglog.model import Header, Record

_TAKEN = ("value", "key", "timestamp", "timestamp_ms", "headers")
_LEFT = ("topic", "partition", "offset", "timestamp_type")  # columns of a table that an append gives anew
_SLICE_ROWS, _SLICE_BYTES = 1 << 16, 64 << 20
_PER_MILLISECOND = {"us": 1000, "ns": 1_000_000}


def checked_reader(data: Any) -> pa.RecordBatchReader:
    """Returns a reader of a table of Arrow, pandas or Polars.

    Raises AppendError for something else, a missing column `value`, a column that records do not have, or a type that
    is not bytes or text.
    """
    reader = _reader_of(data)
    _check(reader.schema)
    return reader


def batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yields the rows as batches of limited size, without the columns that an append gives anew."""
    for batch in reader:
        taken = batch.select([name for name in _TAKEN if name in batch.schema.names])
        rows = min(_SLICE_ROWS, max(1, taken.num_rows * _SLICE_BYTES // max(taken.nbytes, 1)))
        for first in range(0, taken.num_rows, rows):
            yield taken.slice(first, rows)


def _reader_of(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if hasattr(data, "collect") and not hasattr(data, "__arrow_c_stream__"):
        data = data.collect()  # Polars' LazyFrame
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    raise AppendError(f"a {type(data).__name__} is not a table: give one of Arrow, pandas (2.2 or later) or Polars")


def _check(schema: pa.Schema) -> None:
    names = [name for name in schema.names if not name.startswith("__index_level_")]
    unknown = [name for name in names if name not in _TAKEN + _LEFT]
    if unknown or "value" not in names:
        what = f"records have no column '{unknown[0]}'" if unknown else "there is no column 'value'"
        raise AppendError(f"{what}: a table to append has value, and may have {', '.join(_TAKEN[1:] + _LEFT)}")
    wrong = [name for name in ("value", "key") if name in names and not _is_bytes(schema.field(name).type)]
    if wrong:
        raise AppendError(
            f"the column '{wrong[0]}' has type {schema.field(wrong[0]).type}; cast it to binary or string"
        )
    if "timestamp" in names and not _is_time(schema.field("timestamp").type):
        kind = schema.field("timestamp").type
        raise AppendError(f"the column 'timestamp' has type {kind}; cast it to a timestamp, or to epoch milliseconds")
    if "timestamp_ms" in names and not pa.types.is_integer(schema.field("timestamp_ms").type):
        raise AppendError(f"the column 'timestamp_ms' has type {schema.field('timestamp_ms').type}; cast it to bigint")


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)
    return any(test(kind) for test in (*tests, pa.types.is_binary_view, pa.types.is_string_view, pa.types.is_null))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind))


def records_of(batch: pa.RecordBatch, now_ms: int) -> Records:
    """Converts rows to columns of the engine. A missing or null timestamp becomes `now_ms`, a null offset -1.

    Without an offset column, offsets are 0.
    """
    names = batch.schema.names
    timestamps = np.full(batch.num_rows, now_ms, dtype=np.int64)
    if "timestamp" in names:
        timestamps = _milliseconds(batch.column("timestamp"), now_ms)
    if "timestamp_ms" in names:  # the number itself, of one that `timestamp` may not hold
        numbers = batch.column("timestamp_ms").cast(pa.int64())
        timestamps = np.where(numbers.is_valid().to_numpy(False), pc.fill_null(numbers, 0).to_numpy(), timestamps)
    if "headers" in names and batch.column("headers").null_count < batch.num_rows:
        records = _with_headers(batch, timestamps)
    else:
        values, value_offsets, null_values = _buffers(batch.column("value"))
        keys, key_offsets, null_keys = _buffers(batch.column("key")) if "key" in names else (None, None, None)
        records = columns_of_arrays(
            values,
            value_offsets,
            timestamps,
            keys=keys,
            key_offsets=key_offsets,
            null_values=null_values,
            null_keys=null_keys,
        )
    if "offset" in names:
        records.rows["offset"] = pc.fill_null(batch.column("offset"), -1).to_numpy()
    return records


def _milliseconds(column: pa.Array, missing: int) -> np.ndarray:
    """Returns timestamps of any unit, or numbers, as epoch milliseconds."""
    unit = column.type.unit if pa.types.is_timestamp(column.type) else "ms"
    if unit == "s":
        column, unit = column.cast(pa.timestamp("ms", column.type.tz)), "ms"
    parts = _PER_MILLISECOND.get(unit, 1)
    numbers = pc.fill_null(column.cast(pa.int64()), missing * parts).to_numpy()
    found: np.ndarray = np.floor_divide(numbers, parts)
    return found


def _buffers(column: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the bytes, n + 1 offsets into them, and the null mask of a binary or string column."""
    plain = column.cast(pa.binary()) if not pa.types.is_binary(column.type) else column
    _, offsets, data = plain.buffers()
    places = np.frombuffer(offsets, dtype=np.int32)[plain.offset : plain.offset + len(plain) + 1]
    held = np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    nulls = plain.is_null().to_numpy(zero_copy_only=False)
    return held[places[0] : places[-1]], (places - places[0]).astype(np.int64), nulls


def _with_headers(batch: pa.RecordBatch, timestamps: np.ndarray) -> Records:
    """Converts row by row: headers are rare, and Arrow's layout of them is not the engine's."""
    keys = batch.column("key").to_pylist() if "key" in batch.schema.names else [None] * batch.num_rows
    found = []
    rows = zip(keys, batch.column("value").to_pylist(), batch.column("headers").to_pylist(), strict=True)
    for (key, value, headers), timestamp in zip(rows, timestamps.tolist(), strict=True):
        listed = tuple(Header(header["key"] or "", header["value"]) for header in headers or ())
        found.append(Record(_bytes(value), _bytes(key), timestamp, listed))
    return columns_of(found)


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
