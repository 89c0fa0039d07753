"""The good parts of a damaged segment: which byte ranges of a `.log` make a valid log, and what goes.

Steps, a piece of the walk at a time (`walk` finds the way past damage):

1. A batch stays when its checksum is right, its header keeps the rules that readers depend on, its control
   record can be read and, with `deep`, its records decode.
2. Stretches of batches that stay and follow each other become one range.
3. Where offsets do not ascend, the segment is read once more and `ordering` chooses.

Memory is bounded by the number of ranges; in step 3 by 28 bytes a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.diagnosis.ordering import arrange
from seglog.diagnosis.resync import OffsetRange
from seglog.diagnosis.walk import Gap, LogWalk, Piece
from seglog.errors import InvalidRecordError
from seglog.format.decoder import decode_records
from seglog.format.message_07 import End07, walk_messages
from seglog.kernels import validate
from seglog.kernels.records import DECOMPRESSION_TOO_LARGE
from seglog.log.markers import read_markers
from seglog.log.scan import CHUNK_BYTES, EndReason
from seglog.storage.filesystem import FileSystem

NOT_ASCENDING = "OFFSETS_NOT_ASCENDING"

_HEADER_CODES = (
    (validate.MAGIC_UNKNOWN, "MAGIC_UNKNOWN"),
    (validate.CODEC_UNKNOWN, "CODEC_UNKNOWN"),
    (validate.OFFSET_DELTA_INVALID, "OFFSET_DELTA_INVALID"),
    (validate.OFFSET_OUT_OF_SEGMENT, "OFFSET_OUT_OF_SEGMENT"),
    (validate.COUNT_INVALID, "COUNT_INVALID"),
    (validate.CONTROL_INVALID, "CONTROL_INVALID"),
)
_HEADER_BITS = sum(bit for bit, _ in _HEADER_CODES)
_RECORD_BITS = validate.RECORD_OFFSETS_INVALID | validate.RECORD_COUNT_DIFFERS
_INVALID_CHECKSUM, _INVALID_RECORDS = 1 << 30, 1 << 31
_MOST_07_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ByteRange:
    """`length` bytes of a file from `position` on."""

    position: int
    length: int

    @property
    def end(self) -> int:
        return self.position + self.length


@dataclass(frozen=True, slots=True)
class RemovedRange:
    """Bytes that cannot stay; `code` is the finding's, offsets are those that the headers there claim."""

    position: int
    length: int
    code: str
    first_offset: int | None = None
    last_offset: int | None = None


@dataclass(slots=True)
class Survey:
    """What was found in one segment of `size` bytes.

    `kept` are the ranges of the repaired segment in its order, `moved` the batches among them that lay elsewhere.
    `last_offset` is that of the last batch kept, None when there is none.
    """

    size: int
    kept: list[ByteRange] = field(default_factory=list)
    removed: list[RemovedRange] = field(default_factory=list)
    batches: int = 0
    moved: int = 0
    last_offset: int | None = None

    @property
    def kept_bytes(self) -> int:
        """Size of the repaired segment."""
        return sum(found.length for found in self.kept)

    @property
    def is_whole(self) -> bool:
        """Whether nothing has to change."""
        return not self.removed and not self.moved and self.kept_bytes == self.size

    @property
    def is_prefix(self) -> bool:
        """Whether cutting the file is all that it needs."""
        return not self.kept or (len(self.kept) == 1 and self.kept[0].position == 0)


@dataclass(frozen=True, slots=True)
class _Judged:
    """A piece of the walk with a verdict a batch: 0, or the bits that say why it goes."""

    piece: Piece
    bits: np.ndarray


