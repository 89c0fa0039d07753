"""Walking a piece of a segment: batches to show, and damage; what every view has in common.

1. The file must be the one that was planned: a sealed segment unchanged, the active one not shorter. Where it is not,
   the partition is listed again and the same offsets are read from what replaced it: a segment that was cleaned, or
   merged with others, or split, or cut. Only offsets that no segment holds any more are data loss.
2. Walk past any damage (`scan.log_walk`); a wrong checksum, bytes that are not a batch, and offsets that cannot be
   here become `Damage`. Batches out of order, also those that the next segment claims, are damage that `onCorrupt`
   skip keeps: which one is wrong is unknown.
3. Stop after the wanted offsets. Bytes at the end of the active segment that are not a whole batch are a torn tail:
   a broker's unfinished write, never read and no error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from seglog import layout
from seglog.errors import CorruptRecordError, IncompleteError, NotALogError, RefusedError
from seglog.layout import INT64_MAX
from seglog.remote.routing import RoutingFileSystem, parse_location
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.resync import PlausibleOffsets
from seglog.spark.bounds import indexed_position
from seglog.spark.options import ReadOptions
from seglog.spark.segment_names import GONE, Segment, SegmentName, list_segments, look_at
from seglog.spark.splits import SegmentPiece
from seglog.storage.filesystem import File, FileSystem

_logger = logging.getLogger(__name__)

CHUNK_BYTES = 2 << 20

_TRIES = 8  # without progress

CHECKSUM = "checksum"
FRAMING = "framing"
CONTENTS = "contents"
OFFSETS = "offsets"  # no checksum covers a batch's offset: it is checked against the segment
ORDER = "order"
TORN_TAIL = "torn tail"


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of a file that gives no records. Offsets are those of the header, None where there is none to believe."""

    path: str
    position: int
    size: int
    kind: str
    reason: str
    first_offset: int | None = None
    last_offset: int | None = None

    def error(self) -> CorruptRecordError:
        """The damage as an error for a reader that must not skip it."""
        hint = f"{self.reason}; onCorrupt=skip reads what follows"
        return CorruptRecordError(self.path, hint, self.position, self.first_offset, self.last_offset)


@dataclass(frozen=True, slots=True)
class Batches:
    """Good batches (layout.BATCH) that touch the wanted offsets, of what a walk through `piece.path` has met.

    Of their records those from `piece.first_offset` to `piece.stop_offset` are wanted.
    """

    piece: SegmentPiece
    walked: WalkedEntries
    batches: np.ndarray


class ReplacedError(Exception):
    """The file that was planned is another one now, or gone: what it gave so far is right, up to offset `reached`."""

    def __init__(self, reached: int) -> None:
        self.reached = reached
        super().__init__(reached)


def walk_piece(fs: FileSystem, piece: SegmentPiece, options: ReadOptions) -> Iterator[Batches | Damage]:
    """The batches and the damage of a piece in order; what they hold is valid until the next step.

    Where the file is another one than was planned, what replaced it is read, by the piece's share of the offsets.
    Raises IncompleteError when offsets are gone (unless `failOnDataLoss` is false), RefusedError when a file may not be
    read.
    """
    try:
        yield from walk_file(fs, piece, options)
    except ReplacedError as replaced:
        reached = max(replaced.reached, piece.share[0])
    else:
        return
    yield from _walk_replacement(fs, piece, reached, options)


def walk_file(fs: FileSystem, piece: SegmentPiece, options: ReadOptions) -> Iterator[Batches | Damage]:
    """The same of the piece's own file. ReplacedError when that is not what was planned, or does not stay it.

    A file that was opened is read to its end, whoever removes or replaces its name.
    """
    path = parse_location(piece.path)
    if piece.stored is not None:
        fs = piece.stored.shown(fs, path)
    elif isinstance(fs, RoutingFileSystem):
        fs.expect(path, piece.size, piece.modified_ns, piece.version)  # the plan has asked for it
    try:
        file = fs.open(path, "r")
    except FileNotFoundError as error:
        raise ReplacedError(piece.share[0]) from error
    except PermissionError as error:
        raise RefusedError(f"{path}: no permission to read it") from error
    with file:
        # looked at after it was opened: a network file system then says what is so, and not what was
        if not _is_planned(fs, path, piece):
            raise ReplacedError(piece.share[0])
        yield from _walk_opened(fs, file, piece, options)


