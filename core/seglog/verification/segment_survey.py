"""Finds the good parts of a damaged segment: the byte ranges of a `.log` that form a valid log, and what is removed.

Steps, for each piece of the walk (`log_walk` finds the way past damage):

1. A batch stays if its checksum is right, its header keeps the rules that readers depend on, its control record can
   be read and, with `deep`, its records decode.
2. A batch with a wrong checksum may have swallowed good ones (blocks that changed places). They are searched inside it,
   and stay if their offsets are not its own.
3. Batches that stay and follow each other directly become one range.
4. If offsets do not ascend, the segment is read again and `batch_order` chooses.

Memory is bounded by the number of ranges; in step 4 by 36 bytes per batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import InvalidRecordError
from seglog.format.columns import TOO_LARGE
from seglog.format.message_07 import End07, walk_messages
from seglog.kernels import validate
from seglog.log.producer_state import read_markers
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.resync import PlausibleOffsets, next_entry
from seglog.scan.segment_scan import CHUNK_BYTES
from seglog.storage.filesystem import FileSystem
from seglog.verification.batch_order import arrange
from seglog.verification.damage import RowRules, gap_code

NOT_ASCENDING = "OFFSETS_NOT_ASCENDING"
OUT_OF_SEGMENT = "OFFSET_OUT_OF_SEGMENT"

_HEADER_CODES = (
    (validate.MAGIC_UNKNOWN, "MAGIC_UNKNOWN"),
    (validate.CODEC_UNKNOWN, "CODEC_UNKNOWN"),
    (validate.OFFSET_DELTA_INVALID, "OFFSET_DELTA_INVALID"),
    (validate.OFFSET_OUT_OF_SEGMENT, OUT_OF_SEGMENT),
    (validate.COUNT_INVALID, "COUNT_INVALID"),
    (validate.CONTROL_INVALID, "CONTROL_INVALID"),
)
_HEADER_BITS = sum(bit for bit, _ in _HEADER_CODES)
_RECORD_BITS = validate.RECORD_OFFSETS_INVALID | validate.RECORD_COUNT_DIFFERS
_INVALID_CHECKSUM, _INVALID_RECORDS, _SWALLOWED = 1 << 30, 1 << 31, 1 << 32
_NO_OFFSET = -(1 << 62)
_MOST_07_BYTES = 64 << 20
_OFFSETS_PER_BYTE = 64


@dataclass(frozen=True, slots=True)
class ByteRange:
    """`length` bytes from `position`, in the segment's own file or in another one named `file`."""

    position: int
    length: int
    file: str = ""

    @property
    def end(self) -> int:
        return self.position + self.length


@dataclass(frozen=True, slots=True)
class RemovedRange:
    """Bytes to remove. `code` is that of the finding; the offsets are those that the headers there declare."""

    position: int
    length: int
    code: str
    first_offset: int | None = None
    last_offset: int | None = None


@dataclass(slots=True)
class Survey:
    """The survey of one segment of `size` bytes.

    `kept` are the ranges of the repaired segment in its order; `moved` counts the batches that lay elsewhere.
    `last_offset` is that of the last kept batch, None if there is none.
    """

    size: int
    kept: list[ByteRange] = field(default_factory=list)
    removed: list[RemovedRange] = field(default_factory=list)
    batches: int = 0
    moved: int = 0
    last_offset: int | None = None

    @property
    def kept_bytes(self) -> int:
        """The size of the repaired segment."""
        return sum(part.length for part in self.kept)

    @property
    def is_whole(self) -> bool:
        """True if nothing has to change."""
        return not self.removed and not self.moved and self.kept_bytes == self.size


@dataclass(frozen=True, slots=True)
class Judged:
    """A piece of the walk with a verdict per batch: 0, or the bits that say why the batch is removed.

    `first` are the batches' first offsets; those of legacy wrappers come from their contents.
    """

    piece: WalkedEntries
    bits: np.ndarray
    first: np.ndarray


