"""Makes Arrow columns of decoded records: the one builder for Spark, Parquet and tables.

An `Output` is a column: its Arrow field, and the function that makes it of a `Part`. A `ColumnBuilder` makes batches of
some outputs, at most BATCH_ROWS rows or about BATCH_BYTES each, so that a batch of 1 MiB values does not grow to
gigabytes. Each column is one copy into a fresh buffer (`kernels.gather`), and never passes through Python objects.

Who shows keys or values in another form makes an output whose function decodes `part.spans("key")` or
`part.spans("value")`, as `text_outputs` does.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from seglog import layout
from seglog.errors import ConfigError
from seglog.format.columns import Records
from seglog.kernels import gather
from seglog.model import NO_TIMESTAMP, TimestampType, TopicPartition
from seglog_ask.table.plan.schema import Field, arrow_schema, headers_type

BATCH_ROWS = 32_768
BATCH_BYTES = 8 << 20
_WORD = 8  # bytes; rows of `layout.RECORD` are made of whole ones

HEADERS_TYPE = headers_type()
_TEXT_HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])))

# The epoch milliseconds that columns of time have: from -260000-01-01 to +260000-01-01. Kafka's have 64 bits, and
# producers that send nanoseconds or Long.MAX_VALUE use them; engines have 64 bits of microseconds, to the year 294247,
# and fail near the ends of these (DuckDB's date_trunc from -290308 on), or sooner (Polars has the years to 262142).
TIMESTAMPS = range(-8_266_974_739_200_000, 8_142_640_300_800_000 + 1)

_PLAIN = {  # columns of all records of a batch alike: those of `layout.BATCH`
    "producer_id": np.int64,
    "producer_epoch": np.int32,
    "leader_epoch": np.int32,
    "position": np.int64,
}


class Place:
    """Where records lie: their topic, partition and file, as columns that are made once and sliced.

    `distant` tells of a timestamp that a column did not hold, and showed as the nearest one; None without any.
    """

    def __init__(self, topic: str, partition: int, path: str) -> None:
        self.topic, self.partition, self.path = topic, partition, path
        self.distant: str | None = None

    @cached_property
    def topics(self) -> pa.Array:
        return _repeated_text(self.topic)

    @cached_property
    def partitions(self) -> pa.Array:
        return pa.array(np.full(BATCH_ROWS, self.partition, dtype=np.int32))

    @cached_property
    def paths(self) -> pa.Array:
        return _repeated_text(self.path)


@dataclass(frozen=True, slots=True)
class Part:
    """At most BATCH_ROWS records of one place that become one Arrow batch.

    Of chosen records, `whole` is the part that they are chosen from, and `taken` has their numbers in it.
    """

    place: Place
    records: Records
    whole: Part | None = None
    taken: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.records.rows)

    def chosen(self, rows: np.ndarray) -> Part:
        """Returns the records with these numbers."""
        return Part(self.place, replace(self.records, rows=_taken(self.records.rows, rows)), self, rows)

    def spans(self, name: Literal["key", "value"]) -> pa.Array:
        """Returns the keys or values as a binary array."""
        rows = self.records.rows
        return spans(self.records.arena, rows[f"{name}_position"], rows[f"{name}_size"])

    def note_distant(self, stamps: np.ndarray) -> None:
        """Notes the first of the records' timestamps that is not in TIMESTAMPS."""
        beyond = (stamps < TIMESTAMPS.start) | (stamps >= TIMESTAMPS.stop)
        if self.place.distant is None and beyond.any():
            row = int(beyond.argmax())
            offset = int(self.records.rows["offset"][row])
            self.place.distant = f"{self.place.topic}-{self.place.partition}, offset {offset}: {int(stamps[row])}"

    def of_batches(self, values: np.ndarray) -> np.ndarray:
        """Returns values (one a batch) for each record."""
        spread: np.ndarray = np.ascontiguousarray(values)[self.records.rows["batch"]]
        return spread


@dataclass(frozen=True, slots=True)
class Output:
    """One column: its field, and how it is made. `is_constant`: it has one value throughout a file."""

    field: pa.Field
    make: Callable[[Part], pa.Array]
    is_constant: bool = False


