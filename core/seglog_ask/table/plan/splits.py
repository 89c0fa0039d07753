"""Plans a read: partitions → ranges of offsets → splits, without reading what will be read.

The range of offsets of each partition (Spark: KafkaOffsetReader):

1. A rule gives an offset, -2 (log start), -1 (log end) or a timestamp. A timestamp means the first record that is not
   older, found through the time index.
2. read_committed ends at the last stable offset.
3. A range outside the log is data loss: refused, or with `failOnDataLoss` false cut to what the log holds.

A split is what one Spark task reads: one or several pieces of segments. For each partition:

4. Segments outside the range are left out; the offset index narrows the first and the last one.
5. A piece larger than the target is cut into equal parts, at positions of the offset index at which a batch with a
   valid checksum begins. A segment without an index stays whole.
6. Consecutive pieces are packed until a split is full.

A piece holds everything its reader must know, as strings and numbers: bytes, offsets, aborted transactions, and the
file's identity, so that the reader notices if a broker has rewritten the segment. Each piece also knows its share of
the offsets; shares never overlap. If a file has been replaced, its replacement is read by those shares.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from seglog.errors import GONE, ConfigError, CorruptRecordError, OffsetOutOfRangeError
from seglog.format.decoder import wrong_checksum
from seglog.layout import INT64_MAX
from seglog.log.indexes import AbortedTransaction
from seglog.log.lookup import first_record
from seglog.log.places import SegmentPlaces
from seglog.model import Isolation
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.resync import PlausibleOffsets
from seglog.scan.selection import Selection
from seglog.storage.filesystem import FileSystem
from seglog_ask.table.plan.discovery import find_partitions
from seglog_ask.table.plan.files import StoredLog, where_stored
from seglog_ask.table.plan.options import EARLIEST, LATEST, OffsetRule, ReadOptions
from seglog_ask.table.plan.partition_log import Identity, PartitionLog, permitted, settled
from seglog_ask.table.plan.schema import SEGMENTS

_logger = logging.getLogger("seglog.table.splits")

UNBOUNDED = INT64_MAX
MOST_SPLIT_BYTES = 256 << 20
LEAST_SPLIT_BYTES = 32 << 20
_LOOK_BYTES = 64 << 10
_WANTED_SPLITS = 6  # a task costs about 25 ms, and small logs are read on few cores


# --- ranges of offsets ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `first` to `stop` (exclusive) of a partition. A `stop` of UNBOUNDED means to the end of the files.

    `to_the_end`: everything stable was asked for, so that the end of the files counts even if `stop` comes first.
    """

    first: int
    stop: int
    to_the_end: bool = False


def batch_range(log: PartitionLog, options: ReadOptions) -> OffsetRange:
    """Returns the offsets that a batch query reads of a partition.

    Raises ConfigError if the range ends before it begins, and OffsetOutOfRangeError for offsets that the log does not
    hold, unless `failOnDataLoss` is false.
    """
    _check_present(log, options)
    starting, ending = (_of_partition(rule, log) for rule in (options.starting, options.ending))
    first = _resolved(log, starting, options, starts=True)
    if starting.kind != "earliest":
        first = within(log, first, "starting offset", options.fail_on_data_loss)
    stop = first if starting.kind != "earliest" and first >= log.log_end_offset else UNBOUNDED
    if ending.kind not in ("latest", "earliest") and stop == UNBOUNDED:
        stop = _resolved(log, ending, options, starts=False)
        if stop != UNBOUNDED:
            stop = within(log, stop, "ending offset", options.fail_on_data_loss)
    to_the_end = options.isolation == Isolation.READ_COMMITTED and stop == UNBOUNDED
    if options.isolation == Isolation.READ_COMMITTED:
        # even if everything is stable now: what a writer appends later may not be
        stop = min(stop, max(log.last_stable_offset, first))
    if stop < first:
        raise ConfigError(f"{log.topic_partition}: the ending offset {stop} is before the starting offset {first}")
    return OffsetRange(first, stop, to_the_end)


def _check_present(log: PartitionLog, options: ReadOptions) -> None:
    """Reports the loss of a partition without segments that had acknowledged records."""
    start, mark = log.log_start_checkpoint, log.high_watermark or 0
    if not log.names and mark > start:
        lost = f"offsets {start} to {mark - 1} are missing"
        options.report_loss(f"{log.directory}: {lost}: the high watermark was {mark}, and no segment is there")


