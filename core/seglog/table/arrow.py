"""The rows of a split as Arrow batches with the exact schema that Spark checks, in each view.

Records:

1. Walk each piece; drop control batches and those of aborted transactions before decoding anything.
2. Decode to columns, keep the wanted offsets, and cut into batches of 16 k rows or 8 MiB of keys, values and headers,
   whichever comes first, so that a batch of 1 MiB values does not grow to gigabytes.
3. Build each column by one copy into a fresh buffer (`kernels.gather`), never through Python objects.

A batch whose records do not decode yields none of them: with `onCorrupt` skip it is skipped as a whole.

The view `findings` lists exactly what reading with `onCorrupt` skip leaves out, and torn tails: one row per damaged
range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from seglog import layout
from seglog.format.columns import STATUS_REASONS, Records
from seglog.kernels import gather
from seglog.model import Compression
from seglog.storage.filesystem import FileSystem
from seglog.table.damage import CHECKSUM, CONTENTS, Damage, damage_at, handle
from seglog.table.options import ReadOptions
from seglog.table.reading import (
    Batches,
    ReplacedError,
    as_it_is,
    not_shown,
    walk_file,
    walk_piece,
)
from seglog.table.schema import BATCHES, FINDINGS, RECORDS, SEGMENTS, Field, arrow_schema
from seglog.table.splits import SegmentPiece, Split
from seglog.table.where import ALL, TIMESTAMPS, Range

BATCH_ROWS = 16_384
BATCH_BYTES = 8 << 20

_CODECS = np.array([*(codec.label for codec in Compression), "unknown", "unknown", "unknown"])

Rows = tuple[str, Mapping[str, Any]]  # the file that the rows are about, and their columns


def split_batches(
    fs: FileSystem, split: Split, projection: Sequence[Field], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a split in the view of the options, as Arrow batches with the schema of `projection`."""
    if options.view == RECORDS:
        yield from record_batches(fs, split, projection, options)
        return
    schema = arrow_schema(projection)
    for piece in split.pieces:
        for path, columns in _VIEWS[options.view](fs, piece, options):
            place = {"topic": piece.topic, "partition": piece.partition, "segment": path}
            rows = len(next(iter(columns.values())))
            arrays = []
            for wanted, target in zip(projection, schema, strict=True):
                found: Any = columns.get(wanted.column)
                values: Any = [place[wanted.column]] * rows if found is None else found
                is_list = isinstance(values, list)
                arrays.append(pa.array(values, type=target.type) if is_list else values.cast(target.type))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


# --- records --------------------------------------------------------------------------------------------------


def record_batches(
    fs: FileSystem, split: Split, projection: Sequence[Field], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yields the records of a split, in order, with the columns of `projection`.

    Raises CorruptRecordError at damage unless `onCorrupt` is skip, and the errors of `walk_piece`.
    """
    for piece in split.pieces:
        shown = ArrowRows(piece, projection)
        for path, records in _placed_records(fs, piece, options):
            yield from shown.of(records, path)


class ArrowRows:
    """Converts records of one piece to Arrow batches with the columns of `projection`."""

    def __init__(self, piece: SegmentPiece, projection: Sequence[Field]) -> None:
        self._projection, self._schema = projection, arrow_schema(projection)
        # columns with one value throughout the piece, made once and sliced
        self._topic = _repeated_text(piece.topic)
        self._path, self._file = piece.path, None if not self._names("file") else _repeated_text(piece.path)
        self._partition = pa.array(np.full(BATCH_ROWS, piece.partition, dtype=np.int32))

    def of(self, records: Records, path: str | None = None) -> Iterator[pa.RecordBatch]:
        """Yields the records as batches. `path` is their file, if it is not the piece's."""
        if path is not None and path != self._path and self._file is not None:
            self._path, self._file = path, _repeated_text(path)
        for first, stop in cuts(records.rows):
            part = Records(records.arena, records.rows[first:stop], records.batches, records.status)
            arrays = [self._column(field.column, part) for field in self._projection]
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            else:
                yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(part), pa.struct([])))

    def _names(self, column: str) -> bool:
        return any(field.column == column for field in self._projection)

    def _column(self, name: str, records: Records) -> pa.Array:
        rows = records.rows
        match name:
            case "key" | "value":
                return spans(records.arena, rows[f"{name}_position"], rows[f"{name}_size"])
            case "topic":
                return self._topic.slice(0, len(rows))
            case "partition":
                return self._partition.slice(0, len(rows))
            case "offset":
                return pa.array(np.ascontiguousarray(rows["offset"]))
            case "timestamp":
                return timestamps(rows["timestamp"])
            case "timestampType":
                return pa.array(timestamp_types(records.batches)[rows["batch"]])
            case "sequence":
                return pa.array(np.ascontiguousarray(rows["sequence"]).astype(np.int32))
            case "file" if self._file is not None:
                return self._file.slice(0, len(rows))
            case "producerId" | "producerEpoch" | "leaderEpoch" | "position":
                values = np.ascontiguousarray(records.batches[_PLAIN[name]])[rows["batch"]]
                return pa.array(values.astype(np.int64 if name in ("producerId", "position") else np.int32))
        return headers(records)