class ColumnBuilder:
    """Makes Arrow batches, with the columns of `outputs`, of records of one place: `place`."""

    def __init__(self, outputs: Sequence[Output], topic: str, partition: int, path: str) -> None:
        self._outputs, self.place = outputs, Place(topic, partition, path)
        self._schema = pa.schema([output.field for output in outputs])

    def of(self, records: Records, path: str | None = None) -> Iterator[pa.RecordBatch]:
        """Yields the records as batches. `path` is their file from now on, if it is not the place's."""
        for part in self.parts(records, path):
            yield batch_of([output.make(part) for output in self._outputs], self._schema, len(part))

    def parts(self, records: Records, path: str | None = None) -> Iterator[Part]:
        """Yields the records in parts of a batch each."""
        if path is not None and path != self.place.path:
            self.place = Place(self.place.topic, self.place.partition, path)
        for first, stop in cuts(records.rows):
            yield Part(self.place, replace(records, rows=records.rows[first:stop]))


def _taken(rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Returns rows by their numbers. `rows[numbers]` does it in eight times as long: NumPy copies field by field."""
    words = rows.dtype.itemsize // _WORD
    taken = np.ascontiguousarray(rows).view(np.int64).reshape(len(rows), words).take(numbers, axis=0)
    chosen: np.ndarray = taken.view(rows.dtype).reshape(len(taken))
    return chosen


def batch_of(arrays: Sequence[pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Returns columns as a batch; without columns, as a batch of `count` empty rows."""
    if arrays:
        return pa.RecordBatch.from_arrays(list(arrays), schema=schema)
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None], 0))


def reader_of(
    names: Sequence[str] | None, key: TopicPartition, path: Path, records: Iterable[Records]
) -> pa.RecordBatchReader:
    """Returns a reader of a partition's records with columns by name (None: those of a table by default)."""
    outputs = outputs_of(names)
    builder = ColumnBuilder(outputs, key.topic, key.partition, str(path))
    batches = (batch for part in records for batch in builder.of(part))
    return pa.RecordBatchReader.from_batches(pa.schema([output.field for output in outputs]), batches)


def empty_records(count: int) -> Iterator[Records]:
    """Yields `count` records of which nothing but their number is known, for columns that have one value."""
    rows = np.zeros(min(count, BATCH_ROWS), dtype=layout.RECORD)
    for first in range(0, count, BATCH_ROWS):
        yield replace(Records.without_rows(np.empty(0, dtype=layout.BATCH)), rows=rows[: count - first])