def starting_offset(log: PartitionLog, options: ReadOptions) -> int:
    """Returns the offset at which reading begins in this partition, with -2 and -1 resolved."""
    return _resolved(log, _of_partition(options.starting, log), options, starts=True)


def _of_partition(rule: OffsetRule, log: PartitionLog) -> OffsetRule:
    """Returns the rule for this partition; one that only names other partitions does not bound it."""
    is_other = rule.kind in ("offsets", "timestamps") and rule.of(log.topic_partition) is None
    return OffsetRule("earliest") if is_other else rule


def _resolved(log: PartitionLog, rule: OffsetRule, options: ReadOptions, starts: bool) -> int:
    if rule.kind == "earliest":
        return log.log_start_offset
    given = rule.of(log.topic_partition)
    if rule.kind == "offsets" and given is not None and given != LATEST:
        return log.log_start_offset if given == EARLIEST else given
    if rule.kind in ("timestamp", "timestamps"):
        # before the log's end is determined: a growing log must not end before the offset found here
        timestamp = rule.timestamp if given is None else given
        skips = options.on_corrupt == "skip"
        offset = offset_for_timestamp(log, timestamp, skip_damage=skips, check=options.verify_crc)
        if offset is not None:
            return offset
        if starts and options.missing_timestamp == "error":
            raise ConfigError(
                f"{log.topic_partition}: no offset matches the timestamp {timestamp}: every record is older"
                " (startingOffsetsByTimestampStrategy=latest begins at the end)"
            )
    return log.log_end_offset if starts else UNBOUNDED


def within(log: PartitionLog, offset: int, what: str, fail: bool) -> int:
    """Returns `offset` if the log holds it. Otherwise raises OffsetOutOfRangeError, or returns the nearest one."""
    first, stop = log.log_start_offset, log.log_end_offset
    if first <= offset <= stop:
        return offset
    if fail:
        subject = f"{log.topic_partition}: {what} (failOnDataLoss=false takes the nearest one there is)"
        raise OffsetOutOfRangeError(offset, first, stop, subject)
    nearest = min(max(offset, first), stop)
    place = f"{log.topic_partition}: {what} {offset}"
    _logger.warning("%s is outside [%d, %d]; going on at %d", place, first, stop, nearest)
    return nearest


def check_covered(partitions: Sequence[PartitionLog], rule: OffsetRule, option: str, where: Selection) -> None:
    """Raises ConfigError if the rule names a partition that is not among these.

    Ignores partitions that `where` leaves out, as they were not searched for.
    """
    if rule.kind not in ("offsets", "timestamps"):
        return
    unknown = {key for key, _ in rule.offsets if where.chooses(key)} - {log.topic_partition for log in partitions}
    if unknown:
        name = option if rule.kind == "offsets" else f"{option}ByTimestamp"
        raise ConfigError(f"{name} names partitions that do not exist: {', '.join(map(str, sorted(unknown)))}")


def offset_for_timestamp(
    log: PartitionLog, timestamp: int, *, skip_damage: bool = False, check: bool = True
) -> int | None:
    """Returns the offset of the first record from the log start on with at least this timestamp, or None.

    Works like `log.lookup.find_offset`, but searches a segment whose time index may be unfinished (the last segment of
    a live log, or one without an index) instead of trusting the index, and past damage if that is skipped. Otherwise
    damage that may hold the record raises CorruptRecordError; a wrong checksum only with `check`.
    """
    for i in log.chosen:
        if log.is_older(i, timestamp):
            continue
        segment, likely = log.segment(i).files, PlausibleOffsets(least=log.names[i].base_offset)
        start = log.places(i).start_of_time(timestamp).position
        for step in LogWalk(
            log.fs, segment.log, start, segment.size, offsets=likely, chunk_bytes=_LOOK_BYTES, check=check
        ):
            is_torn_end = isinstance(step, Gap) and step.at_end and i == len(log.names) - 1
            if not skip_damage and not is_torn_end:
                _require_good(segment.log, step)
            if isinstance(step, Gap):
                continue
            good = step.batches[step.valid]
            record = first_record(segment.log, good, step.records, timestamp, log.log_start_offset)
            if record is not None:
                return record.offset
    return None