def records_of(fs: FileSystem, piece: SegmentPiece, options: ReadOptions) -> Iterator[Records]:
    """Yields the records of a piece that a consumer sees, as columns. Handles damage by the options."""
    for _, records in _placed_records(fs, piece, options):
        yield records


def _placed_records(fs: FileSystem, piece: SegmentPiece, options: ReadOptions) -> Iterator[tuple[str, Records]]:
    """Yields the file that the records of a piece are read from, which may have replaced its own, and the records."""
    for step in walk_piece(fs, piece, options):
        if isinstance(step, Damage):
            handle(step, options)
            continue
        for part in decoded(step, options.where.timestamp):
            if isinstance(part, Damage):
                handle(part, options)
            elif len(part):
                yield step.piece.path, part


def decoded(step: Batches, times: Range = ALL) -> Iterator[Records | Damage]:
    """Yields the visible records of good batches within the wanted offsets and times, and undecodable batches."""
    piece = step.piece
    batches = step.batches[~not_shown(step.batches, piece.aborted)]
    if times != ALL:
        batches = batches[~_older(batches, times.first)]
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
            stamps = rows["timestamp"]
            rows = rows[(stamps >= times.first) & (stamps < times.stop)]
        yield Records(records.arena, rows, records.batches, records.status)


def _older(batches: np.ndarray, timestamp: int) -> np.ndarray:
    """Returns a mask of the batches that hold only older records, by their headers.

    A wrapper of magic 0 or 1 has whatever timestamp its producer gave it, unless the broker set it (log append time).
    """
    attributes = batches["attributes"]
    is_wrapper = (batches["magic"] < 2) & ((attributes & layout.CODEC_MASK) != 0)
    known: np.ndarray = ~is_wrapper | ((attributes & layout.TIMESTAMP_TYPE_MASK) != 0)
    return known & (batches["max_timestamp"] < timestamp)


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


# --- columns --------------------------------------------------------------------------------------------------


def _repeated_text(text: str) -> pa.Array:
    data = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()
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


def timestamps(milliseconds: np.ndarray) -> pa.Array:
    """Converts epoch milliseconds to Spark's timestamps; one that 64 bits of microseconds cannot hold becomes null."""
    kind = pa.timestamp("us", "UTC")
    outside = (milliseconds < TIMESTAMPS.first) | (milliseconds >= TIMESTAMPS.stop)
    if not outside.any():
        return pa.array(milliseconds * 1000).view(kind)
    return pa.array(np.where(outside, 0, milliseconds) * 1000, mask=outside).view(kind)


def timestamp_types(batches: np.ndarray) -> np.ndarray:
    """Returns Kafka's id of each batch's timestamp type (int32): -1 none (magic 0), 0 create, 1 log append."""
    types: np.ndarray = ((batches["attributes"] & layout.TIMESTAMP_TYPE_MASK) != 0).astype(np.int32)
    types[batches["magic"] == 0] = -1
    return types


def headers(records: Records) -> pa.Array:
    """Returns array<struct<key:string,value:binary>>, null for a record without headers. Keys become valid UTF-8."""
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


# --- the view batches -----------------------------------------------------------------------------------------


def _batches(fs: FileSystem, piece: SegmentPiece, options: ReadOptions) -> Iterator[Rows]:
    for step in walk_piece(fs, piece, options):
        if isinstance(step, Batches) and len(step.batches):
            yield step.piece.path, _batch_columns(step.batches)
        elif isinstance(step, Damage):
            handle(step, options)


