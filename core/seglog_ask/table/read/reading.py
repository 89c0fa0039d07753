"""Walks a piece of a segment: yields good batches and damage; every view builds on it.

1. The file must be the planned one: a sealed segment unchanged, the active one not shorter. If it is not, the partition
   is listed again and the same offsets are read from the replacement: a segment that was cleaned, merged with others,
   split, or cut. Only offsets that no segment holds any more are data loss.
2. The walk continues past any damage (`scan.log_walk`). A wrong checksum, bytes that are not a batch, and offsets that
   cannot be in this segment become `Damage`. So do batches out of order, including those that the next segment claims,
   but `onCorrupt` skip keeps these, because it is unknown which one is wrong.
3. Offsets that are missing between batches, between segments, and before the high watermark are found
   (`continuity`), as are the bytes after the last batch. The walk stops after the wanted offsets.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath

import numpy as np

from seglog import layout
from seglog.errors import GONE, NotALogError, RefusedError
from seglog.format.decoder import WRONG_CHECKSUM, control_batches
from seglog.format.filenames import META_PROPERTIES, parse_partition_directory
from seglog.layout import INT64_MAX
from seglog.locations import parse_location
from seglog.log.places import SegmentPlaces
from seglog.remote_path import RemotePath
from seglog.scan.hidden_transactions import HiddenTransactions
from seglog.scan.listing import OFFSET_CHECKPOINTS
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.resync import PlausibleOffsets
from seglog.storage.filesystem import File, FileSystem
from seglog.storage.routing import RoutingFileSystem
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.partition_log import Segment, SegmentName, list_segments, look_at, permitted
from seglog_ask.table.plan.splits import SegmentPiece
from seglog_ask.table.read.continuity import Continuity
from seglog_ask.table.read.damage import CHECKSUM, FRAMING, MISSING, OFFSETS, ORDER, Damage, damage_at

CHUNK_BYTES = 2 << 20

_TRIES = 8  # without progress
_PAUSES_S = (0.01, 0.04, 0.15, 0.3)


@dataclass(frozen=True, slots=True)
class Batches:
    """Good batches (layout.BATCH) of a step of the walk through `piece.path` that overlap the wanted offsets.

    Their records from `piece.first_offset` to `piece.stop_offset` (exclusive) are wanted.
    """

    piece: SegmentPiece
    walked: WalkedEntries
    batches: np.ndarray


class ReplacedError(Exception):
    """The planned file has been replaced or removed. What was read from it is right, up to offset `reached`."""

    def __init__(self, reached: int) -> None:
        self.reached = reached
        super().__init__(reached)


def walk_piece(fs: FileSystem, piece: SegmentPiece, options: ReadOptions) -> Iterator[Batches | Damage]:
    """Yields the batches and the damage of a piece in order; their contents are valid until the next step.

    If the file has been replaced, reads the piece's share of the offsets from the replacement. Raises IncompleteError
    if offsets are gone (unless `failOnDataLoss` is false), RefusedError if permission to read is missing.
    """
    try:
        yield from walk_file(fs, piece, options)
    except ReplacedError as replaced:
        reached = max(replaced.reached, piece.share[0])
    else:
        return
    yield from _walk_replacement(fs, piece, reached, options)


def walk_file(fs: FileSystem, piece: SegmentPiece, options: ReadOptions) -> Iterator[Batches | Damage]:
    """The same for the piece's own file. Raises ReplacedError if it is not the planned one, or stops being it.

    Once opened, a file is read to its end even if its name is removed or replaced.
    """
    path = parse_location(piece.path)
    if piece.stored is not None:
        fs = piece.stored.shown(fs, path)
    elif isinstance(fs, RoutingFileSystem):
        fs.expect(path, piece.size, piece.modified_ns, piece.version)  # known from the plan
    try:
        file = fs.open(path, "r")
    except FileNotFoundError as error:
        raise ReplacedError(piece.share[0]) from error
    except PermissionError as error:
        raise RefusedError(f"{path}: no permission to read it") from error
    with file:
        # check after opening: a network file system then gives current attributes, not cached ones
        if not _is_planned(fs, path, piece):
            raise ReplacedError(piece.share[0])
        yield from _walk_opened(fs, file, piece, options)


def as_it_is(fs: FileSystem, piece: SegmentPiece) -> SegmentPiece | None:
    """Returns the whole file of a piece as it is now; None if it is gone."""
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
    reached, position = piece.base_offset - 1, piece.start
    continuity = Continuity(fs, piece)
    if piece.end < piece.size or piece.stop_offset >= piece.next_offset:  # else the walk may end anywhere
        file.advise_wanted(piece.start, piece.end - piece.start)
    try:
        for step in _walk_of(fs, file, piece, options):
            if reached >= piece.stop_offset:
                return
            damage, good = _judged(piece, step, file, continuity)
            if damage and _changes(fs, file.path, piece, damage[-1]):
                raise ReplacedError(max(reached, piece.share[0]))
            yield from damage
            if isinstance(step, Gap):
                continuity.damaged(damage)
                position = step.position + step.length
                continue
            if len(good):
                yield from _disorder(piece, good, reached)
                yield from continuity.holes(good)
                reached = int(good["last_offset"][-1]) + 1
                if reached > piece.next_offset:
                    yield damage_at(piece, good[-1], ORDER, f"what follows begins at offset {piece.next_offset}")
                yield Batches(piece, step, good[_wanted(good, piece)])
            continuity.damaged(damage)
            last = step.batches[-1]
            position = int(last["position"]) + int(last["size"])
    except GONE as error:  # a replaced object raises on the first read
        raise ReplacedError(max(reached, piece.share[0])) from error
    if position < piece.end and reached < piece.stop_offset:  # truncated in place while it was read
        raise ReplacedError(max(reached, piece.share[0]))
    yield from continuity.end()


def _walk_of(fs: FileSystem, file: File, piece: SegmentPiece, options: ReadOptions) -> LogWalk:
    return LogWalk(
        fs,
        file.path,
        piece.start,
        piece.end,
        offsets=PlausibleOffsets(least=piece.base_offset),
        chunk_bytes=CHUNK_BYTES,
        check=options.verify_crc,
        file=file,
    )


def _judged(
    piece: SegmentPiece, step: WalkedEntries | Gap, file: File, continuity: Continuity
) -> tuple[list[Damage], np.ndarray]:
    """Returns the damage in a step, and the good batches whose offsets can be in this segment."""
    if isinstance(step, Gap):
        if step.at_end and piece.active and piece.end == piece.size:
            end = continuity.torn(file, step)
        else:
            end = Damage(piece.path, step.position, step.length, FRAMING, step.why)
        return [end], np.empty(0, dtype=layout.BATCH)
    damage = [damage_at(piece, row, CHECKSUM, WRONG_CHECKSUM) for row in step.batches[~step.valid]]
    good = step.batches[step.valid]
    base, last = good["base_offset"], good["last_offset"]
    inside = (base >= piece.base_offset) & (base <= last) & (last <= piece.base_offset + layout.INT32_MAX)
    damage += [damage_at(piece, row, OFFSETS, "its offsets cannot be in this segment") for row in good[~inside]]
    return damage, good[inside]


def _is_planned(fs: FileSystem, path: Path, piece: SegmentPiece, *, to_the_end: bool = False) -> bool:
    """True if the file is the planned one: unchanged, or the last segment and only longer.

    With `to_the_end`, a longer file counts as another one too: what looks like damage may be bytes that a writer has
    just cut off and rewritten.
    """
    status = fs.status(path)
    if status is None:
        return False
    if (status.size, status.modified_ns) == (piece.size, piece.modified_ns):
        return True
    return not to_the_end and piece.active and status.inode == piece.inode and status.size >= piece.end


def _changes(fs: FileSystem, path: Path, piece: SegmentPiece, damage: Damage) -> bool:
    """True if the file is another one by now. Waits a moment for a writer's last batch, which looks like damage."""
    if not _is_planned(fs, path, piece, to_the_end=True):
        return True
    is_end = piece.active and damage.position + damage.size == piece.end == piece.size
    if not is_end or damage.expected or isinstance(path, RemotePath):
        return False
    for pause in _PAUSES_S:
        time.sleep(pause)
        if not _is_planned(fs, path, piece, to_the_end=True):
            return True
    return False


