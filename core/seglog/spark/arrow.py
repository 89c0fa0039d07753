"""Records of a split as Arrow batches with the exact schema that Spark checks (view `records`).

1. Walk each piece; drop control batches and those of aborted transactions before anything is decoded.
2. Decode to columns, cut to the wanted offsets, and cut into batches of 16 k rows or 8 MiB of keys, values and
   headers, whichever comes first: a batch of 1 MiB values must not become gigabytes.
3. Each column is built by one copy into a fresh buffer (`kernels.gather`), never through Python objects.

A batch whose records do not decode gives none of them: with `onCorrupt` skip all of it is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from seglog import layout
from seglog.format.columns import STATUS_REASONS, Records
from seglog.kernels import gather
from seglog.layout import INT64_MAX
from seglog.spark.options import ReadOptions
from seglog.spark.reading import CONTENTS, Batches, Damage, damage_at, handle, not_shown, walk_piece
from seglog.spark.schema import Field, arrow_schema
from seglog.spark.splits import SegmentPiece, Split
from seglog.spark.where import ALL, Range
from seglog.storage.filesystem import FileSystem

BATCH_ROWS = 16_384
BATCH_BYTES = 8 << 20

# Beyond these a timestamp in milliseconds has no microseconds in 64 bits; it becomes null.
_MOST_MILLISECONDS = INT64_MAX // 1000


def record_batches(
    fs: FileSystem, split: Split, projection: Sequence[Field], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """The records of a split, in order, with the columns of `projection`.

    Raises CorruptRecordError at damage unless `onCorrupt` is skip, and RefusedError for a file that changed.
    """
    for piece in split.pieces:
        shown = ArrowRows(piece, projection)
        for records in records_of(fs, piece, options):
            yield from shown.of(records)


class ArrowRows:
    """Records of one piece as Arrow batches with the columns of `projection`."""

    def __init__(self, piece: SegmentPiece, projection: Sequence[Field]) -> None:
        self._projection, self._schema = projection, arrow_schema(projection)
        self._constants = _Constants(piece)

    def of(self, records: Records) -> Iterator[pa.RecordBatch]:
        for first, stop in cuts(records.rows):
            part = Records(records.arena, records.rows[first:stop], records.batches, records.status)
            arrays = [_COLUMNS[field.column](part, self._constants) for field in self._projection]
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            else:
                yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(part), pa.struct([])))


def records_of(fs: FileSystem, piece: SegmentPiece, options: ReadOptions) -> Iterator[Records]:
    """What a consumer sees of a piece, as columns; damage is handled by the options."""
    for step in walk_piece(fs, piece, options):
        if isinstance(step, Damage):
            handle(step, options)
            continue
        for part in decoded(step, options.where.timestamp):
            if isinstance(part, Damage):
                handle(part, options)
            elif len(part):
                yield part


def decoded(step: Batches, times: Range = ALL) -> Iterator[Records | Damage]:
    """The shown records of good batches, cut to the wanted offsets and times, and the batches that do not decode."""
    piece = step.piece
    batches = step.batches[~not_shown(step.batches, piece.aborted)]
    if times != ALL:
        batches = batches[batches["max_timestamp"] >= times.first]
    for records in step.walked.records(batches):
        rows = records.rows
        for i in np.flatnonzero(records.status).tolist() if not records.rows_before else ():
            yield damage_at(piece, records.batches[i], CONTENTS, STATUS_REASONS[int(records.status[i])])
        if records.status.any():
            rows = rows[records.status[rows["batch"]] == 0]
        if len(rows):
            offsets = rows["offset"]
            if offsets.min() < piece.first_offset or offsets.max() >= piece.stop_offset:
                rows = rows[(offsets >= piece.first_offset) & (offsets < piece.stop_offset)]
        if times != ALL and len(rows):
            stamps = rows["timestamp"]  # a record without one fulfils no condition, as in SQL
            rows = rows[(stamps >= max(times.first, 0)) & (stamps < times.stop)]
        yield Records(records.arena, rows, records.batches, records.status)


def cuts(rows: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs (first, stop) of at most BATCH_ROWS rows and about BATCH_BYTES; a larger record has a run of its own."""
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


class _Constants:
    """Columns that are one value throughout a piece, made once and sliced."""

    def __init__(self, piece: SegmentPiece) -> None:
        self.topic = _repeated_text(piece.topic)
        self.partition = pa.array(np.full(BATCH_ROWS, piece.partition, dtype=np.int32))


def _repeated_text(text: str) -> pa.Array:
    data = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()
    offsets = np.arange(BATCH_ROWS + 1, dtype=np.int32) * len(data)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data * BATCH_ROWS)]
    return pa.Array.from_buffers(pa.string(), BATCH_ROWS, buffers)