def as_it_is(fs: FileSystem, piece: SegmentPiece) -> SegmentPiece | None:
    """The whole file of a piece as it is now; None when it is gone."""
    path = parse_location(piece.path)
    status = (fs if piece.stored is None else piece.stored.shown(fs, path)).status(path)
    if status is None:
        return None
    return replace(
        piece,
        start=0,
        end=status.size,
        size=status.size,
        modified_ns=status.modified_ns,
        inode=status.inode,
        version=status.version,
        active=piece.active and status.inode == piece.inode,
    )


def _walk_opened(fs: FileSystem, file: File, piece: SegmentPiece, options: ReadOptions) -> Iterator[Batches | Damage]:
    walk = LogWalk(
        fs,
        file.path,
        piece.start,
        piece.end,
        offsets=PlausibleOffsets(least=piece.base_offset),
        chunk_bytes=CHUNK_BYTES,
        check=options.verify_crc,
        file=file,
    )
    reached, position = piece.base_offset - 1, piece.start
    if piece.end < piece.size or piece.stop_offset >= piece.next_offset:  # else it may end anywhere
        file.advise_wanted(piece.start, piece.end - piece.start)
    try:
        for step in walk:
            if reached >= piece.stop_offset:
                return
            damage, good = _judged(piece, step)
            if damage and not _is_planned(fs, file.path, piece, to_the_end=True):
                raise ReplacedError(max(reached, piece.share[0]))
            yield from damage
            if isinstance(step, Gap):
                position = step.position + step.length
                continue
            if len(good):
                yield from _disorder(piece, good, reached)
                reached = int(good["last_offset"][-1]) + 1
                if reached > piece.next_offset:
                    yield damage_at(piece, good[-1], ORDER, f"what follows begins at offset {piece.next_offset}")
                yield Batches(piece, step, good[_wanted(good, piece)])
            last = step.batches[-1]
            position = int(last["position"]) + int(last["size"])
    except GONE as error:  # an object that was replaced says so when it is read
        raise ReplacedError(max(reached, piece.share[0])) from error
    if position < piece.end and reached < piece.stop_offset:  # cut off in place while it was read
        raise ReplacedError(max(reached, piece.share[0]))


def _judged(piece: SegmentPiece, step: WalkedEntries | Gap) -> tuple[list[Damage], np.ndarray]:
    """The damage in a step, and the good batches that can be in this segment."""
    if isinstance(step, Gap):
        return [_damage_of(piece, step)], np.empty(0, dtype=layout.BATCH)
    found = list(_damaged(piece, step))
    good = step.batches[step.valid]
    inside = _inside(good, piece)
    found += [damage_at(piece, row, OFFSETS, "its offsets cannot be in this segment") for row in good[~inside]]
    return found, good[inside]


def _is_planned(fs: FileSystem, path: Path, piece: SegmentPiece, *, to_the_end: bool = False) -> bool:
    """Whether the file is the one that was planned: unchanged, or the last segment and only longer.

    With `to_the_end` not even that: what lies in a file that somebody writes may be what he has just cut off.
    """
    status = fs.status(path)
    if status is None:
        return False
    if (status.size, status.modified_ns) == (piece.size, piece.modified_ns):
        return True
    return not to_the_end and piece.active and status.inode == piece.inode and status.size >= piece.end


# --- what replaced a file -------------------------------------------------------------------------------------


