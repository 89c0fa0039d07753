"""Planning a read: partitions and offset ranges → splits, without reading what will be read.

A split is what one Spark task reads: one or several pieces of segments. Steps, for each partition:

1. Segments outside the range of offsets are left out; the offset index narrows the first and the last one.
2. A piece larger than the target is cut into equal parts, at positions of the offset index where a batch with a
   right checksum begins; a segment without index stays whole.
3. Pieces are packed, in order, until a split is full.

A piece holds all that its reader must know, as strings and numbers: bytes, offsets, aborted transactions, and what
the file looked like, so that a segment that a broker rewrote meanwhile is noticed. Each also knows its share of the
offsets, of which no two pieces have one in common: what replaced a file is read by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from seglog.layout import INT64_MAX
from seglog.log.indexes import AbortedTransaction
from seglog.model import Isolation
from seglog.scan.listing import SegmentFiles
from seglog.spark.bounds import OffsetRange, batch_range, check_batch_offsets, indexed_position
from seglog.spark.committed import StoredLog, where_stored
from seglog.spark.discovery import PartitionLog, batch_at, find_partitions, first_offset_at, permitted, settled
from seglog.spark.options import ReadOptions
from seglog.spark.schema import SEGMENTS
from seglog.spark.segment_names import GONE, Identity
from seglog.storage.filesystem import FileSystem

MOST_SPLIT_BYTES = 256 << 20
LEAST_SPLIT_BYTES = 32 << 20
_WANTED_SPLITS = 6  # a task costs some 25 ms, and cores are few where logs are small
_CUT_TRIES = 4


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """Bytes `start` to `end` of a segment's `.log`, which begin and end at batches.

    Records are wanted from offset `first_offset` to `stop_offset` (exclusive). `size`, `modified_ns` and `inode` are
    the file's when it was planned; `active` is the last segment, which may have grown since and may end in a torn
    batch. What follows these bytes in the log begins at offset `next_offset`. `least_offset` and `before` are for a
    file that is another one by then: the first offset of all that this piece is to read, and the base offset and
    identity of the segment in front, which a cleaner would put the records of a segment that vanished into. `version`
    is an object's ETag; `stored` tells of a log that lies in an object otherwise than byte for byte.
    `aborted` holds (producer id, first offset, offset of the marker) of the transactions to drop. The index flags
    are for the view `segments`.
    """

    topic: str
    partition: int
    path: str
    base_offset: int
    start: int
    end: int
    size: int
    modified_ns: int
    active: bool
    first_offset: int = 0
    stop_offset: int = INT64_MAX
    aborted: tuple[tuple[int, int, int], ...] = ()
    indexes: tuple[bool, bool, bool] = (True, True, False)
    inode: int = 0
    least_offset: int = 0
    next_offset: int = INT64_MAX
    before: tuple[int, Identity] | None = None
    version: str = ""
    stored: StoredLog | None = None

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return self.end - self.start

    @property
    def share(self) -> tuple[int, int]:
        """The offsets that this piece of all is to read, the last one exclusive."""
        return self.least_offset, min(self.next_offset, self.stop_offset)


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads, in order."""

    pieces: tuple[SegmentPiece, ...]

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return sum(piece.bytes for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition as it was when its pieces were made."""

    log: PartitionLog
    pieces: tuple[SegmentPiece, ...]


@permitted()
def plan_splits(fs: FileSystem, options: ReadOptions) -> list[Split]:
    """The splits of a batch query over everything the options name. Errors are those of finding and bounding."""
    partitions = find_partitions(fs, options)
    check_batch_offsets(partitions, options)
    range_of = partial(batch_range, options=options)
    return splits_of([plan_partition(log, range_of, options) for log in partitions], options)


def plan_partition(
    log: PartitionLog, range_of: Callable[[PartitionLog], OffsetRange], options: ReadOptions
) -> PlannedPartition:
    """The pieces that cover a range of offsets of a partition; where it changes under the work, it is listed again."""
    return PlannedPartition(*settled(log, lambda log: tuple(pieces_of(log, range_of(log), options))))


def splits_of(partitions: Sequence[PlannedPartition], options: ReadOptions) -> list[Split]:
    """The splits of these partitions' pieces."""
    target = target_bytes(sum(piece.bytes for one in partitions for piece in one.pieces), options)
    parts = [
        part
        for one in partitions
        for piece in one.pieces
        for part in ([piece] if options.view == SEGMENTS else _cut(one.log, piece, target))
    ]
    return pack(parts, target)


def _cut(log: PartitionLog, piece: SegmentPiece, target: int) -> list[SegmentPiece]:
    """The piece in parts, or whole where the segment was replaced since: its reader finds out what by."""
    try:
        return cut(log, piece, target)
    except GONE:
        return [piece]


def target_bytes(total: int, options: ReadOptions) -> int:
    """How large a split may be: as asked for, else a share of the whole between 32 and 256 MiB."""
    target = options.max_partition_bytes or min(max(total // _WANTED_SPLITS, LEAST_SPLIT_BYTES), MOST_SPLIT_BYTES)
    if options.min_partitions:
        target = min(target, max(1, total // options.min_partitions))
    return target


def pieces_of(log: PartitionLog, wanted: OffsetRange, options: ReadOptions) -> Iterator[SegmentPiece]:
    """One piece for each segment that may hold wanted offsets. FileNotFoundError when one is gone."""
    condition = options.where
    wanted = OffsetRange(max(wanted.first, condition.offset.first), min(wanted.stop, condition.offset.stop))
    aborted: tuple[AbortedTransaction, ...] = ()
    if options.isolation == Isolation.READ_COMMITTED:
        aborted = log.aborted_transactions
    for i in log.chosen:
        base, stop = log.names[i].base_offset, log.end_of(i)
        if stop <= wanted.first or base >= wanted.stop or wanted.first >= wanted.stop:
            continue
        if condition.timestamp.first > 0 and log.is_older(i, condition.timestamp.first):
            continue
        piece = _piece(log, i, wanted)
        if options.view != SEGMENTS:
            piece = narrowed(log, log.segment(i).files, piece)
        if piece.bytes > 0 or options.view == SEGMENTS:
            yield _with_aborted(piece, aborted, base, min(stop, wanted.stop))


def _piece(log: PartitionLog, index: int, wanted: OffsetRange) -> SegmentPiece:
    segment, name = log.segment(index), log.names[index]
    size, modified_ns, inode = segment.identity
    path, stored = where_stored(log.fs, name.log)
    return SegmentPiece(
        topic=log.topic_partition.topic,
        partition=log.topic_partition.partition,
        path=str(path),
        base_offset=name.base_offset,
        start=0,
        end=size,
        size=size,
        modified_ns=modified_ns,
        active=index == len(log.names) - 1,
        first_offset=wanted.first,
        stop_offset=wanted.stop,
        indexes=(name.offset_index is not None, name.time_index is not None, name.transaction_index is not None),
        inode=inode,
        least_offset=max(name.base_offset, wanted.first),
        next_offset=log.end_of(index),
        before=(log.names[index - 1].base_offset, log.segment(index - 1).identity) if index else None,
        version=segment.version,
        stored=stored,
    )


def narrowed(log: PartitionLog, segment: SegmentFiles, piece: SegmentPiece) -> SegmentPiece:
    """The piece without the bytes that the offset index shows to be outside its offsets."""
    start = indexed_position(log.fs, segment, piece.first_offset)
    end = piece.end
    if piece.stop_offset < INT64_MAX:
        entries = log.index_of(segment)
        # the entry after the first one that reaches the end: an old broker's entry speaks of several batches
        later = np.flatnonzero(entries[:, 0] >= piece.stop_offset)[1:]
        for position in entries[later[:_CUT_TRIES], 1].tolist():
            row = batch_at(log.fs, segment.log, position, segment.size)
            if position > start and row is not None and row["magic"] >= 2 and row["base_offset"] >= piece.stop_offset:
                end = position
                break
    return replace(piece, start=start, end=max(end, start))


def cut(log: PartitionLog, piece: SegmentPiece, target: int) -> list[SegmentPiece]:
    """The piece in parts of at most about `target` bytes, cut where batches begin."""
    if piece.bytes <= target:
        return [piece]
    segment = log.segment(log.place_of(piece.base_offset)).files
    positions = log.index_of(segment)[:, 1]
    positions = positions[(positions > piece.start) & (positions < piece.end)]
    parts = min(-(-piece.bytes // target), len(positions) + 1)
    cuts = [(piece.start, piece.share[0])]
    for i in range(1, parts):
        wanted = piece.start + i * piece.bytes // parts
        at = int(np.searchsorted(positions, max(wanted, cuts[-1][0] + 1)))
        for position in positions[at : at + _CUT_TRIES].tolist():
            offset = first_offset_at(log.fs, segment.log, position, piece.size)
            if offset is not None and cuts[-1][1] < offset < piece.share[1]:
                cuts.append((position, offset))
                break
    ends = [*cuts[1:], (piece.end, piece.next_offset)]
    return [
        replace(piece, start=start, end=end, least_offset=first, next_offset=following)
        for (start, first), (end, following) in zip(cuts, ends, strict=True)
    ]


def pack(pieces: Sequence[SegmentPiece], target: int) -> list[Split]:
    """Consecutive pieces together until a split holds `target` bytes."""
    splits: list[Split] = []
    waiting: list[SegmentPiece] = []
    held = 0
    for piece in pieces:
        if waiting and held + piece.bytes > target:
            splits.append(Split(tuple(waiting)))
            waiting, held = [], 0
        waiting.append(piece)
        held += piece.bytes
    return [*splits, Split(tuple(waiting))] if waiting else splits


def _with_aborted(piece: SegmentPiece, aborted: Iterable[AbortedTransaction], first: int, stop: int) -> SegmentPiece:
    """The piece with the aborted transactions that reach into offsets `first` to `stop`."""
    touching = [
        (entry.producer_id, entry.first_offset, entry.last_offset)
        for entry in aborted
        if entry.last_offset >= first and entry.first_offset < stop
    ]
    return replace(piece, aborted=tuple(touching)) if touching else piece