def cuts(rows: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields runs (first, stop) of at most BATCH_ROWS rows and about BATCH_BYTES; a larger record is one run."""
    if len(rows) <= BATCH_ROWS and int(rows["size"].sum(dtype=np.int64)) <= BATCH_BYTES:
        yield 0, len(rows)
        return
    ends = np.cumsum(rows["size"], dtype=np.int64)
    first = 0
    while first < len(rows):
        start = int(ends[first - 1]) if first else 0
        full = int(np.searchsorted(ends, start + BATCH_BYTES, side="right"))
        stop = min(max(full, first + 1), first + BATCH_ROWS, len(rows))
        yield first, stop
        first = stop


# --- outputs --------------------------------------------------------------------------------------------------


def _topic(part: Part) -> pa.Array:
    return part.place.topics.slice(0, len(part))


def _partition(part: Part) -> pa.Array:
    return part.place.partitions.slice(0, len(part))


def _path(part: Part) -> pa.Array:
    return part.place.paths.slice(0, len(part))


def _offset(part: Part) -> pa.Array:
    return pa.array(np.ascontiguousarray(part.records.rows["offset"]))


def _milliseconds(part: Part) -> pa.Array:
    stamps = np.ascontiguousarray(part.records.rows["timestamp"])
    without = None
    if len(stamps) and (stamps.min() < 0 or stamps.max() >= TIMESTAMPS.stop):
        without = stamps == NO_TIMESTAMP
        part.note_distant(stamps)
        stamps = held(stamps)
    return pa.array(stamps, mask=without).view(pa.timestamp("ms", "UTC"))


def _number_of_milliseconds(part: Part) -> pa.Array:
    stamps = np.ascontiguousarray(part.records.rows["timestamp"])
    return pa.array(stamps, mask=stamps == NO_TIMESTAMP)


def _microseconds(part: Part) -> pa.Array:
    return timestamps(part.records.rows["timestamp"])


def _timestamp_type(part: Part) -> pa.Array:
    return pa.array(part.of_batches(timestamp_types(part.records.batches)))


def _timestamp_label(part: Part) -> pa.Array:
    return timestamp_labels(part.of_batches(timestamp_types(part.records.batches)))


def _sequence(part: Part) -> pa.Array:
    return pa.array(np.ascontiguousarray(part.records.rows["sequence"]).astype(np.int32))


def _headers(part: Part) -> pa.Array:
    return headers(part.records)


def _key(part: Part) -> pa.Array:
    return part.spans("key")


def _value(part: Part) -> pa.Array:
    return part.spans("value")


def _headers_text(part: Part) -> pa.Array:
    lists = headers(part.records)
    pairs = lists.values
    texts = [pairs.field("key"), readable_text(pairs.field("value"))]
    element = pa.StructArray.from_arrays(texts, fields=list(_TEXT_HEADERS.value_type))
    return pa.ListArray.from_arrays(lists.offsets, element, type=_TEXT_HEADERS, mask=lists.is_null())


def _key_text(part: Part) -> pa.Array:
    return readable_text(part.spans("key"))


def _value_text(part: Part) -> pa.Array:
    return readable_text(part.spans("value"))


def _of_batches(column: str) -> Callable[[Part], pa.Array]:
    kind = _PLAIN[column]
    return lambda part: pa.array(part.of_batches(part.records.batches[column]).astype(kind))


# The columns of a table. Those before `timestamp_type` are there unless others are asked for.
_OUTPUTS = {
    output.field.name: output
    for output in (
        Output(pa.field("topic", pa.string(), nullable=False), _topic, True),
        Output(pa.field("partition", pa.int32(), nullable=False), _partition, True),
        Output(pa.field("offset", pa.int64(), nullable=False), _offset),
        Output(pa.field("timestamp", pa.timestamp("ms", "UTC")), _milliseconds),
        Output(pa.field("key", pa.binary()), _key),
        Output(pa.field("value", pa.binary()), _value),
        Output(pa.field("headers", HEADERS_TYPE), _headers),
        Output(pa.field("timestamp_type", pa.string(), nullable=False), _timestamp_label),
        Output(pa.field("producer_id", pa.int64(), nullable=False), _of_batches("producer_id")),
        Output(pa.field("producer_epoch", pa.int32(), nullable=False), _of_batches("producer_epoch")),
        Output(pa.field("sequence", pa.int32(), nullable=False), _sequence),
        Output(pa.field("leader_epoch", pa.int32(), nullable=False), _of_batches("leader_epoch")),
        Output(pa.field("segment", pa.string(), nullable=False), _path, True),
        Output(pa.field("position", pa.int64(), nullable=False), _of_batches("position")),
        Output(pa.field("timestamp_ms", pa.int64()), _number_of_milliseconds),
    )
}
# The same under the names and types of Spark's kafka source.
_SPARK: dict[str, Callable[[Part], pa.Array]] = {
    "key": _key,
    "value": _value,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _microseconds,
    "timestampType": _timestamp_type,
    "headers": _headers,
    "producerId": _of_batches("producer_id"),
    "producerEpoch": _of_batches("producer_epoch"),
    "sequence": _sequence,
    "leaderEpoch": _of_batches("leader_epoch"),
    "file": _path,
    "position": _of_batches("position"),
    "timestampMs": lambda part: pa.array(np.ascontiguousarray(part.records.rows["timestamp"])),
}

# What a table has unless other columns are asked for.
DEFAULT_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def outputs_of(names: Sequence[str] | None = None) -> tuple[Output, ...]:
    """Returns the columns of a table by name; None: those that it has by default. ConfigError lists the columns."""
    unknown = [name for name in names or () if name not in _OUTPUTS]
    if unknown:
        near = difflib.get_close_matches(unknown[0], _OUTPUTS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"there is no column '{unknown[0]}'{hint} (columns: {', '.join(_OUTPUTS)})")
    return tuple(_OUTPUTS[name] for name in dict.fromkeys(DEFAULT_COLUMNS if names is None else names))


def text_outputs() -> tuple[Output, ...]:
    """Returns all columns of a table, with readable text as key, value and in headers, and the bytes of keys and values
    in key_bytes and value_bytes.
    """
    texts = {
        "key": Output(pa.field("key", pa.string()), _key_text),
        "value": Output(pa.field("value", pa.string()), _value_text),
        "headers": Output(pa.field("headers", _TEXT_HEADERS), _headers_text),
    }
    raw = [replace(_OUTPUTS[name], field=_OUTPUTS[name].field.with_name(f"{name}_bytes")) for name in ("key", "value")]
    return (*(texts.get(name, output) for name, output in _OUTPUTS.items()), *raw)


def spark_outputs(projection: Sequence[Field], decoded: Sequence[Output] = ()) -> tuple[Output, ...]:
    """Returns the columns of Spark's view `records`, under the names and with the exact types that Spark checks.

    `decoded` are columns of decoded keys and values, in Spark's types.
    """
    made = _SPARK | {output.field.name: output.make for output in decoded}
    schema = arrow_schema(projection, {output.field.name: output.field.type for output in decoded})
    return tuple(Output(field, made[wanted.column]) for wanted, field in zip(projection, schema, strict=True))


# --- arrays ---------------------------------------------------------------------------------------------------


def valid_text(text: str) -> str:
    """Returns valid UTF-8 for Arrow's strings: bytes of a name that are not (surrogate escapes) become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _repeated_text(text: str) -> pa.Array:
    data = valid_text(text).encode()
    offsets = np.arange(BATCH_ROWS + 1, dtype=np.int32) * len(data)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data * BATCH_ROWS)]
    return pa.Array.from_buffers(pa.string(), BATCH_ROWS, buffers)


