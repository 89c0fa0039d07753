"""Verifies the batches and records of one `.log`: fast while they are good, in detail where they are not.

`clean_range` walks a range in a thread and stops at the first problem. `SegmentVerifier` then reads the segment again
from that range, in order, and reports what is wrong. So a healthy log is read once, by all processors, and a damaged
one of any size in bounded memory. Observers (`Observer`) get the batches from either, in log order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from seglog import layout
from seglog.format.columns import joined_rows
from seglog.kernels import validate
from seglog.kernels.crc32c import HARDWARE
from seglog.kernels.validate import judge_batches, walk_clean
from seglog.model import NO_LEADER_EPOCH
from seglog.ordered_pool import Account, unlimited
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.resync import PlausibleOffsets
from seglog.scan.segment_scan import Chunks, declared_size
from seglog.storage.filesystem import File, FileSystem
from seglog.verification.codes import Trait
from seglog.verification.damage import Preallocated, RowRules, batch_finding, record_findings, with_damage
from seglog.verification.findings import Finding, place_of

# half of a processor's second-level cache: a chunk is checksummed while it is still there
_CHUNK_BYTES = 1 << 19
_LENT_BYTES = 2 << 20  # lent bytes are not copied; a piece of an object has at most 1.5 MiB
LEAST_ENTRY = layout.LOG_OVERHEAD + layout.MESSAGE_V0_OVERHEAD
# what a range keeps for observers before it ends early: 5 MiB of headers, and the bytes of control batches
_KEPT_ROWS = 1 << 16
_KEPT_BYTES = 4 << 20


class Level(IntEnum):
    """The depth of verification; each level includes those before it."""

    HEADER = 0
    CRC = 1
    RECORD = 2
    INDEX = 3
    SEMANTIC = 4

    @property
    def label(self) -> str:
        """The name that users give."""
        return self.name.lower()


@dataclass(slots=True)
class Totals:
    """Counts of what was read. `lost_offsets` is an upper bound; `damaged_bytes` are bytes outside good batches."""

    bytes: int = 0
    batches: int = 0
    records: int = 0
    damaged_bytes: int = 0
    lost_offsets: int = 0

    def add(self, other: Totals) -> None:
        """Adds another's counts."""
        self.bytes += other.bytes
        self.batches += other.batches
        self.records += other.records
        self.damaged_bytes += other.damaged_bytes
        self.lost_offsets += other.lost_offsets


@dataclass(frozen=True, slots=True)
class RangeResult:
    """A range up to `end` without any finding. Its offsets are -1 if it has no batch; they must ascend across ranges.

    The leader epochs are the first and the largest in batches of magic 2, None and -1 if there are none. `pieces` are
    its batches, if they were to be kept, with the bytes of control batches only.
    """

    totals: Totals
    first_offset: int
    last_offset: int
    first_epoch: int | None
    leader_epoch: int
    end: int
    pieces: tuple[WalkedEntries, ...] = ()

    def follows(self, last_offset: int, leader_epoch: int) -> bool:
        """True if the range may follow batches that end with this offset and leader epoch."""
        descends = self.first_epoch is not None and self.first_epoch < leader_epoch
        return not descends and not 0 <= self.first_offset <= last_offset


class Observer(Protocol):
    """Receives the good batches in log order."""

    def take(self, piece: WalkedEntries) -> Iterator[Finding]: ...

    def finish(self) -> Iterator[Finding]: ...


def new_state(last_offset: int = -1, leader_epoch: int = -1) -> np.ndarray:
    """Returns the state of `judge_batches` after a batch with this offset and leader epoch."""
    state = np.zeros(validate.STATE_SIZE, dtype=np.int64)
    state[validate.STATE_LAST_OFFSET], state[validate.STATE_LEADER_EPOCH] = last_offset, leader_epoch
    state[validate.STATE_FIRST_OFFSET] = -1
    return state