def _require_good(log: Path, step: WalkedEntries | Gap) -> None:
    """Raises CorruptRecordError for damage."""
    if isinstance(step, Gap):
        raise CorruptRecordError(log, step.why, step.position)
    if not step.valid.all():
        raise wrong_checksum(log, step.batches[np.flatnonzero(~step.valid)[0]])


# --- splits ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """Bytes `start` to `end` of a segment's `.log`, which begin and end at batch boundaries.

    Records are wanted from offset `first_offset` to `stop_offset` (exclusive). `size`, `modified_ns` and `inode` are
    the file's at planning time. `active` marks the last segment, which may have grown since and may end in a torn
    batch. `next_offset` is the offset at which the log continues after these bytes.

    `least_offset` and `before` are for a file that has been replaced when it is read: the first offset of this piece's
    share, and the base offset and identity of the preceding segment, into which a cleaner would merge the records of a
    segment that vanished. `version` is an object's ETag; `stored` describes a log that an object stores in another
    form. `acknowledged` is the partition's checkpointed high watermark, -1 if there is none. `vouched`: a tier's or a
    commit's own list tells whether a segment is missing. `aborted` holds (producer id, first offset, offset of the
    marker) of the transactions to drop. `indexes` says which index files exist (offset, time, transaction), for the
    view `segments`.
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
    acknowledged: int = -1
    vouched: bool = False

    @property
    def bytes(self) -> int:
        """The bytes to read."""
        return self.end - self.start

    @property
    def share(self) -> tuple[int, int]:
        """The offsets, end-exclusive, that this piece alone reads."""
        return self.least_offset, min(self.next_offset, self.stop_offset)


