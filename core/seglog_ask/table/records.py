"""The records of a piece that a consumer sees, as columns of the engine; what does not decode is damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from seglog import layout
from seglog.format.columns import STATUS_REASONS, Records
from seglog.layout import INT64_MAX
from seglog.storage.filesystem import FileSystem
from seglog_ask.table.damage import CONTENTS, Damage, damage_at, handle
from seglog_ask.table.options import ReadOptions
from seglog_ask.table.reading import Batches, not_shown, walk_piece
from seglog_ask.table.splits import SegmentPiece
from seglog_ask.table.where import ALL, Range

OnDamage = Callable[[Damage, ReadOptions], None]


def records_of(fs: FileSystem, piece: SegmentPiece, options: ReadOptions) -> Iterator[Records]:
    """Yields the records of a piece that a consumer sees, as columns. Handles damage by the options."""
    for _, records in placed_records(fs, piece, options):
        yield records


def placed_records(
    fs: FileSystem, piece: SegmentPiece, options: ReadOptions, on_damage: OnDamage = handle
) -> Iterator[tuple[str, Records]]:
    """Yields the file that the records of a piece are read from, which may have replaced its own, and the records."""
    for step in walk_piece(fs, piece, options):
        if isinstance(step, Damage):
            on_damage(step, options)
            continue
        for part in decoded(step, options.where.timestamp):
            if isinstance(part, Damage):
                on_damage(part, options)
            elif len(part):
                yield step.piece.path, part


def decoded(step: Batches, times: Range = ALL) -> Iterator[Records | Damage]:
    """Yields the visible records of good batches within the wanted offsets and times, and undecodable batches."""
    piece = step.piece
    is_whole = piece.first_offset <= piece.base_offset and piece.stop_offset == INT64_MAX
    batches = step.batches[~not_shown(step.batches, piece.aborted)]
    if times != ALL:
        batches = batches[~_older(batches, times.first)]
    for records in step.walked.records(batches):
        rows = records.rows
        for i in np.flatnonzero(records.status).tolist() if not records.rows_before else ():
            yield damage_at(piece, records.batches[i], CONTENTS, STATUS_REASONS[int(records.status[i])])
        if records.status.any():
            rows = rows[records.status[rows["batch"]] == 0]
        if len(rows) and not is_whole:
            offsets = rows["offset"]
            if offsets.min() < piece.first_offset or offsets.max() >= piece.stop_offset:
                rows = rows[(offsets >= piece.first_offset) & (offsets < piece.stop_offset)]
        if times != ALL and len(rows):
            stamps = rows["timestamp"]
            rows = rows[(stamps >= times.first) & (stamps < times.stop)]
        yield Records(records.arena, rows, records.batches, records.status)


def counted(
    fs: FileSystem, piece: SegmentPiece, options: ReadOptions, on_damage: OnDamage = handle
) -> Iterator[tuple[str, int]]:
    """Yields the file and number of the records that `placed_records` yields, from batch headers where they tell.

    A batch whose records do not decode counts as its header says.
    """
    for step in walk_piece(fs, piece, options):
        if isinstance(step, Damage):
            on_damage(step, options)
            continue
        batches = step.batches[~not_shown(step.batches, step.piece.aborted)]
        first, last, count = batches["base_offset"], batches["last_offset"], batches["count"].astype(np.int64)
        tells = (batches["magic"] >= 2) & (count >= 0) & (count <= last - first + 1)
        tells &= (first >= step.piece.first_offset) & (last < step.piece.stop_offset)
        yield step.piece.path, int(count[tells].sum())
        for part in decoded(replace(step, batches=batches[~tells])) if not tells.all() else ():
            if isinstance(part, Damage):
                on_damage(part, options)
            else:
                yield step.piece.path, len(part)


def _older(batches: np.ndarray, timestamp: int) -> np.ndarray:
    """Returns a mask of the batches that hold only older records, by their headers.

    A wrapper of magic 0 or 1 has whatever timestamp its producer gave it, unless the broker set it (log append time).
    """
    attributes = batches["attributes"]
    is_wrapper = (batches["magic"] < 2) & ((attributes & layout.CODEC_MASK) != 0)
    known: np.ndarray = ~is_wrapper | ((attributes & layout.TIMESTAMP_TYPE_MASK) != 0)
    return known & (batches["max_timestamp"] < timestamp)