def spans(arena: np.ndarray, positions: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """Returns a binary array of spans of `arena`; a negative size is null."""
    count = len(positions)
    total = int(np.maximum(sizes, 0).sum(dtype=np.int64))
    out, offsets = np.empty(total, dtype=np.uint8), np.empty(count + 1, dtype=np.int32)
    validity = np.zeros((count + 7) >> 3, dtype=np.uint8)
    nulls = gather.gather_spans(arena, positions, sizes, out, offsets, validity)
    present = pa.py_buffer(validity) if nulls else None
    return pa.Array.from_buffers(pa.binary(), count, [present, pa.py_buffer(offsets), pa.py_buffer(out)], nulls)


def readable_text(array: pa.Array) -> pa.Array:
    """Returns a binary array as strings: UTF-8 as it is; in other values, bytes that are not UTF-8 become `\\xNN`."""
    return _as_text(array, "backslashreplace")


def _as_text(array: pa.Array, errors: str) -> pa.Array:
    try:
        return array.cast(pa.string())  # without a copy
    except pa.ArrowInvalid:
        texts = [None if data is None else data.decode("utf-8", errors) for data in array.to_pylist()]
        return pa.array(texts, pa.string())


def held(milliseconds: np.ndarray) -> np.ndarray:
    """Returns epoch milliseconds, those before and after TIMESTAMPS as its first and last ones."""
    nearest: np.ndarray = np.clip(milliseconds, TIMESTAMPS.start, TIMESTAMPS.stop - 1)
    return nearest


def timestamps(milliseconds: np.ndarray) -> pa.Array:
    """Converts epoch milliseconds to Spark's timestamps: one beyond TIMESTAMPS becomes the nearest."""
    return pa.array(held(milliseconds) * 1000).view(pa.timestamp("us", "UTC"))


def timestamp_types(batches: np.ndarray) -> np.ndarray:
    """Returns Kafka's id of each batch's timestamp type (int32): -1 none (magic 0), 0 create, 1 log append."""
    types: np.ndarray = ((batches["attributes"] & layout.TIMESTAMP_TYPE_MASK) != 0).astype(np.int32)
    types[batches["magic"] == 0] = -1
    return types


def timestamp_labels(types: np.ndarray) -> pa.Array:
    """Returns Kafka's names of timestamp types."""
    labels = pa.array([one.label for one in TimestampType], pa.string())
    return labels.take(pa.array(types - int(TimestampType.NONE)))


def headers(records: Records) -> pa.Array:
    """Returns lists of HEADERS_TYPE, null for a record without headers. Keys become valid UTF-8."""
    rows, arena = records.rows, records.arena
    count = len(rows)
    if not rows["header_count"].any():
        return pa.nulls(count, HEADERS_TYPE)
    places = rows["headers_position"], rows["header_count"], rows["position"] + rows["size"]
    total, key_bytes, value_bytes = gather.measure_headers(arena, *places)
    list_offsets, list_validity = np.empty(count + 1, dtype=np.int32), np.zeros((count + 7) >> 3, dtype=np.uint8)
    keys, key_offsets = np.empty(key_bytes, dtype=np.uint8), np.empty(total + 1, dtype=np.int32)
    values, value_offsets = np.empty(value_bytes, dtype=np.uint8), np.empty(total + 1, dtype=np.int32)
    validity = np.zeros((total + 7) >> 3, dtype=np.uint8)
    without = gather.gather_headers(
        arena, *places, list_offsets, list_validity, keys, key_offsets, values, value_offsets, validity
    )
    key_array = pa.Array.from_buffers(pa.binary(), total, [None, pa.py_buffer(key_offsets), pa.py_buffer(keys)])
    value_buffers = [pa.py_buffer(validity), pa.py_buffer(value_offsets), pa.py_buffer(values)]
    pairs = [_as_text(key_array, "replace"), pa.Array.from_buffers(pa.binary(), total, value_buffers)]
    element = pa.StructArray.from_arrays(pairs, fields=list(HEADERS_TYPE.value_type))
    buffers = [pa.py_buffer(list_validity), pa.py_buffer(list_offsets)]
    return pa.Array.from_buffers(HEADERS_TYPE, count, buffers, without, children=[element])
