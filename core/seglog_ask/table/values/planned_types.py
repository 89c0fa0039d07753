"""Plans the types of the columns of decoded keys and values, before a table is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import islice

from seglog.errors import SeglogError
from seglog.format.columns import Side
from seglog.model import Record
from seglog.storage.filesystem import FileSystem
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.partition_log import PartitionLog, settled
from seglog_ask.table.plan.splits import batch_range, pieces_of
from seglog_ask.table.read.damage import Damage
from seglog_ask.table.read.records import placed_records
from seglog_ask.table.values.typed import TypedColumn
from seglog_ask.values.column_types import ColumnType, Sample, column_type
from seglog_ask.values.forms import Forms, Tally
from seglog_ask.values.shapes import Leaf, ListOf, MapOf, Shape, Struct

_MOST_PARTITIONS = 16  # that are looked at
_IN_MICROSECONDS = {f"{kind}-millis": f"{kind}-micros" for kind in ("timestamp", "local-timestamp")}
_FIRST = 100  # records that are looked at, of the first and of the last segment of each


def typed_columns(
    forms: Forms,
    tally: Tally,
    fs: FileSystem,
    logs: Iterable[PartitionLog],
    options: ReadOptions,
    *,
    for_sql: bool = False,
) -> dict[Side, TypedColumn]:
    """Returns the columns of `planned_types`, ready to decode; `for_sql`: `in_microseconds`. Counts in `tally`."""
    types = planned_types(forms, fs, logs, options)
    if for_sql:
        types = {side: one.of_shape(in_microseconds(one.shape)) for side, one in types.items()}
    return {side: TypedColumn(one, tally) for side, one in types.items()}


def in_microseconds(shape: Shape) -> Shape:
    """Returns a shape with microseconds for milliseconds: DuckDB and Spark have no others for instants. What is beyond
    them is null and said, where an engine would refuse the whole column, or wrap around.
    """
    if isinstance(shape, Leaf):
        return Leaf(_IN_MICROSECONDS[shape.kind]) if shape.kind in _IN_MICROSECONDS else shape
    if isinstance(shape, Struct):
        return Struct(tuple((name, in_microseconds(child)) for name, child in shape.fields))
    return ListOf(in_microseconds(shape.item)) if isinstance(shape, ListOf) else MapOf(in_microseconds(shape.value))


def planned_types(
    forms: Forms, fs: FileSystem, logs: Iterable[PartitionLog], options: ReadOptions
) -> dict[Side, ColumnType]:
    """Returns the types of keys and values that schemas describe: of one topic, as several have none in common.

    Little is read: the first records of the first and of the last segment of each partition.
    """
    logs = list(logs)
    topics = {log.topic_partition.topic for log in logs}
    sides = forms.by_schema
    if len(topics) != 1 or not sides:
        return {}
    (topic,) = topics
    first = [record for log in logs[:_MOST_PARTITIONS] for record in _first_records(fs, log, options)]
    found = {side: column_type(forms, side, topic, _samples(first, side)) for side in sides}
    return {side: one for side, one in found.items() if one is not None}


def _samples(records: Iterable[Record], side: Side) -> list[Sample]:
    both = ((one.key if side == "key" else one.value, one.headers) for one in records)
    return [(data, headers) for data, headers in both if data is not None]


def _first_records(fs: FileSystem, log: PartitionLog, options: ReadOptions) -> Iterator[Record]:
    """Yields records that show schemas. What cannot be read is left to the reading of the table, which says why."""
    with contextlib.suppress(SeglogError, OSError):
        _, pieces = settled(log, lambda log: tuple(pieces_of(log, batch_range(log, options), options)))
        for piece in dict.fromkeys((*pieces[:1], *pieces[-1:])):
            for _, records in islice(placed_records(fs, piece, options, _ignored), 1):
                yield from islice(records, _FIRST)


def _ignored(damage: Damage, options: ReadOptions) -> None:
    """Goes on after damage, of which the reading of the table tells."""