class SegmentSurveyor:
    """Surveys `.log` files. With `reorder`, moved batches go back to their place. With `deep`, records are decoded, and
    batches with undecodable records are removed.
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

    def survey(self, path: Path, offsets: PlausibleOffsets) -> Survey:
        """Surveys the segment `path`, whose batches must lie in `offsets`."""
        status = self._fs.status(path)
        survey = Survey(0 if status is None else status.size)
        ascending = True
        for step in self.judged(path, offsets):
            _remove_judged(survey, step)
            if isinstance(step, Gap):
                continue
            stays = step.bits == 0
            good = step.piece.batches[stays]
            ascending &= _ascends(step.first[stays], good["last_offset"], survey.last_offset)
            ascending &= not survey.kept or not len(good) or int(good["position"][0]) >= survey.kept[-1].end
            _keep(survey, good)
        if not ascending:
            return self._arranged(path, offsets, survey.size)
        return _finished(survey)

    def _arranged(self, path: Path, offsets: PlausibleOffsets, size: int) -> Survey:
        """Step 4."""
        columns: list[tuple[np.ndarray, ...]] = []
        survey = Survey(size)
        for step in self.judged(path, offsets):
            _remove_judged(survey, step)
            if isinstance(step, Gap):
                continue
            stays = step.bits == 0
            rows = step.piece.batches[stays]
            names = ("position", "size", "last_offset", "max_timestamp")
            columns.append((*(rows[name].copy() for name in names), step.first[stays]))
        joined = [np.concatenate(parts) for parts in zip(*columns, strict=True)]
        in_file_order = np.argsort(joined[0], kind="stable")  # swallowed batches came after their piece
        position, length, last, times, first = (column[in_file_order] for column in joined)
        embedded = _embedded(position, length, size)
        order = arrange(first, last, embedded, self._reorder, (offsets.least, offsets.most), times)
        gone = np.setdiff1d(np.arange(len(first)), order, assume_unique=True)
        for i in gone.tolist():
            lost = RemovedRange(int(position[i]), int(length[i]), NOT_ASCENDING, int(first[i]), int(last[i]))
            _remove(survey, lost)
        survey.batches = len(order)
        survey.moved = int(np.count_nonzero(np.diff(order) < 0))
        survey.last_offset = int(last[order[-1]]) if len(order) else None
        survey.kept = _joined(position[order], length[order])
        return _finished(survey)

    def judged(
        self, path: Path, offsets: PlausibleOffsets, start: int = 0, *, anywhere: bool = False
    ) -> Iterator[Judged | Gap]:
        """Walks from `start` (the beginning of an entry) and yields every piece with its verdicts.

        With `anywhere`, `offsets` only help to find the way past damage; batches outside them stay.
        """
        allowed = PlausibleOffsets() if anywhere else offsets
        waiting: list[np.void] = []  # damaged batches to search, once it is known what follows them
        for step in LogWalk(self._fs, path, start, offsets=offsets):
            gap_end = step.position + step.length if isinstance(step, Gap) else 0
            for row in waiting:
                yield from self._inside(path, row, max(gap_end, _end_of(row)), offsets)
            waiting = []
            if isinstance(step, Gap):
                yield step
                continue
            if self._progress is not None:
                self._progress(int(step.batches["size"].sum(dtype=np.int64)))
            damaged = step.batches[~step.valid].copy()
            at_end = len(damaged) > 0 and not step.valid[-1]
            yield self.verdicts(path, step, allowed)
            for row in damaged[: len(damaged) - at_end]:
                yield from self._inside(path, row, _end_of(row), offsets)
            waiting = list(damaged[len(damaged) - at_end :])
        for row in waiting:
            yield from self._inside(path, row, _end_of(row), offsets)

    def _inside(self, path: Path, row: np.void, end: int, offsets: PlausibleOffsets) -> Iterator[Judged]:
        """Step 2, for the damaged batch of `row` and the bytes after it that are not a batch, up to `end`."""
        with self._fs.open(path, "r") as file:
            start = next_entry(file, int(row["position"]) + 1, end, offsets)
        if start >= end:
            return
        own_first, own_last = int(row["base_offset"]), int(row["last_offset"])
        if own_last - own_first > _OFFSETS_PER_BYTE * int(row["size"]):
            own_first = own_last = -1  # the damage is in the header, so its offsets mean nothing
        for step in LogWalk(self._fs, path, start, end, offsets=offsets):
            if isinstance(step, WalkedEntries):
                judged = self.verdicts(path, step, offsets)
                # A record's value may itself hold batches, whose offsets are any, or those of the outer batch.
                within = (step.batches["base_offset"] <= own_last) & (step.batches["last_offset"] >= own_first)
                judged.bits[~step.valid | within] = _SWALLOWED
                yield judged

    def verdicts(self, path: Path, piece: WalkedEntries, offsets: PlausibleOffsets) -> Judged:
        """Judges a piece of a walk through `path`, whose batches must lie in `offsets`."""
        state = np.zeros(validate.STATE_SIZE, dtype=np.int64)
        bits = np.zeros(len(piece.batches), dtype=np.int64)
        validate.judge_batches(piece.batches, piece.valid, offsets.least, offsets.most, state, bits)
        bits &= _HEADER_BITS
        bits[~piece.valid] = _INVALID_CHECKSUM
        judged = Judged(piece, bits, piece.batches["base_offset"].astype(np.int64))
        if piece.complete:
            _judge_markers(path, judged)
        if self._deep:
            _judge_records(judged)
        return judged


def judged_batches(
    fs: FileSystem,
    path: Path,
    offsets: PlausibleOffsets,
    progress: Callable[[int], None] | None = None,
    start: int = 0,
    *,
    anywhere: bool = False,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the batches of a log file that can stay, with their first offsets; swallowed ones after their piece.

    `anywhere` is as in `SegmentSurveyor.judged`.
    """
    surveyor = SegmentSurveyor(fs, progress=progress)
    for step in surveyor.judged(path, offsets, start, anywhere=anywhere):
        if isinstance(step, Judged):
            stays = step.bits == 0
            yield step.piece.batches[stays], step.first[stays]


