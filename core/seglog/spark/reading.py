"""Walking a piece of a segment: batches to show, and damage; what every view has in common.

1. The file must be the one that was planned: a sealed segment unchanged, the active one not shorter.
2. Walk past any damage (`diagnosis.walk`); a wrong checksum, bytes that are no batch, and offsets that cannot be
   here become `Damage`. Batches out of order, also those that the next segment claims, are damage that `onCorrupt`
   skip keeps: which one is wrong is unknown.
3. Stop behind the wanted offsets. Bytes at the end of the active segment that are no whole batch are a torn tail:
   a broker's unfinished write, never read and no error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.diagnosis.resync import OffsetRange
from seglog.diagnosis.walk import Gap, LogWalk
from seglog.diagnosis.walk import Piece as Entries
from seglog.errors import CorruptRecordError, RefusedError
from seglog.spark.options import ReadOptions
from seglog.spark.splits import Piece
from seglog.storage.filesystem import FileSystem

_logger = logging.getLogger(__name__)

CHUNK_BYTES = 2 << 20
# A batch above this is reported as damage: one record of it would not fit an Arrow array.
MAX_BATCH_BYTES = 1 << 30

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
    """Good batches (layout.BATCH) that touch the wanted offsets; `data[0]` lies at `position` of the file."""

    data: np.ndarray
    position: int
    batches: np.ndarray


def walk_piece(fs: FileSystem, piece: Piece, options: ReadOptions) -> Iterator[Batches | Damage]:
    """The batches and the damage of a piece in order; `data` is valid until the next step.

    Raises RefusedError when the file vanished (unless `failOnDataLoss` is false), changed or may not be read.
    """
    path = Path(piece.path)
    if not options.fail_on_data_loss and fs.status(path) is None:
        first = max(piece.base_offset, piece.first_offset)
        _logger.warning("%s; offsets from %d on are not read", _vanished(path), first)
        return
    _check_unchanged(fs, path, piece)
    walk = LogWalk(
        fs,
        path,
        piece.start,
        piece.end,
        offsets=OffsetRange(least=piece.base_offset),
        chunk_bytes=CHUNK_BYTES,
        max_batch_bytes=MAX_BATCH_BYTES,
        check=options.verify_crc,
    )
    reached = piece.base_offset - 1
    try:
        for step in walk:
            if reached >= piece.behind_offset:
                break
            if isinstance(step, Gap):
                yield _damage_of(piece, step)
                continue
            yield from _damaged(piece, step)
            good = step.batches[step.valid] if step.complete else step.batches[:0]
            inside = _inside(good, piece)
            for row in good[~inside]:
                yield damage_at(piece, row, OFFSETS, "its offsets cannot be in this segment")
            good = good[inside]
            if len(good):
                yield from _disorder(piece, good, reached)
                reached = int(good["last_offset"][-1]) + 1
                if reached > piece.next_offset:
                    yield damage_at(piece, good[-1], ORDER, f"what follows begins at offset {piece.next_offset}")
                yield Batches(step.data, step.position, good[_wanted(good, piece)])
    except FileNotFoundError as error:
        raise _vanished(path) from error
    except PermissionError as error:
        raise RefusedError(f"{path}: no permission to read it") from error
    if fs.status(path) is not None:  # an open file is read to its end, whoever removes its name
        _check_unchanged(fs, path, piece)


def not_shown(batches: np.ndarray, aborted: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    """Which batches a consumer never sees (bool): control batches, and those of the aborted transactions.

    A batch belongs to an aborted transaction when it is its producer's, transactional, and lies between the
    transaction's first offset and its marker (what Kafka's consumer finds out step by step; specification 9.2).
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


def _inside(batches: np.ndarray, piece: Piece) -> np.ndarray:
    last = batches["last_offset"]
    most = piece.base_offset + layout.INT32_MAX
    begins_right = (batches["base_offset"] >= piece.base_offset) & (batches["base_offset"] <= last)
    inside: np.ndarray = begins_right & (last <= most)
    return inside


def _disorder(piece: Piece, batches: np.ndarray, reached: int) -> Iterator[Damage]:
    """The batches that do not end behind the one before; `reached` is behind the last one before them all."""
    last = batches["last_offset"]
    for i in np.flatnonzero(np.diff(last, prepend=reached - 1) <= 0).tolist():
        yield damage_at(piece, batches[i], ORDER, "its offsets do not follow those before it")


def _wanted(batches: np.ndarray, piece: Piece) -> np.ndarray:
    # a legacy wrapper's base offset is its last one: where it begins is not known before it is decoded
    begins = np.where(batches["magic"] >= 2, batches["base_offset"], np.int64(0))
    wanted: np.ndarray = (batches["last_offset"] >= piece.first_offset) & (begins < piece.behind_offset)
    return wanted


def _damaged(piece: Piece, step: Entries) -> Iterator[Damage]:
    for row in step.batches[~step.valid]:
        yield damage_at(piece, row, CHECKSUM, "the checksum is wrong")
    if not step.complete:
        yield damage_at(piece, step.batches[0], CONTENTS, f"a batch of more than {MAX_BATCH_BYTES} bytes is not read")


def damage_at(piece: Piece, row: np.void, kind: str, reason: str) -> Damage:
    """Damage that is a whole batch (a row of layout.BATCH)."""
    base, last = int(row["base_offset"]), int(row["last_offset"])
    return Damage(piece.path, int(row["position"]), int(row["size"]), kind, reason, base, last)


def _damage_of(piece: Piece, gap: Gap) -> Damage:
    if gap.at_end and piece.active and piece.end == piece.size:
        return Damage(piece.path, gap.position, gap.length, TORN_TAIL, "the last batch is not complete")
    reason = "zeros where a batch must begin" if gap.zeros else gap.reason.value
    return Damage(piece.path, gap.position, gap.length, FRAMING, reason)


def _check_unchanged(fs: FileSystem, path: Path, piece: Piece) -> None:
    status = fs.status(path)
    if status is None:
        raise _vanished(path)
    same = (status.size, status.modified_ms) == (piece.size, piece.modified_ms)
    if status.size < piece.end or not (same or piece.active):
        raise RefusedError(
            f"{path}: the file changed since the query was planned ({piece.size} bytes then, {status.size} now;"
            " cleaned or truncated?); load it again"
        )


def _vanished(path: Path) -> RefusedError:
    return RefusedError(f"{path}: the file is gone since the query was planned (deleted or cleaned?); load it again")