# --- replaced files -------------------------------------------------------------------------------------------


def _walk_replacement(
    fs: FileSystem, piece: SegmentPiece, reached: int, options: ReadOptions
) -> Iterator[Batches | Damage]:
    """Walks the offsets of a piece from `reached` on in the segments that exist now.

    A running broker may replace listed segments again; then the partition is listed once more.
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
        f"{piece.path}: the segments were replaced {_TRIES} times during the search for offset {reached}; try again"
    )


def _walk_listed(fs: FileSystem, piece: SegmentPiece, reached: int, options: ReadOptions) -> Iterator[Batches | Damage]:
    directory, stop = parse_location(piece.path).parent, piece.share[1]
    names = _segments_now(fs, directory, piece)
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
        try:
            segment = look_at(fs, name)
        except FileNotFoundError as error:
            raise ReplacedError(reached) from error
        if piece.before == (segment.files.base_offset, segment.identity):  # unchanged: nothing was merged into it
            _lost(piece, reached, min(next_base, stop), f"{PurePosixPath(piece.path).name} was removed", options)
            reached = min(next_base, stop)
            continue
        cut = _was_cut(piece, segment)
        for step in walk_file(fs, _now(fs, piece, segment, reached, next_base), options):
            if isinstance(step, Damage) and step.kind == MISSING and (cut or (next_base == INT64_MAX > stop)):
                continue  # reported below
            if isinstance(step, Batches) and len(step.batches):
                reached = max(reached, int(step.batches["last_offset"][-1]) + 1)
            yield step
            if reached >= stop:
                return
        reached = max(reached, name.base_offset)
        if next_base == INT64_MAX and (cut or stop < INT64_MAX):
            _lost(piece, reached, stop, f"the log ends at {reached}: it was truncated", options)
        elif next_base < INT64_MAX:
            if cut:
                _lost(piece, reached, min(next_base, stop), f"{name.log.name} was cut", options)
            reached = max(reached, min(next_base, stop))


def _segments_now(fs: FileSystem, directory: Path, piece: SegmentPiece) -> tuple[SegmentName, ...]:
    """Returns the segments of a partition; none if it was deleted. Raises RefusedError if it may not be seen."""
    try:
        with permitted():
            return list_segments(fs, directory)
    except NotALogError:
        # a tier shows its objects in a directory that no disk has
        _require_seen(fs, directory if piece.stored is None else parse_location(piece.stored.path).parent)
        return ()


def _require_seen(fs: FileSystem, directory: Path) -> None:
    """Raises RefusedError if a partition's directory is not there and nothing else shows its log directory: then this
    machine does not see what the driver sees. A partition that was deleted leaves other files of a broker.
    """
    if isinstance(directory, RemotePath) or fs.status(directory) is not None:
        return
    above = directory.parent
    status = fs.status(above)
    names = fs.list(above) if status is not None and status.is_directory else []
    if not any(
        name == META_PROPERTIES or name in OFFSET_CHECKPOINTS or parse_partition_directory(name) for name in names
    ):
        raise RefusedError(
            f"{directory}: {socket.gethostname()} sees no such directory, and the driver planned to read it: it was"
            " removed since, or this executor does not see the driver's files; both need the same files under the same"
            " paths (a shared file system, or URLs of an object store)"
        )


def _now(fs: FileSystem, piece: SegmentPiece, segment: Segment, reached: int, next_base: int) -> SegmentPiece:
    """Returns a piece of a segment as it is now, for the share of `piece` from `reached` on."""
    files, (size, modified_ns, inode) = segment.files, segment.identity
    first, stop = max(piece.first_offset, reached), min(piece.stop_offset, piece.share[1])
    try:
        start = SegmentPlaces.of(fs, files).start(first).position
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
    """True if the planned file still exists and has become shorter.

    Cleaning makes a new file, which may reuse an old file's inode number. But it sets the modification time, in whole
    milliseconds; truncating a file leaves the system's time, in nanoseconds.
    """
    size, modified_ns, inode = segment.identity
    same = segment.files.base_offset == piece.base_offset and inode == piece.inode
    return same and size < piece.end and modified_ns > piece.modified_ns and modified_ns % 1_000_000 != 0


def _lost(piece: SegmentPiece, first: int, stop: int, why: str, options: ReadOptions) -> None:
    """Reports offsets that no file holds any more."""
    if first >= stop:
        return
    which = f"offsets {first} to {stop - 1}" if stop < INT64_MAX else f"offsets from {first} on"
    options.report_loss(f"{piece.topic}-{piece.partition}: {which} are gone since the query was planned: {why}")


# --- batches --------------------------------------------------------------------------------------------------


def shown(batches: np.ndarray, piece: SegmentPiece) -> np.ndarray:
    """Returns the batches of a piece that a consumer sees: without control batches and aborted transactions."""
    rows: np.ndarray = batches[~(control_batches(batches) | _hidden(piece.aborted).mask(batches))]
    return rows


@lru_cache(maxsize=16)
def _hidden(aborted: tuple[tuple[int, int, int], ...]) -> HiddenTransactions:
    return HiddenTransactions(aborted)


def _disorder(piece: SegmentPiece, batches: np.ndarray, reached: int) -> Iterator[Damage]:
    """Yields damage for batches that do not end after their predecessor; before the first one, that is `reached`."""
    last = batches["last_offset"]
    for i in np.flatnonzero(np.diff(last, prepend=reached - 1) <= 0).tolist():
        yield damage_at(piece, batches[i], ORDER, "its offsets do not follow those before it")


def _wanted(batches: np.ndarray, piece: SegmentPiece) -> np.ndarray:
    # a legacy wrapper's base offset is its last one; only decoding shows its first one
    begins = np.where(batches["magic"] >= 2, batches["base_offset"], np.int64(0))
    wanted: np.ndarray = (batches["last_offset"] >= piece.first_offset) & (begins < piece.stop_offset)
    return wanted
