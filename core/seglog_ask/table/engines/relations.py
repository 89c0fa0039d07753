"""Tables beside the records: batches, segments and damage of logs, and rows that other modules give.

A `Relation` reads anew whenever an engine scans it, so a query may mention it twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seglog.errors import SeglogError
from seglog_ask.table.engines.arrow import split_batches
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.partition_log import settled
from seglog_ask.table.plan.schema import BATCHES, FINDINGS, SEGMENTS, arrow_schema, default_projection
from seglog_ask.table.plan.splits import Split, batch_range, pieces_of
from seglog_ask.table.read.source import Failure, Source
from seglog_ask.table.values.columns import timestamp_labels, timestamps

VIEWS = (BATCHES, SEGMENTS, FINDINGS)

_ROWS = 4096
_TIMESTAMP_TYPE = "timestamp_type"
_CAPITAL = re.compile(r"(?<=[a-z])[A-Z]")
_TYPES = {
    "text": pa.string(),
    "int": pa.int64(),
    "bool": pa.bool_(),
    "time": pa.timestamp("us", "UTC"),  # of epoch milliseconds
}


class Relation:
    """A table that is made of batches whenever it is scanned. `failures` gets the error that ends a scan."""

    def __init__(
        self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]], failures: list[Failure]
    ) -> None:
        self.schema, self._batches, self._failures = schema, batches, failures

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self.schema, self._kept()).__arrow_c_stream__(requested_schema)

    def _kept(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
        except (SeglogError, OSError) as error:
            self._failures.append(error)
            raise


def relation_of_rows(
    columns: Mapping[str, str], rows: Callable[[], Iterable[Sequence[Any]]], failures: list[Failure]
) -> Relation:
    """Returns a table of rows. `columns` gives each one's type: text, int, bool, or time (epoch milliseconds)."""
    schema = pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])

    def batches() -> Iterator[pa.RecordBatch]:
        remaining = iter(rows())
        while some := list(islice(remaining, _ROWS)):
            arrays = [_column(values, kind) for values, kind in zip(zip(*some, strict=True), schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return Relation(schema, batches, failures)


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_timestamp(kind):
        return pa.array(values, kind)
    numbers = pa.array(values, pa.int64())
    return pc.if_else(numbers.is_null(), None, timestamps(numbers.fill_null(0).to_numpy()))


def view_relation(source: Source, view: str) -> Relation:
    """Returns the batches, segments or findings of a table's logs. Columns have the names of Spark's views, in
    snake_case; timestamp types are named.
    """
    options = replace(source.options, view=view)
    projection = default_projection(view, None, False)
    named = [
        replace(field, name=_CAPITAL.sub(lambda found: f"_{found[0].lower()}", field.name)) for field in projection
    ]
    read = arrow_schema(named)
    types = read.get_field_index(_TIMESTAMP_TYPE)
    schema = read if types < 0 else read.set(types, pa.field(_TIMESTAMP_TYPE, pa.string(), nullable=False))

    def batches() -> Iterator[pa.RecordBatch]:
        for split in _splits(source, options):
            for batch in split_batches(source.fs, split, named, options):
                columns = batch.columns
                if types >= 0:
                    columns[types] = timestamp_labels(columns[types].to_numpy())
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return Relation(schema, batches, source.failures)


def _splits(source: Source, options: ReadOptions) -> Iterator[Split]:
    for log in source.logs:
        _, pieces = settled(log, lambda log: tuple(pieces_of(log, batch_range(log, options), options)))
        yield Split(pieces)