def _walk_replacement(
    fs: FileSystem, piece: SegmentPiece, reached: int, options: ReadOptions
) -> Iterator[Batches | Damage]:
    """The offsets of a piece from `reached` on, out of the segments that are there now.

    While a broker cleans, deletes and rolls, what was listed may be replaced again: then it is listed once more.
    """
    tries = 0
    while tries < _TRIES:
        before = reached
        try:
            for step in _walk_listed(fs, piece, reached, options):
                if isinstance(step, Batches) and len(step.batches):
                    reached = max(reached, int(step.batches["last_offset"][-1]) + 1)
                yield step
            return
        except ReplacedError as replaced:
            reached = max(reached, replaced.reached)
        tries = 0 if reached > before else tries + 1
    raise RefusedError(
        f"{piece.path}: the segments were replaced {_TRIES} times while offset {reached} was looked for; try again"
    )


def _walk_listed(fs: FileSystem, piece: SegmentPiece, reached: int, options: ReadOptions) -> Iterator[Batches | Damage]:
    directory, stop = parse_location(piece.path).parent, piece.share[1]
    try:
        names = list_segments(fs, directory)
    except NotALogError:
        names = ()
    except PermissionError as error:
        raise RefusedError(f"{error.filename}: no permission to read it") from error
    if not names:
        _lost(piece, reached, stop, "the partition is gone", options)
        return
    if names[0].base_offset > reached:
        _lost(piece, reached, min(names[0].base_offset, stop), "they were deleted", options)
        reached = names[0].base_offset
    for i, name in enumerate(names):
        next_base = names[i + 1].base_offset if i + 1 < len(names) else INT64_MAX
        if next_base <= reached or name.base_offset >= stop:
            continue
        segment = _looked_at(fs, name, reached)
        if piece.before == (segment.files.base_offset, segment.identity):  # as it was: it took nothing in
            _lost(piece, reached, min(next_base, stop), f"{PurePosixPath(piece.path).name} was removed", options)
            reached = min(next_base, stop)
            continue
        for step in walk_file(fs, _now(fs, piece, segment, reached, next_base), options):
            if isinstance(step, Batches) and len(step.batches):
                reached = max(reached, int(step.batches["last_offset"][-1]) + 1)
            yield step
            if reached >= stop:
                return
        reached, cut = max(reached, name.base_offset), _was_cut(piece, segment)
        if next_base == INT64_MAX and (cut or stop < INT64_MAX):
            _lost(piece, reached, stop, f"the log ends at {reached}: it was truncated", options)
        elif next_base < INT64_MAX:
            if cut:
                _lost(piece, reached, min(next_base, stop), f"{name.log.name} was cut", options)
            reached = max(reached, min(next_base, stop))


def _looked_at(fs: FileSystem, name: SegmentName, reached: int) -> Segment:
    try:
        return look_at(fs, name)
    except FileNotFoundError as error:
        raise ReplacedError(reached) from error


def _now(fs: FileSystem, piece: SegmentPiece, segment: Segment, reached: int, next_base: int) -> SegmentPiece:
    """A piece of a segment as it is now, for the share of `piece` from `reached` on."""
    files, (size, modified_ns, inode) = segment.files, segment.identity
    first, stop = max(piece.first_offset, reached), min(piece.stop_offset, piece.share[1])
    try:
        start = indexed_position(fs, files, first)
    except GONE as error:
        raise ReplacedError(reached) from error
    return replace(
        piece,
        path=str(files.log),
        base_offset=files.base_offset,
        start=start,
        end=size,
        size=size,
        modified_ns=modified_ns,
        inode=inode,
        active=next_base == INT64_MAX,
        first_offset=first,
        stop_offset=stop,
        least_offset=first,
        next_offset=next_base,
        version=segment.version,
    )


def _was_cut(piece: SegmentPiece, segment: Segment) -> bool:
    """Whether the planned file is still there and shorter than it was.

    Cleaning makes a new file, which may get the number of an old one's inode. It sets the file's time, in milliseconds;
    what cuts a file leaves the system's time, in nanoseconds.
    """
    size, modified_ns, inode = segment.identity
    same = segment.files.base_offset == piece.base_offset and inode == piece.inode
    return same and size < piece.end and modified_ns > piece.modified_ns and modified_ns % 1_000_000 != 0