def clean_range(
    fs: FileSystem,
    path: Path,
    start: int,
    end: int,
    offsets: PlausibleOffsets,
    level: Level,
    account: Account | None = None,
    *,
    keep: bool = False,
    side_by_side: bool = False,
) -> RangeResult | None:
    """Verifies bytes `start` (the beginning of an entry) to `end` of `path`. Returns None if anything is wrong.

    With `keep` the batches are kept, and the result may end before `end`, which bounds their number. Held bytes count
    in `account`, which is closed at the end. `side_by_side` is as in `File.advise_wanted`.
    """
    with account or unlimited() as own, fs.open(path, "r") as file:
        file.advise_wanted(start, end - start, side_by_side=side_by_side)
        if HARDWARE:
            result = _clean_entries(file, _Range(fs, path, start, keep=keep), end, offsets, level)
            if result is not None:
                return result
            if side_by_side:  # the request may already be past the beginning
                file.advise_wanted(start, end - start, side_by_side=True)
        return _clean_pieces(fs, file, _Range(fs, path, start, keep=keep), end, offsets, level, own)


class _Range:
    """The contents of a range so far, while it has no finding."""

    def __init__(self, fs: FileSystem, path: Path, start: int, *, keep: bool) -> None:
        self.state, self.start, self.end = new_state(), start, start
        self._keep = keep
        self._first_epoch: int | None = None
        self._source = partial(fs.open, path, "r")
        self._pieces: list[WalkedEntries] = []
        self._tables: list[np.ndarray] = []  # batches whose bytes are not needed
        self._rows = self._bytes = 0

    @property
    def is_full(self) -> bool:
        """True if enough batches are kept."""
        return self._rows >= _KEPT_ROWS or self._bytes >= _KEPT_BYTES

    def add(self, batches: np.ndarray, data: np.ndarray, end: int, *, complete: bool = True) -> None:
        """Adds batches that end at position `end`; `data` are their bytes. Copies what it keeps of both."""
        self.end = end
        if self._first_epoch is None:
            epochs = batches["leader_epoch"][batches["magic"] == 2]
            epochs = epochs[epochs != NO_LEADER_EPOCH]
            self._first_epoch = int(epochs[0]) if len(epochs) else None
        if not self._keep or not len(batches):
            return
        self._rows += len(batches)
        if not (batches["attributes"] & layout.CONTROL_MASK).any():
            self._tables.append(batches.copy())
            return
        self._flush()
        self._bytes += len(data)
        self._put(batches.copy(), data.copy(), complete=complete)

    def result(self, totals: Totals) -> RangeResult:
        """Returns the range with everything that was added."""
        self._flush()
        totals.bytes = self.end - self.start
        totals.batches = int(self.state[validate.STATE_BATCHES])
        first, last = int(self.state[validate.STATE_FIRST_OFFSET]), int(self.state[validate.STATE_LAST_OFFSET])
        epochs = self._first_epoch, int(self.state[validate.STATE_LEADER_EPOCH])
        return RangeResult(totals, first, last, *epochs, self.end, tuple(self._pieces))

    def _flush(self) -> None:
        if self._tables:
            self._put(joined_rows(self._tables), np.empty(0, dtype=np.uint8), complete=False)
            self._tables = []

    def _put(self, batches: np.ndarray, data: np.ndarray, *, complete: bool) -> None:
        position, valid = int(batches["position"][0]), np.ones(len(batches), dtype=bool)
        self._pieces.append(WalkedEntries(position, data, batches, valid, self._source, complete))


