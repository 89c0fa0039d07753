"""The records of a piece that a consumer sees, as columns of the engine; what does not decode is damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from seglog.format.columns import STATUS_REASONS, Records
from seglog.layout import INT64_MAX
from seglog.scan.selection import EVERYTHING, Selection
from seglog.storage.filesystem import FileSystem
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.splits import SegmentPiece
from seglog_ask.table.read.damage import CONTENTS, Damage, damage_at, handle
from seglog_ask.table.read.reading import Batches, shown, walk_piece

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
        for part in decoded(step, options.where):
            if isinstance(part, Damage):
                on_damage(part, options)
            elif len(part):
                yield step.piece.path, part


def decoded(step: Batches, where: Selection = EVERYTHING) -> Iterator[Records | Damage]:
    """Yields the visible records of good batches within the wanted offsets and times, and undecodable batches.

    The offsets of `where` are those of the piece already.
    """
    piece = step.piece
    if piece.first_offset > piece.base_offset or piece.stop_offset < INT64_MAX:
        where = replace(where, first_offset=piece.first_offset, end_offset=piece.stop_offset)
    batches = shown(step.batches, piece)
    if where.first_timestamp is not None:
        batches = batches[where.may_be_in(batches)]
    for records in step.walked.records(batches):
        for i in np.flatnonzero(records.status).tolist() if not records.rows_before else ():
            yield damage_at(piece, records.batches[i], CONTENTS, STATUS_REASONS[int(records.status[i])])
        if records.status.any():
            records = replace(records, rows=records.rows[records.status[records.rows["batch"]] == 0])
        yield Records(records.arena, where.rows_of(records), records.batches, records.status)


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
        batches = shown(step.batches, step.piece)
        first, last, count = batches["base_offset"], batches["last_offset"], batches["count"].astype(np.int64)
        tells = (batches["magic"] >= 2) & (count >= 0) & (count <= last - first + 1)
        tells &= (first >= step.piece.first_offset) & (last < step.piece.stop_offset)
        yield step.piece.path, int(count[tells].sum())
        for part in decoded(replace(step, batches=batches[~tells])) if not tells.all() else ():
            if isinstance(part, Damage):
                on_damage(part, options)
            else:
                yield step.piece.path, len(part)
