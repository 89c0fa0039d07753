"""Arrow rows, as Spark hands them to a writer, as columns of the engine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglog.errors import AppendError
from seglog.format.builder import columns_of, columns_of_arrays
from seglog.format.columns import Records
from seglog.model import Header, Record, TopicPartition
from seglog.spark.write_options import WriteOptions


def split_by_partition(
    batch: pa.RecordBatch, options: WriteOptions
) -> Iterator[tuple[TopicPartition, pa.RecordBatch, np.ndarray]]:
    """The rows of each partition, in order, with their places in the batch. AppendError for a row without either."""
    count = batch.num_rows
    if not count:
        return
    topics = batch.column("topic") if "topic" in batch.schema.names else None
    partitions = batch.column("partition") if "partition" in batch.schema.names else None
    for name, column, default in (("topic", topics, options.topic), ("partition", partitions, options.partition)):
        if column is not None and column.null_count and default is None:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise AppendError(f"row {row} of a batch has no {name}, and there is no option {name}")
    codes = np.zeros(count, dtype=np.int64)
    names = [options.topic]
    if topics is not None:
        filled = topics if options.topic is None else pc.fill_null(topics, options.topic)
        encoded = filled.dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    numbers = np.full(count, options.partition, dtype=np.int64)
    if partitions is not None:
        numbers = pc.fill_null(partitions, options.partition).to_numpy().astype(np.int64)
    both = codes << 32 | (numbers & 0xFFFFFFFF)
    for value in np.unique(both).tolist():
        rows = np.flatnonzero(both == value)
        topic = names[value >> 32]
        assert topic is not None  # the schema was checked: a column or the option
        part = batch if len(rows) == count else batch.take(pa.array(rows))
        yield TopicPartition(topic, int(numbers[rows[0]])), part, rows


def records_of(batch: pa.RecordBatch, now_ms: int) -> Records:
    """The rows as columns; a missing or null timestamp is `now_ms`. Offsets are 0 where there is no such column."""
    names = batch.schema.names
    timestamps = np.full(batch.num_rows, now_ms, dtype=np.int64)
    if "timestamp" in names:
        column = batch.column("timestamp")
        micros = pc.fill_null(column.cast(pa.int64()), now_ms * 1000).to_numpy()
        timestamps = np.floor_divide(micros, 1000)
    if "headers" in names and batch.column("headers").null_count < batch.num_rows:
        records = _with_headers(batch, timestamps)
    else:
        records = _plain(batch, timestamps)
    if "offset" in names:
        records.rows["offset"] = pc.fill_null(batch.column("offset"), -1).to_numpy()
    return records


def _plain(batch: pa.RecordBatch, timestamps: np.ndarray) -> Records:
    values, value_offsets, null_values = _buffers(batch.column("value"))
    if "key" not in batch.schema.names:
        return columns_of_arrays(values, value_offsets, timestamps, null_values=null_values)
    keys, key_offsets, null_keys = _buffers(batch.column("key"))
    return columns_of_arrays(
        values,
        value_offsets,
        timestamps,
        keys=keys,
        key_offsets=key_offsets,
        null_values=null_values,
        null_keys=null_keys,
    )


def _buffers(column: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bytes, n + 1 offsets into them, whether each is null) of a binary or string column."""
    plain = column.cast(pa.binary()) if not pa.types.is_binary(column.type) else column
    _, offsets, data = plain.buffers()
    places = np.frombuffer(offsets, dtype=np.int32)[plain.offset : plain.offset + len(plain) + 1]
    held = np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    nulls = plain.is_null().to_numpy(zero_copy_only=False)
    return held[places[0] : places[-1]], (places - places[0]).astype(np.int64), nulls


def _with_headers(batch: pa.RecordBatch, timestamps: np.ndarray) -> Records:
    """Row by row: headers are rare, and have no layout of their own in Arrow that would do."""
    keys = batch.column("key").to_pylist() if "key" in batch.schema.names else [None] * batch.num_rows
    found = []
    rows = zip(keys, batch.column("value").to_pylist(), batch.column("headers").to_pylist(), strict=True)
    for (key, value, headers), timestamp in zip(rows, timestamps.tolist(), strict=True):
        listed = tuple(Header(header["key"] or "", header["value"]) for header in headers or ())
        found.append(Record(_bytes(value), _bytes(key), timestamp, listed))
    return columns_of(found)


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