def batches_anywhere(
    fs: FileSystem, path: Path, offsets: PlausibleOffsets, progress: Callable[[int], None] | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Yields (good batches, their first offsets, false) for the pieces of a log file, whatever the offsets.

    `offsets` are those that the file's name allows. If more batches contradict the name than fit it, the name says
    nothing: a second walk allows any offset past damage, and yields the batches that only it finds, with true.
    """
    positions = [np.zeros(0, dtype=np.int64)]
    outside = 0
    for rows, first in judged_batches(fs, path, offsets, progress, anywhere=True):
        positions.append(rows["position"].copy())
        outside += int(np.count_nonzero((rows["base_offset"] < offsets.least) | (rows["last_offset"] > offsets.most)))
        yield rows, first, False
    seen = np.concatenate(positions)
    if 2 * outside <= len(seen):
        return
    for rows, first in judged_batches(fs, path, PlausibleOffsets()):
        new = ~np.isin(rows["position"], seen)
        yield rows[new], first[new], True


def _end_of(row: np.void) -> int:
    return int(row["position"]) + int(row["size"])


def _judge_markers(path: Path, judged: Judged) -> None:
    batches, bits = judged.piece.batches, judged.bits
    control = (batches["attributes"] & layout.CONTROL_MASK != 0) & (batches["magic"] == 2)
    at = np.flatnonzero(control & (bits == 0))
    markers = read_markers(judged.piece.data, batches[at], judged.piece.position, path)
    for i, marker in zip(at.tolist(), markers, strict=True):
        is_other = marker is None and batches["count"][i] > 0 and batches["producer_id"][i] >= 0
        if is_other or isinstance(marker, InvalidRecordError):
            bits[i] |= validate.CONTROL_INVALID


def _judge_records(judged: Judged) -> None:
    """Marks the batches whose records cannot be read, and stores the first offsets of legacy ones."""
    at, rules = np.flatnonzero(judged.bits == 0), RowRules()
    for records in judged.piece.records(judged.piece.batches[at]):
        part = at[records.first_batch : records.first_batch + len(records.batches)]
        readable = (records.status == 0) | np.isin(records.status, TOO_LARGE)
        wrong = rules.judge(records, _NO_OFFSET)
        legacy = records.batches["magic"][records.rows["batch"]] < 2
        if records.rows_before or records.rows_after:
            if legacy.any() and not records.rows_before:
                judged.first[part] = records.rows["offset"][0]
        else:
            wrong[records.batches["magic"] < 2] = 0
            if legacy.any():
                _judge_legacy(records.rows[legacy], records.batches, wrong, judged.first, part)
        judged.bits[part[~readable | (wrong & _RECORD_BITS != 0)]] = _INVALID_RECORDS


def _judge_legacy(
    rows: np.ndarray, batches: np.ndarray, wrong: np.ndarray, first: np.ndarray, part: np.ndarray
) -> None:
    """Checks that the offsets of messages ascend up to their wrapper's."""
    owner, offset = rows["batch"], rows["offset"]
    descends = np.flatnonzero((owner[1:] == owner[:-1]) & (offset[1:] <= offset[:-1]))
    wrong[owner[1:][descends]] |= validate.RECORD_OFFSETS_INVALID
    wrong[owner[offset > batches["last_offset"][owner]]] |= validate.RECORD_OFFSETS_INVALID
    owners, starts = np.unique(owner, return_index=True)
    first[part[owners]] = offset[starts]


def _ascends(first: np.ndarray, last: np.ndarray, before: int | None) -> bool:
    if not len(first):
        return True
    if before is not None and int(first[0]) <= before:
        return False
    return bool((first[1:] > last[:-1]).all())


def _keep(survey: Survey, good: np.ndarray) -> None:
    if not len(good):
        return
    survey.batches += len(good)
    survey.last_offset = int(good["last_offset"][-1])
    for part in _joined(good["position"], good["size"].astype(np.int64)):
        if survey.kept and survey.kept[-1].end == part.position:
            part = ByteRange(survey.kept[-1].position, survey.kept[-1].length + part.length)
            survey.kept.pop()
        survey.kept.append(part)


def _joined(position: np.ndarray, length: np.ndarray) -> list[ByteRange]:
    """Joins ranges that follow each other directly."""
    if not len(position):
        return []
    cuts = np.flatnonzero(position[1:] != position[:-1] + length[:-1]) + 1
    starts, ends = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(position)]))
    total = np.concatenate(([0], np.cumsum(length, dtype=np.int64)))
    return [
        ByteRange(int(position[start]), int(total[end] - total[start]))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _embedded(position: np.ndarray, length: np.ndarray, size: int) -> np.ndarray:
    """Returns which batches have another batch, or an end of the file, directly before and after them."""
    ends = position + length
    before = np.concatenate(([0], ends[:-1])) == position
    after = np.concatenate((position[1:], [size])) == ends
    both: np.ndarray = before & after
    return both


def _remove_judged(survey: Survey, step: Judged | Gap) -> None:
    """Adds a gap, or the batches whose verdict is not 0, to what is removed."""
    if isinstance(step, Gap):
        _remove(survey, RemovedRange(step.position, step.length, gap_code(step)))
        return
    for i in np.flatnonzero((step.bits != 0) & (step.bits != _SWALLOWED)).tolist():
        row, code = step.piece.batches[i], code_of(int(step.bits[i]))
        first, last = int(row["base_offset"]), int(row["last_offset"])
        _remove(survey, RemovedRange(int(row["position"]), int(row["size"]), code, first, last))


def code_of(bits: int) -> str:
    """Returns the finding code for a batch's verdict (`Judged.bits`, not 0)."""
    if bits & _INVALID_CHECKSUM:
        return "CRC_MISMATCH"
    if bits & _INVALID_RECORDS:
        return "RECORDS_INVALID"
    return next(code for bit, code in _HEADER_CODES if bits & bit)


def _remove(survey: Survey, removed: RemovedRange) -> None:
    """Adds a range. Joins it to the last one if it continues that for the same reason, to keep the list short."""
    last = survey.removed[-1] if survey.removed else None
    if last is not None and last.code == removed.code and last.position + last.length == removed.position:
        firsts = [n for n in (last.first_offset, removed.first_offset) if n is not None]
        ends = [n for n in (last.last_offset, removed.last_offset) if n is not None]
        joined = RemovedRange(
            last.position, last.length + removed.length, last.code, min(firsts, default=None), max(ends, default=None)
        )
        survey.removed[-1] = joined
    else:
        survey.removed.append(removed)


def _finished(survey: Survey) -> Survey:
    kept_parts = sorted(survey.kept, key=lambda part: part.position)
    removed = sorted(survey.removed, key=lambda part: part.position)
    survey.removed = [piece for part in removed for piece in without_parts(part, kept_parts)]
    return survey


def without_parts(removed: RemovedRange, kept_parts: list[ByteRange]) -> Iterator[RemovedRange]:
    """Yields the parts of a removed range that are not in `kept` (ascending): good batches may lie in damaged ones."""
    start, end = removed.position, removed.position + removed.length
    for part in kept_parts[max(0, bisect_right(kept_parts, start, key=lambda other: other.position) - 1) :]:
        if part.position >= end:
            break
        if part.end > start:
            if part.position > start:
                yield replace(removed, position=start, length=part.position - start)
            start = max(start, part.end)
    if start < end:
        yield replace(removed, position=start, length=end - start)


def in_ranges(position: np.ndarray, ranges: Sequence[ByteRange]) -> np.ndarray:
    """Returns which positions (a bool each) lie in one of the ranges."""
    ordered = sorted(ranges, key=lambda part: part.position)
    starts = np.array([part.position for part in ordered], dtype=np.int64)
    ends = np.array([*(part.end for part in ordered), 0], dtype=np.int64)
    at = np.searchsorted(starts, position, side="right") - 1
    inside: np.ndarray = (at >= 0) & (position < ends[at])
    return inside


def survey_07(fs: FileSystem, path: Path) -> Survey:
    """Surveys a `.kafka` file (Kafka 0.7). Offsets are positions there, so nothing after damage can stay."""
    with fs.open(path, "r") as file:
        size, position, span = file.size(), 0, CHUNK_BYTES
        survey = Survey(size)
        while position < size:
            data = file.read_at(position, min(span, size - position))
            walk = walk_messages(data)
            good = next((m.position for m in walk.messages if not m.is_valid), walk.end_position)
            position += good
            survey.batches += sum(1 for message in walk.messages if message.position < good)
            declared = int.from_bytes(data[good : good + 4], "big", signed=True) + 4
            if good < walk.end_position or walk.end not in (End07.TRUNCATED, End07.COMPLETE):
                break
            if good == 0 and (declared <= span or declared > min(size - position, _MOST_07_BYTES)):
                break
            span = max(CHUNK_BYTES, declared)
    survey.kept = [ByteRange(0, position)] if position else []
    if position < size:
        survey.removed.append(RemovedRange(position, size - position, "TORN_TAIL"))
    return survey