def _clean_entries(file: File, found: _Range, end: int, offsets: PlausibleOffsets, level: Level) -> RangeResult | None:
    """Verifies the range with one kernel call per chunk. Returns None also for entries larger than a chunk and, from
    level *record*, for batches that are compressed or not of magic 2.
    """
    rows = np.empty(min(_LENT_BYTES, end - found.start) // LEAST_ENTRY + 1, dtype=layout.BATCH)
    limits = level >= Level.CRC, level >= Level.RECORD, offsets.least, offsets.most
    counted = 0
    chunks, least = Chunks(file, end, _CHUNK_BYTES, most_lent=_LENT_BYTES), 0
    while found.end < end and not found.is_full:
        position = found.end
        data = chunks.at(position, least)
        consumed, right = walk_clean(data, len(data), position, *limits, rows, found.state)
        if not right:
            return None
        least = 0
        if consumed == 0:  # lent bytes may end within the entry
            least = declared_size(data, 0, len(data))
            if not len(data) < least <= min(_CHUNK_BYTES, chunks.stop - position):
                return None
        before, counted = counted, int(found.state[validate.STATE_BATCHES])
        found.add(rows[: counted - before], data[:consumed], position + consumed)
    return found.result(Totals(records=int(found.state[validate.STATE_RECORDS])))


def _clean_pieces(
    fs: FileSystem, file: File, found: _Range, end: int, offsets: PlausibleOffsets, level: Level, account: Account
) -> RangeResult | None:
    totals, check = Totals(), level >= Level.CRC
    place = fs, file.path, found.start, end
    for step in LogWalk(*place, offsets=offsets, chunk_bytes=_CHUNK_BYTES, check=check, file=file):
        if isinstance(step, Gap) or not step.valid.all():
            return None
        bits = np.empty(len(step.batches), dtype=np.int64)
        if judge_batches(step.batches, step.valid, offsets.least, offsets.most, found.state, bits):
            return None
        if level >= Level.RECORD:
            records = _clean_records(step, account)
            if records < 0:
                return None
            totals.records += records
        piece_end = int(step.batches["position"][-1]) + int(step.batches["size"][-1])
        found.add(step.batches, step.data, piece_end, complete=step.complete)
        if found.is_full:
            break
    else:
        if found.end < end:  # the file has become shorter; the caller would ask for the rest for ever
            return None
    if level < Level.RECORD:
        totals.records = int(found.state[validate.STATE_RECORDS])
    return found.result(totals)


def _clean_records(piece: WalkedEntries, account: Account) -> int:
    """Returns the number of records in the batches, -1 if any of them is wrong."""
    count, rules = 0, RowRules()
    for records in piece.records(account=account):
        if records.status.any() or rules.judge(records).any():
            return -1
        count += len(records.rows)
    return count


class SegmentVerifier:
    """Reads one `.log` in order and reports everything. `totals` grow; `last_offset` is that of the log so far.

    A `growing` log may end within a batch, because a broker may be writing it; `preallocated` is as in `with_damage`.
    The bytes before `start` (the beginning of an entry) are known to be right.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        base_offset: int,
        offsets: PlausibleOffsets,
        level: Level,
        *,
        last_offset: int,
        leader_epoch: int,
        growing: bool,
        preallocated: Preallocated,
        start: int,
    ) -> None:
        self.fs, self.path, self.base_offset, self.offsets = fs, path, base_offset, offsets
        self.level, self.growing, self.start = level, growing, start
        self._preallocated = preallocated
        self.totals = Totals()
        self._state = new_state(last_offset, leader_epoch)
        self._place = place_of(path)

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch whose offsets are right."""
        return int(self._state[validate.STATE_LAST_OFFSET])

    @property
    def leader_epoch(self) -> int:
        """The highest leader epoch so far."""
        return int(self._state[validate.STATE_LEADER_EPOCH])

    def findings(self, observers: Sequence[Observer] = ()) -> Iterator[Finding]:
        """Yields everything that is wrong, in file order, and passes good batches to the observers."""
        check = self.level >= Level.CRC
        walk = LogWalk(self.fs, self.path, self.start, offsets=self.offsets, chunk_bytes=_CHUNK_BYTES, check=check)
        least = self.last_offset + 1 if self.start else self.base_offset
        for step in with_damage(walk, self.path, least, growing=self.growing, preallocated=self._preallocated):
            if isinstance(step, Finding):
                self._count_damage(step)
                yield step
                continue
            yield from self._piece(step)
            for observer in observers:
                yield from observer.take(step)
        for observer in observers:
            yield from observer.finish()

    def _piece(self, piece: WalkedEntries) -> Iterator[Finding]:
        bits = np.empty(len(piece.batches), dtype=np.int64)
        counted = int(self._state[validate.STATE_RECORDS])
        before = self.last_offset
        limits = self.offsets.least, self.offsets.most
        judge_batches(piece.batches, piece.valid, *limits, self._state, bits)
        good = piece.batches[piece.valid]
        self.totals.batches += len(good)
        self.totals.bytes += int(good["size"].astype(np.int64).sum())
        if self.level >= Level.RECORD:
            yield from self._records(piece, bits, before)
        else:
            self.totals.records += int(self._state[validate.STATE_RECORDS]) - counted
            yield from self._rule_findings(piece.batches, bits)

    def _records(self, piece: WalkedEntries, bits: np.ndarray, last_offset: int) -> Iterator[Finding]:
        rules = RowRules()
        for records in piece.records() if piece.complete or piece.valid.all() else ():
            part = slice(records.first_batch, records.first_batch + len(records.batches))
            valid = piece.valid[part]
            found = rules.judge(records, last_offset)
            found[~valid | (records.status != 0)] = 0
            if not records.rows_after:
                yield from self._rule_findings(records.batches, bits[part] | found)
            for broken in record_findings(records, valid, self.path):
                self._count_damage(broken)
                yield broken
            self.totals.records += int(np.count_nonzero(valid[records.rows["batch"]])) if len(records.rows) else 0
            good = records.batches[valid]
            if len(good) and not records.rows_after:
                last_offset = max(last_offset, int(good["last_offset"].max()))

    def _rule_findings(self, batches: np.ndarray, bits: np.ndarray) -> Iterator[Finding]:
        for i in np.flatnonzero(bits).tolist():
            row = batches[i]
            offsets = f"offsets {int(row['base_offset'])} to {int(row['last_offset'])}, magic {int(row['magic'])}"
            for bit, (code, message) in RULES.items():
                if bits[i] & bit:
                    yield batch_finding(code, self._place, f"{message} ({offsets})", row)

    def _count_damage(self, found: Finding) -> None:
        if Trait.DAMAGE in found.kind.traits:
            self.totals.damaged_bytes += found.length or 0
            self.totals.lost_offsets += found.offsets_lost


RULES: dict[int, tuple[str, str]] = {
    validate.OFFSETS_NOT_ASCENDING: (
        "OFFSETS_NOT_ASCENDING",
        "the batch starts at or below the last offset of the batch before it",
    ),
    validate.OFFSET_OUT_OF_SEGMENT: (
        "OFFSET_OUT_OF_SEGMENT",
        "the batch's offsets do not belong in this segment",
    ),
    validate.MAGIC_UNKNOWN: ("MAGIC_UNKNOWN", "the batch has a magic that no Kafka version writes"),
    validate.CODEC_UNKNOWN: ("CODEC_UNKNOWN", "the batch names an unknown compression codec"),
    validate.OFFSET_DELTA_INVALID: ("OFFSET_DELTA_INVALID", "the batch's last offset is below its base offset"),
    validate.COUNT_INVALID: ("COUNT_INVALID", "the batch's record count is impossible"),
    validate.PRODUCER_INVALID: (
        "PRODUCER_INVALID",
        "the batch's producer id, epoch, sequence and flags contradict each other",
    ),
    validate.CONTROL_INVALID: ("CONTROL_INVALID", "the control batch of a producer has more than one record"),
    validate.LEADER_EPOCH_DECREASING: (
        "LEADER_EPOCH_DECREASING",
        "the batch's leader epoch is lower than an earlier batch's",
    ),
    validate.TIMESTAMP_NEGATIVE: ("TIMESTAMP_NEGATIVE", "the batch's maximum timestamp is negative"),
    validate.RECORD_OFFSETS_INVALID: (
        "RECORD_OFFSETS_INVALID",
        "the offsets of the records do not ascend within the batch's",
    ),
    validate.RECORD_TIMESTAMP_ABOVE_MAX: (
        "RECORD_TIMESTAMP_ABOVE_MAX",
        "a record is younger than the batch's maximum timestamp",
    ),
    validate.RECORD_COUNT_DIFFERS: ("RECORDS_INVALID", "the batch does not hold as many records as it says"),
}
