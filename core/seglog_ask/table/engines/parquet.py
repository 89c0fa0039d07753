"""Writes records as Parquet through Arrow (extra `arrow`).

The columns are those of a table (`values.columns`), timestamp_ms and timestamp_type; those of decoded keys and values
are those of `values.valued`. A row group holds the records of about ROW_GROUP_BYTES. Offsets and timestamps are stored
as differences; keys and values without dictionaries, which would cost twice the time for repeating keys and pay for few
topics. What readers may seek by has statistics.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seglog.format.columns import SIDES, Records, Side
from seglog.model import TopicPartition
from seglog_ask.table.values.columns import ColumnBuilder, outputs_of
from seglog_ask.table.values.typed import TypedColumn
from seglog_ask.table.values.valued import valued_outputs
from seglog_ask.values.forms import Values

ROW_GROUP_BYTES = 32 << 20

_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_ms", "timestamp_type", "key", "value", "headers")
_DICTIONARIES = ["topic", "partition", "timestamp_type", "headers.list.element.key"]
_STATISTICS = ["topic", "partition", "offset", "timestamp", "timestamp_type", "key"]  # nobody seeks by bytes
_DIFFERENCES = dict.fromkeys(("offset", "timestamp", "timestamp_ms"), "DELTA_BINARY_PACKED")


class ParquetWriter:
    """Writes one Parquet file to `sink`, sequentially; never reads from it. `values` decodes keys and values: those of
    `typed` to columns with types, others to text.
    """

    def __init__(
        self, sink: Any, values: Values | None = None, typed: Mapping[Side, TypedColumn] | None = None
    ) -> None:
        self._output = _Output(sink)
        self._out = pa.PythonFile(self._output, mode="w")
        columns = outputs_of(_COLUMNS)
        self._columns = columns if values is None else valued_outputs(columns, values, typed)
        self._schema = pa.schema([column.field for column in self._columns])
        self._writer = pq.ParquetWriter(
            self._out,
            self._schema,
            compression="zstd",
            use_dictionary=[*_DICTIONARIES, *(f"{side}_{what}" for side in SIDES for what in ("schema", "error"))],
            column_encoding=_DIFFERENCES,
            write_statistics=[*_STATISTICS, *(name for side in typed or () for name in self._fields_of(side))],
            store_schema=False,  # else readers would get topics as Arrow's dictionaries
        )
        self._key: TopicPartition | None = None
        self._distant: str | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def _fields_of(self, side: Side) -> Iterator[str]:
        """Yields the fields of a side's column that are one value each, as Parquet names them."""
        waiting = [(str(side), self._schema.field(side).type)]
        while waiting:
            name, kind = waiting.pop()
            if pa.types.is_struct(kind):
                waiting += [(f"{name}.{field.name}", field.type) for field in kind]
            elif not pa.types.is_nested(kind):
                yield name

    def take(self, key: TopicPartition, records: Records) -> None:
        """Adds the records of a chunk."""
        if key != self._key:
            self._key, self._builder = key, ColumnBuilder(self._columns, key.topic, key.partition, "")
        for batch in self._builder.of(records):
            self._distant = self._distant or self._builder.place.distant
            self._waiting.append(batch)
            self._bytes += batch.nbytes
            if self._bytes >= ROW_GROUP_BYTES:
                self._flush()

    @property
    def distant(self) -> str | None:
        """Where a timestamp is that the column does not hold (`columns.Place`); None without any."""
        return self._distant

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
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(table, row_group_size=max(1, len(table)))
        self._waiting, self._bytes = [], 0


def write_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: Any) -> None:
    """Writes batches of any columns as one Parquet file to `sink`. If that fails, the end stays unwritten."""
    output = _Output(sink)
    out = pa.PythonFile(output, mode="w")
    writer = pq.ParquetWriter(out, schema, compression="zstd")
    try:
        for batch in batches:
            writer.write_batch(batch)
        writer.close()
        out.close()
    except BaseException:
        output.sink = None
        raise


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
