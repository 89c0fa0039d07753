"""Writes records as Parquet through Arrow (extra `arrow`); besides `spark` the engine's only module that needs pyarrow.

Columns: topic, partition, offset, timestamp (UTC, milliseconds, null for magic 0), timestamp_type, key, value, headers
(list of key and value). A row group holds the records of about ROW_GROUP_BYTES.
"""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seglog import layout
from seglog.format.columns import Records
from seglog.kernels import gather
from seglog.look.dump.internal_topics import Decoder, decoded
from seglog.model import NO_TIMESTAMP, TimestampType, TopicPartition

ROW_GROUP_BYTES = 32 << 20

_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("timestamp_type", pa.string(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("element", _HEADER))),
    ]
)


class ParquetWriter:
    """Writes one Parquet file to `sink`, sequentially; never reads from it."""

    def __init__(self, sink: Any) -> None:
        self._output = _Output(sink)
        self._out = pa.PythonFile(self._output, mode="w")
        self._writer = pq.ParquetWriter(self._out, SCHEMA, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def take(self, key: TopicPartition, records: Records, decoder: Decoder | None) -> None:
        """Adds the records of a chunk."""
        records = records if decoder is None else decoded(records, decoder)
        for first, stop in _cuts(records.rows):
            part = Records(records.arena, records.rows[first:stop], records.batches, records.status)
            batch = _batch(key, part)
            self._waiting.append(batch)
            self._bytes += batch.nbytes
            if self._bytes >= ROW_GROUP_BYTES:
                self._flush()

    def close(self) -> None:
        """Writes the remaining records and the footer."""
        self._flush()
        self._writer.close()
        self._out.close()

    def abandon(self) -> None:
        """Leaves the end unwritten: Arrow would write it on garbage collection, into a closed file."""
        self._output.sink = None

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, SCHEMA)
            self._writer.write_table(table, row_group_size=max(1, len(table)))
        self._waiting, self._bytes = [], 0


class _Output(io.RawIOBase):
    """The sink as a file for pyarrow; discards bytes once `sink` is None."""

    def __init__(self, sink: Any) -> None:
        self.sink: Any = sink

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self.sink is not None:
            self.sink.write(view)
        return view.nbytes


def _batch(key: TopicPartition, records: Records) -> pa.RecordBatch:
    rows, count = records.rows, len(records)
    stamps = np.ascontiguousarray(rows["timestamp"])
    columns = [
        pa.array([_text(key.topic)] * count, pa.string()),
        pa.array(np.full(count, key.partition, dtype=np.int32)),
        pa.array(np.ascontiguousarray(rows["offset"])),
        pa.array(stamps, mask=stamps == NO_TIMESTAMP).cast(pa.timestamp("ms", "UTC")),
        _timestamp_types(records),
        _spans(records.arena, rows["key_position"], rows["key_size"]),
        _spans(records.arena, rows["value_position"], rows["value_size"]),
        _headers(records),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _cuts(rows: np.ndarray) -> list[tuple[int, int]]:
    """Splits rows into runs (first, stop) whose keys and values stay far below the limit of an Arrow array."""
    ends = np.cumsum(rows["size"], dtype=np.int64) // ROW_GROUP_BYTES
    starts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(rows)]
    return list(pairwise(starts))


def _spans(arena: np.ndarray, positions: np.ndarray, sizes: np.ndarray) -> pa.Array:
    count = len(positions)
    out = np.empty(int(np.maximum(sizes, 0).sum(dtype=np.int64)), dtype=np.uint8)
    offsets, validity = np.empty(count + 1, dtype=np.int32), np.zeros((count + 7) >> 3, dtype=np.uint8)
    nulls = gather.gather_spans(arena, positions, sizes, out, offsets, validity)
    buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), count, buffers, nulls)


def _timestamp_types(records: Records) -> pa.Array:
    types = ((records.batches["attributes"] & layout.TIMESTAMP_TYPE_MASK) != 0).astype(np.int32)
    types[records.batches["magic"] == 0] = TimestampType.NONE
    labels = pa.array([one.label for one in TimestampType], pa.string())
    return labels.take(pa.array(types[records.rows["batch"]] - int(TimestampType.NONE)))


def _headers(records: Records) -> pa.Array:
    kind = SCHEMA.field("headers").type
    if not records.rows["header_count"].any():
        return pa.nulls(len(records), kind)
    lists = [
        [{"key": _text(header.key), "value": header.value} for header in records.headers(i)] if count else None
        for i, count in enumerate(records.rows["header_count"])
    ]
    return pa.array(lists, kind)


def _text(text: str) -> str:
    """Returns valid UTF-8 for Arrow's strings: other bytes become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