class SegmentSurveyor:
    """Surveys `.log` files. With `reorder` batches that were moved go back to their place; with `deep` records
    are decoded (a batch whose records cannot be read goes).
    """

    def __init__(
        self,
        fs: FileSystem,
        *,
        reorder: bool = True,
        deep: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._fs, self._reorder, self._deep = fs, reorder, deep
        self._progress = progress

    def survey(self, path: Path, offsets: OffsetRange) -> Survey:
        """What of the segment `path` can stay; its batches must lie in `offsets`."""
        status = self._fs.status(path)
        found = Survey(0 if status is None else status.size)
        ascending = True
        for step in self._judged(path, offsets):
            if isinstance(step, Gap):
                _remove(found, RemovedRange(step.position, step.length, _gap_code(step)))
                continue
            good = step.piece.batches[step.bits == 0]
            ascending &= _ascends(good, found.last_offset)
            _take(found, step, good)
        if not ascending:
            return self._arranged(path, offsets, found.size)
        return _finished(found)

    def _arranged(self, path: Path, offsets: OffsetRange, size: int) -> Survey:
        """Step 3."""
        columns: list[tuple[np.ndarray, ...]] = []
        found = Survey(size)
        for step in self._judged(path, offsets):
            if isinstance(step, Gap):
                _remove(found, RemovedRange(step.position, step.length, _gap_code(step)))
                continue
            rows = step.piece.batches[step.bits == 0]
            columns.append(tuple(rows[name].copy() for name in ("position", "size", "base_offset", "last_offset")))
            _remove_judged(found, step)
        position, length, first, last = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        order = arrange(first, last, self._reorder)
        gone = np.setdiff1d(np.arange(len(first)), order, assume_unique=True)
        for i in gone.tolist():
            lost = RemovedRange(int(position[i]), int(length[i]), NOT_ASCENDING, int(first[i]), int(last[i]))
            _remove(found, lost)
        found.batches = len(order)
        found.moved = int(np.count_nonzero(np.diff(order) < 0))
        found.last_offset = int(last[order[-1]]) if len(order) else None
        found.kept = _joined(position[order], length[order])
        return _finished(found)

    def _judged(self, path: Path, offsets: OffsetRange) -> Iterator[_Judged | Gap]:
        state = np.zeros(validate.STATE_SIZE, dtype=np.int64)
        for step in LogWalk(self._fs, path, offsets=offsets):
            if isinstance(step, Gap):
                yield step
                continue
            bits = np.zeros(len(step.batches), dtype=np.int64)
            validate.judge_batches(step.batches, step.valid, offsets.least, offsets.most, state, bits)
            bits &= _HEADER_BITS
            bits[~step.valid] = _INVALID_CHECKSUM
            if step.complete:
                self._judge_contents(path, step, bits)
            if self._progress is not None:
                self._progress(int(step.batches["size"].sum(dtype=np.int64)))
            yield _Judged(step, bits)

    def _judge_contents(self, path: Path, piece: Piece, bits: np.ndarray) -> None:
        control = (piece.batches["attributes"] & layout.CONTROL_MASK != 0) & (piece.batches["magic"] == 2)
        at = np.flatnonzero(control & (bits == 0))
        for i, marker in zip(
            at.tolist(), read_markers(piece.data, piece.batches[at], piece.position, path), strict=True
        ):
            if isinstance(marker, InvalidRecordError):
                bits[i] |= validate.CONTROL_INVALID
        if self._deep:
            at = np.flatnonzero(bits == 0)
            bits[at[_unreadable(piece, at)]] = _INVALID_RECORDS


def _unreadable(piece: Piece, at: np.ndarray) -> np.ndarray:
    """Which of the batches `at` (indexes) have records that cannot be read (bool)."""
    wrong = np.zeros(len(at), dtype=bool)
    done = 0
    for records in decode_records(piece.data, piece.batches[at], piece.position):
        count = len(records.batches)
        bits = np.zeros(count, dtype=np.int64)
        validate.judge_rows(records.rows, records.batches, records.status, -(1 << 62), bits)
        modern = records.batches["magic"] == 2
        readable = (records.status == 0) | (records.status == DECOMPRESSION_TOO_LARGE)
        wrong[done : done + count] = ~readable | (modern & (bits & _RECORD_BITS != 0))
        done += count
    return wrong


def _ascends(rows: np.ndarray, last_offset: int | None) -> bool:
    if not len(rows):
        return True
    if last_offset is not None and int(rows["base_offset"][0]) <= last_offset:
        return False
    return bool((rows["base_offset"][1:] > rows["last_offset"][:-1]).all())


def _take(found: Survey, step: _Judged, good: np.ndarray) -> None:
    _remove_judged(found, step)
    if not len(good):
        return
    found.batches += len(good)
    found.last_offset = int(good["last_offset"][-1])
    for each in _joined(good["position"], good["size"].astype(np.int64)):
        if found.kept and found.kept[-1].end == each.position:
            each = ByteRange(found.kept[-1].position, found.kept[-1].length + each.length)
            found.kept.pop()
        found.kept.append(each)


def _joined(position: np.ndarray, length: np.ndarray) -> list[ByteRange]:
    """Ranges that follow each other directly become one."""
    if not len(position):
        return []
    cuts = np.flatnonzero(position[1:] != position[:-1] + length[:-1]) + 1
    starts, ends = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(position)]))
    total = np.concatenate(([0], np.cumsum(length, dtype=np.int64)))
    return [
        ByteRange(int(position[start]), int(total[end] - total[start]))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _remove_judged(found: Survey, step: _Judged) -> None:
    for i in np.flatnonzero(step.bits).tolist():
        row, code = step.piece.batches[i], _code_of(int(step.bits[i]))
        first, last = int(row["base_offset"]), int(row["last_offset"])
        _remove(found, RemovedRange(int(row["position"]), int(row["size"]), code, first, last))


def _code_of(bits: int) -> str:
    if bits & _INVALID_CHECKSUM:
        return "CRC_MISMATCH"
    if bits & _INVALID_RECORDS:
        return "RECORDS_INVALID"
    return next(code for bit, code in _HEADER_CODES if bits & bit)


def _gap_code(gap: Gap) -> str:
    if gap.zeros:
        return "ZERO_BYTES"
    return "TORN_TAIL" if gap.at_end and gap.reason is EndReason.TRAILING else "UNREADABLE_BYTES"


def _remove(found: Survey, removed: RemovedRange) -> None:
    """Adds a range; one that continues the last one for the same reason is joined to it, to keep lists short."""
    last = found.removed[-1] if found.removed else None
    if last is not None and last.code == removed.code and last.position + last.length == removed.position:
        known = [n for n in (last.first_offset, removed.first_offset) if n is not None]
        ends = [n for n in (last.last_offset, removed.last_offset) if n is not None]
        joined = RemovedRange(
            last.position, last.length + removed.length, last.code, min(known, default=None), max(ends, default=None)
        )
        found.removed[-1] = joined
    else:
        found.removed.append(removed)


def _finished(found: Survey) -> Survey:
    found.removed.sort(key=lambda each: each.position)
    return found


def survey_07(fs: FileSystem, path: Path) -> Survey:
    """The good front of a `.kafka` file (Kafka 0.7): positions are offsets there, so nothing behind damage fits."""
    with fs.open(path, "r") as file:
        size, position, wanted = file.size(), 0, CHUNK_BYTES
        found = Survey(size)
        while position < size:
            data = file.read_at(position, min(wanted, size - position))
            walk = walk_messages(data)
            good = next((m.position for m in walk.messages if not m.is_valid), walk.end_position)
            position += good
            found.batches += sum(1 for message in walk.messages if message.position < good)
            declared = int.from_bytes(data[good : good + 4], "big", signed=True) + 4
            if good < walk.end_position or walk.end not in (End07.TRUNCATED, End07.COMPLETE):
                break
            if good == 0 and (declared <= wanted or declared > min(size - position, _MOST_07_BYTES)):
                break
            wanted = max(CHUNK_BYTES, declared)
    found.kept = [ByteRange(0, position)] if position else []
    if position < size:
        found.removed.append(RemovedRange(position, size - position, "TORN_TAIL"))
    return found
