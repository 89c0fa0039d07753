"""Planning a read: partitions and offset ranges → splits, without reading what will be read.

A split is what one Spark task reads: one or several pieces of segments. Steps, for each partition:

1. Segments outside the range of offsets are left out; the offset index narrows the first and the last one.
2. A piece larger than the target is cut into equal parts, at positions of the offset index where a batch with a
   right checksum begins; a segment without index stays whole.
3. Pieces are packed, in order, until a split is full.

A piece holds all that its reader must know, as strings and numbers: bytes, offsets, aborted transactions, and what
the file looked like, so that a segment that a broker rewrote meanwhile is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from seglog.layout import INT64_MAX
from seglog.log.listing import SegmentFiles
from seglog.log.transaction_index import AbortedTransaction
from seglog.model import Isolation, TopicPartition
from seglog.spark.bounds import OffsetRange, batch_ranges, indexed_position
from seglog.spark.discovery import PartitionLog, batch_at, find_partitions, permitted
from seglog.spark.options import ReadOptions
from seglog.spark.schema import SEGMENTS
from seglog.storage.filesystem import FileSystem

MOST_SPLIT_BYTES = 256 << 20
LEAST_SPLIT_BYTES = 32 << 20
_WANTED_SPLITS = 6  # a task costs some 25 ms, and cores are few where logs are small
_CUT_TRIES = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `start` to `end` of a segment's `.log`, which begin and end at batches.

    Records are wanted from offset `first_offset` to `behind_offset` (exclusive). `size` and `modified_ms` are the
    file's when it was planned; `active` is the last segment, which may have grown since and may end in a torn batch.
    `aborted` holds (producer id, first offset, offset of the marker) of the transactions to drop. The index flags
    are for the view `segments`. What follows these bytes in the log begins at offset `next_offset`.
    """

    topic: str
    partition: int
    path: str
    base_offset: int
    start: int
    end: int
    size: int
    modified_ms: int
    active: bool
    first_offset: int = 0
    behind_offset: int = INT64_MAX
    aborted: tuple[tuple[int, int, int], ...] = ()
    indexes: tuple[bool, bool, bool] = (True, True, False)
    next_offset: int = INT64_MAX

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads, in order."""

    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return sum(piece.bytes for piece in self.pieces)


@permitted()
def plan_splits(fs: FileSystem, options: ReadOptions) -> list[Split]:
    """The splits of a batch query over everything the options name. Errors are those of finding and bounding."""
    partitions = find_partitions(fs, options)
    return splits_of(partitions, batch_ranges(partitions, options), options)


def splits_of(
    partitions: Iterable[PartitionLog], ranges: Mapping[TopicPartition, OffsetRange], options: ReadOptions
) -> list[Split]:
    """The splits that cover these ranges of offsets; partitions without a range are not read."""
    pieces = [
        piece
        for log in partitions
        if log.topic_partition in ranges
        for piece in pieces_of(log, ranges[log.topic_partition], options)
    ]
    target = target_bytes(sum(piece.bytes for piece in pieces), options)
    if options.view != SEGMENTS:
        logs = {log.topic_partition: log for log in partitions}
        pieces = [
            part for piece in pieces for part in cut(logs[TopicPartition(piece.topic, piece.partition)], piece, target)
        ]
    return pack(pieces, target)


def target_bytes(total: int, options: ReadOptions) -> int:
    """How large a split may be: as asked for, else a share of the whole between 32 and 256 MiB."""
    target = options.max_partition_bytes or min(max(total // _WANTED_SPLITS, LEAST_SPLIT_BYTES), MOST_SPLIT_BYTES)
    if options.min_partitions:
        target = min(target, max(1, total // options.min_partitions))
    return target


def pieces_of(log: PartitionLog, wanted: OffsetRange, options: ReadOptions) -> Iterator[Piece]:
    """One piece for each segment that may hold wanted offsets."""
    segments = log.segments
    aborted: tuple[AbortedTransaction, ...] = ()
    if options.isolation == Isolation.READ_COMMITTED:
        aborted = log.aborted_transactions
    for i, segment in enumerate(segments):
        active = i == len(segments) - 1
        behind = INT64_MAX if active else segments[i + 1].base_offset
        if behind <= wanted.first or segment.base_offset >= wanted.behind or wanted.first == wanted.behind:
            continue
        piece = replace(_piece(log, segment, wanted, active), next_offset=behind)
        if options.view != SEGMENTS:
            piece = narrowed(log, segment, piece)
        if piece.bytes > 0 or options.view == SEGMENTS:
            yield _with_aborted(piece, aborted, segment.base_offset, min(behind, wanted.behind))


def _piece(log: PartitionLog, segment: SegmentFiles, wanted: OffsetRange, active: bool) -> Piece:
    indexes = (segment.offset_index, segment.time_index, segment.transaction_index)
    return Piece(
        topic=log.topic_partition.topic,
        partition=log.topic_partition.partition,
        path=str(segment.log),
        base_offset=segment.base_offset,
        start=0,
        end=segment.size,
        size=segment.size,
        modified_ms=segment.modified_ms,
        active=active,
        first_offset=wanted.first,
        behind_offset=wanted.behind,
        indexes=(indexes[0] is not None, indexes[1] is not None, indexes[2] is not None),
    )


def narrowed(log: PartitionLog, segment: SegmentFiles, piece: Piece) -> Piece:
    """The piece without the bytes that the offset index shows to be outside its offsets."""
    start = indexed_position(log.fs, segment, piece.first_offset)
    end = piece.end
    if piece.behind_offset < INT64_MAX:
        entries = log.index_of(segment)
        # the entry behind the first one that reaches the end: an old broker's entry speaks of several batches
        later = np.flatnonzero(entries[:, 0] >= piece.behind_offset)[1:]
        for position in entries[later[:_CUT_TRIES], 1].tolist():
            row = batch_at(log.fs, segment.log, position, segment.size)
            if position > start and row is not None and row["magic"] >= 2 and row["base_offset"] >= piece.behind_offset:
                end = position
                break
    return replace(piece, start=start, end=max(end, start))


def cut(log: PartitionLog, piece: Piece, target: int) -> list[Piece]:
    """The piece in parts of at most about `target` bytes, cut where batches begin."""
    segment = next((s for s in log.segments if str(s.log) == piece.path), None)
    if piece.bytes <= target or segment is None:
        return [piece]
    positions = log.index_of(segment)[:, 1]
    positions = positions[(positions > piece.start) & (positions < piece.end)]
    parts = min(-(-piece.bytes // target), len(positions) + 1)
    cuts, begins = [piece.start], [0]
    for i in range(1, parts):
        wanted = piece.start + i * piece.bytes // parts
        at = int(np.searchsorted(positions, max(wanted, cuts[-1] + 1)))
        for position in positions[at : at + _CUT_TRIES].tolist():
            row = batch_at(log.fs, segment.log, position, piece.size)
            if row is not None:
                cuts.append(position)
                begins.append(int(row["base_offset"]))
                break
    following = zip(cuts, [*cuts[1:], piece.end], [*begins[1:], piece.next_offset], strict=True)
    return [replace(piece, start=start, end=end, next_offset=offset) for start, end, offset in following]


def pack(pieces: Sequence[Piece], target: int) -> list[Split]:
    """Consecutive pieces together until a split holds `target` bytes."""
    splits: list[Split] = []
    waiting: list[Piece] = []
    held = 0
    for piece in pieces:
        if waiting and held + piece.bytes > target:
            splits.append(Split(tuple(waiting)))
            waiting, held = [], 0
        waiting.append(piece)
        held += piece.bytes
    return [*splits, Split(tuple(waiting))] if waiting else splits


def _with_aborted(piece: Piece, aborted: Iterable[AbortedTransaction], first: int, behind: int) -> Piece:
    """The piece with the aborted transactions that reach into offsets `first` to `behind`."""
    touching = [
        (entry.producer_id, entry.first_offset, entry.last_offset)
        for entry in aborted
        if entry.last_offset >= first and entry.first_offset < behind
    ]
    return replace(piece, aborted=tuple(touching)) if touching else piece