# --- columns --------------------------------------------------------------------------------------------------


def spans(arena: np.ndarray, positions: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """A binary array of spans of `arena`; a negative size is null."""
    count = len(positions)
    total = int(np.maximum(sizes, 0).sum(dtype=np.int64))
    out, offsets = np.empty(total, dtype=np.uint8), np.empty(count + 1, dtype=np.int32)
    validity = np.zeros((count + 7) >> 3, dtype=np.uint8)
    nulls = gather.gather_spans(arena, positions, sizes, out, offsets, validity)
    present = pa.py_buffer(validity) if nulls else None
    return pa.Array.from_buffers(pa.binary(), count, [present, pa.py_buffer(offsets), pa.py_buffer(out)], nulls)


def timestamps(milliseconds: np.ndarray) -> pa.Array:
    """Epoch milliseconds as Spark's timestamps; what 64 bits of microseconds cannot hold is null."""
    kind = pa.timestamp("us", "UTC")
    if not len(milliseconds) or -_MOST_MILLISECONDS <= milliseconds.min() <= milliseconds.max() <= _MOST_MILLISECONDS:
        return pa.array(milliseconds * 1000).view(kind)
    outside = (milliseconds > _MOST_MILLISECONDS) | (milliseconds < -_MOST_MILLISECONDS)
    return pa.array(np.where(outside, 0, milliseconds) * 1000, mask=outside).view(kind)


def timestamp_types(batches: np.ndarray) -> np.ndarray:
    """Kafka's id of each batch's timestamp type (int32): -1 none (magic 0), 0 create time, 1 log append time."""
    types: np.ndarray = ((batches["attributes"] & layout.TIMESTAMP_TYPE_MASK) != 0).astype(np.int32)
    types[batches["magic"] == 0] = -1
    return types


def headers(records: Records) -> pa.Array:
    """array<struct<key:string,value:binary>>, null for a record without headers. Keys are UTF-8, mended where not."""
    rows, arena = records.rows, records.arena
    count, places = len(rows), (rows["headers_position"], rows["header_count"], rows["position"] + rows["size"])
    total, key_bytes, value_bytes = gather.measure_headers(arena, *places)
    list_offsets, list_validity = np.empty(count + 1, dtype=np.int32), np.zeros((count + 7) >> 3, dtype=np.uint8)
    keys, key_offsets = np.empty(key_bytes, dtype=np.uint8), np.empty(total + 1, dtype=np.int32)
    values, value_offsets = np.empty(value_bytes, dtype=np.uint8), np.empty(total + 1, dtype=np.int32)
    validity = np.zeros((total + 7) >> 3, dtype=np.uint8)
    without = gather.gather_headers(
        arena, *places, list_offsets, list_validity, keys, key_offsets, values, value_offsets, validity
    )
    value_buffers = [pa.py_buffer(validity), pa.py_buffer(value_offsets), pa.py_buffer(values)]
    pairs = [_text(keys, key_offsets), pa.Array.from_buffers(pa.binary(), total, value_buffers)]
    element = pa.StructArray.from_arrays(pairs, fields=[pa.field("key", pa.string()), pa.field("value", pa.binary())])
    kind = pa.list_(pa.field("element", element.type))
    buffers = [pa.py_buffer(list_validity), pa.py_buffer(list_offsets)]
    return pa.Array.from_buffers(kind, count, buffers, without, children=[element])


def _text(data: np.ndarray, offsets: np.ndarray) -> pa.Array:
    count = len(offsets) - 1
    array = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    if not len(data) or data.max() < 128:
        return array
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raw = array.cast(pa.binary()).to_pylist()
        return pa.array([value.decode("utf-8", "replace") for value in raw], pa.string())
    return array


def _timestamp_type(records: Records, _: _Constants) -> pa.Array:
    types = timestamp_types(records.batches)
    return pa.array(types[records.rows["batch"]])


_COLUMNS: dict[str, Callable[[Records, _Constants], pa.Array]] = {
    "key": lambda records, _: spans(records.arena, records.rows["key_position"], records.rows["key_size"]),
    "value": lambda records, _: spans(records.arena, records.rows["value_position"], records.rows["value_size"]),
    "topic": lambda records, constants: constants.topic.slice(0, len(records)),
    "partition": lambda records, constants: constants.partition.slice(0, len(records)),
    "offset": lambda records, _: pa.array(np.ascontiguousarray(records.rows["offset"])),
    "timestamp": lambda records, _: timestamps(records.rows["timestamp"]),
    "timestampType": _timestamp_type,
    "headers": lambda records, _: headers(records),
}
