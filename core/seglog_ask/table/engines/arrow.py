"""The rows of a split as Arrow batches with the exact schema that Spark checks, in each view.

Records:

1. Walk each piece; drop control batches and those of aborted transactions before decoding anything.
2. Decode, and keep the wanted offsets.
3. Make Arrow batches (`columns`).

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
from seglog.model import Compression
from seglog.storage.filesystem import FileSystem
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.schema import BATCHES, FINDINGS, RECORDS, SEGMENTS, Field, arrow_schema
from seglog_ask.table.plan.splits import SegmentPiece, Split
from seglog_ask.table.read.damage import CHECKSUM, Damage, handle
from seglog_ask.table.read.reading import Batches, ReplacedError, as_it_is, walk_file, walk_piece
from seglog_ask.table.read.records import decoded, placed_records
from seglog_ask.table.values.columns import (
    ColumnBuilder,
    Output,
    spark_outputs,
    timestamp_types,
    timestamps,
    valid_text,
)

_CODECS = np.array([*(codec.label for codec in Compression), "unknown", "unknown", "unknown"])

Rows = tuple[str, Mapping[str, Any]]  # the file that the rows are about, and their columns


def split_batches(
    fs: FileSystem, split: Split, projection: Sequence[Field], options: ReadOptions, decoding: Sequence[Output] = ()
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a split in the view of the options, as Arrow batches with the schema of `projection`.

    `decoding` are the columns of decoded keys and values.
    """
    if options.view == RECORDS:
        yield from record_batches(fs, split, projection, options, decoding)
        return
    schema = arrow_schema(projection)
    for piece in split.pieces:
        for path, columns in _VIEWS[options.view](fs, piece, options):
            place = {"topic": valid_text(piece.topic), "partition": piece.partition, "segment": valid_text(path)}
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
    fs: FileSystem, split: Split, projection: Sequence[Field], options: ReadOptions, decoding: Sequence[Output] = ()
) -> Iterator[pa.RecordBatch]:
    """Yields the records of a split, in order, with the columns of `projection`.

    Raises CorruptRecordError at damage unless `onCorrupt` is skip, and the errors of `walk_piece`.
    """
    outputs = spark_outputs(projection, decoding)
    for piece in split.pieces:
        shown = ColumnBuilder(outputs, piece.topic, piece.partition, piece.path)
        for path, records in placed_records(fs, piece, options):
            yield from shown.of(records, path)


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