def _batch_columns(batches: np.ndarray) -> Mapping[str, Any]:
    attributes, v2 = batches["attributes"], batches["magic"] >= 2
    horizon = v2 & ((attributes & layout.DELETE_HORIZON_MASK) != 0)
    no_time = batches["magic"] == 0
    plain = {name: pa.array(np.ascontiguousarray(batches[column])) for name, column in _PLAIN.items()}
    return {
        **plain,
        "magic": pa.array(batches["magic"].astype(np.int32)),
        "count": pa.array(batches["count"], mask=~v2),
        "codec": pa.array(_CODECS[attributes & layout.CODEC_MASK]),
        "timestampType": pa.array(timestamp_types(batches)),
        "maxTimestamp": _masked(timestamps(batches["max_timestamp"]), no_time),
        "deleteHorizon": _masked(timestamps(batches["base_timestamp"]), ~horizon),
        "isTransactional": pa.array(v2 & ((attributes & layout.TRANSACTIONAL_MASK) != 0)),
        "isControl": pa.array(v2 & ((attributes & layout.CONTROL_MASK) != 0)),
        "isValid": pa.array(np.full(len(batches), True)),
    }


_PLAIN = {
    "position": "position",
    "size": "size",
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "leaderEpoch": "leader_epoch",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "baseSequence": "base_sequence",
    "crc": "crc",
}


def _masked(array: pa.Array, hidden: np.ndarray) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(pa.array(hidden), pa.scalar(None, array.type), array)


# --- the view segments ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Summary:
    """Totals of a segment, added up batch by batch."""

    piece: SegmentPiece
    batches: int = 0
    records: int = 0
    has_legacy: bool = False
    damaged: int = 0
    next_offset: int = field(init=False)
    valid_bytes: int = 0
    max_timestamp: int = -1

    def __post_init__(self) -> None:
        self.next_offset = self.piece.base_offset

    def add(self, batches: np.ndarray) -> None:
        legacy = batches["magic"] < 2
        self.batches += len(batches)
        self.records += int(batches["count"][~legacy].sum(dtype=np.int64))
        self.has_legacy = self.has_legacy or bool(legacy.any())
        self.next_offset = int(batches["last_offset"][-1]) + 1
        self.valid_bytes = int(batches["position"][-1]) + int(batches["size"][-1])
        self.max_timestamp = max(self.max_timestamp, int(batches["max_timestamp"].max()))


def _segments(fs: FileSystem, piece: SegmentPiece, options: ReadOptions) -> Iterator[Rows]:
    """Yields the planned segment, or the file that replaced it; nothing if it was merged into another segment."""
    while True:
        summary = _Summary(piece)
        try:
            for step in walk_file(fs, piece, options):
                if isinstance(step, Batches) and len(step.batches):
                    summary.add(step.batches)
                elif isinstance(step, Damage):
                    summary.damaged += step.kind == CHECKSUM
        except ReplacedError:
            now = as_it_is(fs, piece)
            if now is None:
                for _ in walk_piece(fs, piece, options):
                    pass  # raises if its offsets are gone
                return
            piece = now
            continue
        yield piece.path, _segment_columns(piece, summary)
        return


def _segment_columns(piece: SegmentPiece, summary: _Summary) -> Mapping[str, Any]:
    stamp = np.array([summary.max_timestamp], dtype=np.int64)
    return {
        "baseOffset": [piece.base_offset],
        "nextOffset": [summary.next_offset],
        "size": [piece.size],
        "validBytes": [summary.valid_bytes],
        "modified": timestamps(np.array([piece.modified_ns // 1_000_000], dtype=np.int64)),
        "isActive": [piece.active],
        "batches": [summary.batches],
        "records": [None if summary.has_legacy else summary.records],
        "damagedBatches": [summary.damaged],
        "maxTimestamp": _masked(timestamps(stamp), stamp < 0),
        "hasOffsetIndex": [piece.indexes[0]],
        "hasTimeIndex": [piece.indexes[1]],
        "hasTransactionIndex": [piece.indexes[2]],
    }


# --- the view findings ----------------------------------------------------------------------------------------


def _findings(fs: FileSystem, piece: SegmentPiece, options: ReadOptions) -> Iterator[Rows]:
    for step in walk_piece(fs, piece, options):
        found = [part for part in ([step] if isinstance(step, Damage) else decoded(step)) if isinstance(part, Damage)]
        if found:
            yield (
                found[0].path,
                {
                    "position": [damage.position for damage in found],
                    "size": [damage.size for damage in found],
                    "firstOffset": [damage.first_offset for damage in found],
                    "lastOffset": [damage.last_offset for damage in found],
                    "kind": [damage.kind for damage in found],
                    "reason": [damage.reason for damage in found],
                },
            )


_VIEWS: dict[str, Callable[[FileSystem, SegmentPiece, ReadOptions], Iterator[Rows]]] = {
    BATCHES: _batches,
    SEGMENTS: _segments,
    FINDINGS: _findings,
}