@dataclass(frozen=True, slots=True)
class Split:
    """The pieces that one task reads, in order."""

    pieces: tuple[SegmentPiece, ...]

    @property
    def bytes(self) -> int:
        """The bytes to read."""
        return sum(piece.bytes for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition as it was when its pieces were made."""

    log: PartitionLog
    pieces: tuple[SegmentPiece, ...]


@permitted()
def plan_splits(fs: FileSystem, options: ReadOptions) -> list[Split]:
    """Returns the splits of a batch query. Raises the errors of `find_partitions` and `batch_range`.

    Raises ConfigError if offsets are given for partitions that do not exist.
    """
    partitions = find_partitions(fs, options)
    check_covered(partitions, options.starting, "startingOffsets", options.where)
    check_covered(partitions, options.ending, "endingOffsets", options.where)
    range_of = partial(batch_range, options=options)
    return splits_of([plan_partition(log, range_of, options) for log in partitions], options)


def plan_partition(
    log: PartitionLog, range_of: Callable[[PartitionLog], OffsetRange], options: ReadOptions
) -> PlannedPartition:
    """Returns the pieces that cover a range of a partition, which is listed again if it changes meanwhile."""
    return PlannedPartition(*settled(log, lambda log: tuple(pieces_of(log, range_of(log), options))))


def splits_of(partitions: Sequence[PlannedPartition], options: ReadOptions) -> list[Split]:
    """Returns the splits of these partitions' pieces."""
    target = target_bytes(sum(piece.bytes for one in partitions for piece in one.pieces), options)
    parts: list[SegmentPiece] = []
    for one in partitions:
        for piece in one.pieces:
            try:
                parts += [piece] if options.view == SEGMENTS else cut(one.log, piece, target)
            except GONE:
                parts.append(piece)  # replaced since: its reader finds the replacement
    return pack(parts, target)


def target_bytes(total: int, options: ReadOptions) -> int:
    """Returns the size limit of a split: as requested, else a sixth of the total, between 32 and 256 MiB."""
    target = options.max_partition_bytes or min(max(total // _WANTED_SPLITS, LEAST_SPLIT_BYTES), MOST_SPLIT_BYTES)
    if options.min_partitions:
        target = min(target, max(1, total // options.min_partitions))
    return target


def pieces_of(
    log: PartitionLog, wanted: OffsetRange, options: ReadOptions, segments: Container[int] | None = None
) -> Iterator[SegmentPiece]:
    """Yields a piece for each segment that may hold wanted offsets. Raises FileNotFoundError if a segment is gone.

    `segments` are the indexes of the only segments to read, None for all.
    """
    where = options.where
    to_the_end = wanted.to_the_end and where.end_offset is None and options.view != SEGMENTS
    within = where.within(Selection(wanted.first, wanted.stop))
    wanted = OffsetRange(within.first_offset or 0, wanted.stop if within.end_offset is None else within.end_offset)
    aborted: tuple[AbortedTransaction, ...] = ()
    if options.isolation == Isolation.READ_COMMITTED:
        aborted = log.aborted_transactions
    for i in log.chosen:
        base, stop = log.names[i].base_offset, log.end_of(i)
        if stop <= wanted.first or base >= wanted.stop or wanted.first >= wanted.stop:
            continue
        if segments is not None and i not in segments:
            continue
        if where.first_timestamp is not None and where.first_timestamp > 0 and log.is_older(i, where.first_timestamp):
            continue
        piece = _piece(log, i, wanted)
        if options.view != SEGMENTS:
            piece = _narrowed(piece, log.places(i))
        if piece.bytes > 0 or options.view == SEGMENTS or _may_lack_records(piece):
            yield _with_aborted(piece, aborted, base, min(stop, wanted.stop))
    if to_the_end and log.chosen and (segments is None or log.chosen[-1] in segments):
        yield from _end_piece(log, wanted)


def _end_piece(log: PartitionLog, wanted: OffsetRange) -> Iterator[SegmentPiece]:
    """Yields the bytes after the last batch as a piece without records, if there are any or batches are missing."""
    piece, tail = _piece(log, log.chosen[-1], wanted), log.tail
    if piece.active and (tail.position < piece.size or tail.next_offset < piece.acknowledged):
        begin = max(tail.next_offset, piece.base_offset)
        yield replace(piece, start=tail.position, first_offset=INT64_MAX, stop_offset=INT64_MAX, least_offset=begin)


def _may_lack_records(piece: SegmentPiece) -> bool:
    """True for an empty segment that should hold offsets: its reader tells whether a cleaner emptied it."""
    return piece.size == 0 and not piece.vouched and (not piece.active or piece.acknowledged > piece.base_offset)


def _piece(log: PartitionLog, index: int, wanted: OffsetRange) -> SegmentPiece:
    """Returns a whole segment as a piece."""
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
        acknowledged=-1 if log.is_vouched or log.high_watermark is None else log.high_watermark,
        vouched=log.is_vouched,
    )


def _narrowed(piece: SegmentPiece, places: SegmentPlaces) -> SegmentPiece:
    """Returns the piece without the bytes that the offset index shows to be outside its offsets."""
    start = places.start(piece.first_offset).position
    end = places.end(piece.stop_offset, start) if piece.stop_offset < INT64_MAX else piece.end
    return replace(piece, start=start, end=max(end, start))


def _with_aborted(piece: SegmentPiece, aborted: Iterable[AbortedTransaction], first: int, stop: int) -> SegmentPiece:
    """Returns the piece with the aborted transactions that overlap offsets `first` to `stop`."""
    touching = [
        (entry.producer_id, entry.first_offset, entry.last_offset)
        for entry in aborted
        if entry.last_offset >= first and entry.first_offset < stop
    ]
    return replace(piece, aborted=tuple(touching)) if touching else piece


def cut(log: PartitionLog, piece: SegmentPiece, target: int) -> list[SegmentPiece]:
    """Returns the piece in parts of about `target` bytes at most, cut where batches begin."""
    if piece.bytes <= target:
        return [piece]
    parts = -(-piece.bytes // target)
    places = log.places(log.place_of(piece.base_offset))
    cuts = [(piece.start, piece.share[0]), *places.cuts((piece.start, piece.end), parts, piece.share)]
    ends = [*cuts[1:], (piece.end, piece.next_offset)]
    return [
        replace(piece, start=start, end=end, least_offset=first, next_offset=following)
        for (start, first), (end, following) in zip(cuts, ends, strict=True)
    ]


def pack(pieces: Sequence[SegmentPiece], target: int) -> list[Split]:
    """Returns consecutive pieces in splits of at most `target` bytes; a larger piece has a split of its own."""
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