def _lost(piece: SegmentPiece, first: int, stop: int, why: str, options: ReadOptions) -> None:
    """Offsets that no file holds any more: an error, or passed over."""
    if first >= stop:
        return
    which = f"offsets {first} to {stop - 1}" if stop < INT64_MAX else f"offsets from {first} on"
    text = f"{piece.topic}-{piece.partition}: {which} are gone since the query was planned: {why}"
    if options.fail_on_data_loss:
        raise IncompleteError(f"{text} (failOnDataLoss=false goes on with what is there)")
    _logger.warning("%s; going on", text)


# --- what is in a file ----------------------------------------------------------------------------------------


def not_shown(batches: np.ndarray, aborted: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    """Which batches a consumer never sees (bool): control batches, and those of the aborted transactions.

    A batch belongs to an aborted transaction when it is its producer's, transactional, and lies between the
    transaction's first offset and its marker (what Kafka's consumer finds out step by step; specification §9.2).
    """
    v2 = batches["magic"] >= 2
    hidden: np.ndarray = v2 & ((batches["attributes"] & layout.CONTROL_MASK) != 0)
    if not aborted or not len(batches):
        return hidden
    transactional = v2 & ((batches["attributes"] & layout.TRANSACTIONAL_MASK) != 0)
    first, last = int(batches["base_offset"].min()), int(batches["last_offset"].max())
    for producer, begins, marker in aborted:
        if marker >= first and begins <= last:
            inside = (batches["base_offset"] >= begins) & (batches["base_offset"] <= marker)
            hidden |= transactional & inside & (batches["producer_id"] == producer)
    return hidden


def handle(damage: Damage, options: ReadOptions) -> None:
    """What a reader of records does about damage: nothing at a torn tail, else by `onCorrupt`."""
    if damage.kind == TORN_TAIL:
        return
    if options.on_corrupt == "fail":
        raise damage.error()
    done = "kept" if damage.kind == ORDER else "skipped"
    _logger.warning("%s %d bytes: %s", done, damage.size, damage.error())


def _inside(batches: np.ndarray, piece: SegmentPiece) -> np.ndarray:
    last = batches["last_offset"]
    most = piece.base_offset + layout.INT32_MAX
    begins_right = (batches["base_offset"] >= piece.base_offset) & (batches["base_offset"] <= last)
    inside: np.ndarray = begins_right & (last <= most)
    return inside


def _disorder(piece: SegmentPiece, batches: np.ndarray, reached: int) -> Iterator[Damage]:
    """The batches that do not end after the one before; `reached` is after the last one before them all."""
    last = batches["last_offset"]
    for i in np.flatnonzero(np.diff(last, prepend=reached - 1) <= 0).tolist():
        yield damage_at(piece, batches[i], ORDER, "its offsets do not follow those before it")


def _wanted(batches: np.ndarray, piece: SegmentPiece) -> np.ndarray:
    # a legacy wrapper's base offset is its last one: where it begins is not known before it is decoded
    begins = np.where(batches["magic"] >= 2, batches["base_offset"], np.int64(0))
    wanted: np.ndarray = (batches["last_offset"] >= piece.first_offset) & (begins < piece.stop_offset)
    return wanted


def _damaged(piece: SegmentPiece, step: WalkedEntries) -> Iterator[Damage]:
    for row in step.batches[~step.valid]:
        yield damage_at(piece, row, CHECKSUM, "the checksum is wrong")


def damage_at(piece: SegmentPiece, row: np.void, kind: str, reason: str) -> Damage:
    """Damage that is a whole batch (a row of layout.BATCH)."""
    base, last = int(row["base_offset"]), int(row["last_offset"])
    return Damage(piece.path, int(row["position"]), int(row["size"]), kind, reason, base, last)


def _damage_of(piece: SegmentPiece, gap: Gap) -> Damage:
    if gap.at_end and piece.active and piece.end == piece.size:
        return Damage(piece.path, gap.position, gap.length, TORN_TAIL, "the last batch is not complete")
    return Damage(piece.path, gap.position, gap.length, FRAMING, gap.why)
