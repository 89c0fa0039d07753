"""Replays the records of a controller's metadata log, in the order in which a broker applies them.

1. The newest complete snapshot (`<offset>-<epoch>.checkpoint`) comes first, then the log from its offset on.
2. The records of a metadata transaction (KIP-868) are held until it ends, and dropped if it aborts.
3. A damaged batch or a gap in the offsets ends the replay and becomes a problem. The records before it count, but later
   ones may have changed what they say.
4. A torn end is not a problem: the log ends there. A full disk, a kill or a power cut leaves it, a controller
   acknowledges only batches that are whole on disk, and a starting one cuts it off (Kafka: LogSegment.recover).

Kafka: MetadataLoader, MetadataBatchLoader. `format.message_tables` decodes the records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import RefusedError
from seglog.format.columns import Records
from seglog.format.control import ControlRecordError, Voter, parse_control_record
from seglog.format.decoder import WRONG_CHECKSUM
from seglog.format.message_tables import decode_metadata_record
from seglog.format.wire import FRAME_VERSION, FramedRecord, UnknownRecordTypeError, WireError
from seglog.model import ControlType
from seglog.scan.index_files import read_index
from seglog.scan.listing import SegmentFiles
from seglog.scan.log_walk import Gap, LogWalk
from seglog.scan.segment_scan import Chunk, EndReason, SegmentScan
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import File, FileSystem

BEGIN_TRANSACTION_RECORD = 23
END_TRANSACTION_RECORD = 24
ABORT_TRANSACTION_RECORD = 25

_TRANSACTION = (BEGIN_TRANSACTION_RECORD, END_TRANSACTION_RECORD, ABORT_TRANSACTION_RECORD)
_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_NOT_READ = "; the rest was not read"
_SECTOR_BYTES = 512  # what a disk writes at once
_LEAST_LOST_BYTES = 64  # fewer zeros in a row may be a batch's own


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """A record of the metadata log: its type, its stored value, and its place."""

    kind: int
    value: bytes
    offset: int
    path: Path


Apply = Callable[[FramedRecord, MetadataRecord], None]


class MetadataReplay:
    """One replay of a metadata log; `apply` receives each effective record.

    `kinds` are the requested types (None: all). `end` is the offset after the last record to replay. Afterwards
    `end_offset` is the offset after the last record read, `snapshot` the file that the replay began with, and
    `open_transaction` the offset of a transaction without an end. `problems` are messages about what could not be read,
    `of_newer` those of them that a newer Kafka can read.

    With `trusting` a snapshot is read as a starting broker reads it: a torn end ends it quietly. Of a snapshot that
    `read_snapshot` reads, as of `bootstrap.checkpoint`, checksums are not compared. `unnoticed` says where, and
    `corrupt` which of all these batches have a wrong checksum.

    `torn` has a sentence if the log ends with a part of a batch. `voters` are those of a dynamic quorum by the last
    record that names them (KIP-853), empty for a static one.
    """

    def __init__(
        self,
        apply: Apply,
        kinds: Collection[int] | None = None,
        end: int | None = None,
        *,
        trusting: bool = False,
    ) -> None:
        self._apply, self._end, self._trusting = apply, end, trusting
        self.unnoticed: list[str] = []
        self._kinds = None if kinds is None else sorted({*kinds, *_TRANSACTION})
        self._held: list[MetadataRecord] | None = None
        self.end_offset = 0
        self.snapshot: Path | None = None
        self.open_transaction: int | None = None
        self.problems: list[str] = []
        self.of_newer: list[str] = []
        self.corrupt: list[str] = []
        self.torn: list[str] = []
        self.voters: tuple[Voter, ...] = ()

    def read(self, fs: FileSystem, directory: Path) -> None:
        """Replays the metadata log in `directory`. Creates and locks nothing; damage and OSError become problems."""
        try:
            with PartitionView(fs, directory) as view:
                self._read_view(view, directory)
        except OSError as error:
            reason = error.strerror or str(error)
            self.problems.append(f"{error.filename or directory}: {reason}{_NOT_READ}")
        if self._end is not None and self.end_offset < self._end and not self.problems:
            last = f"the last record has offset {self.end_offset - 1}" if self.end_offset else "there is no record"
            self.problems.append(f"{directory}: offset {self._end - 1} was requested, but {last}")

    def read_snapshot(self, fs: FileSystem, path: Path) -> None:
        """Replays a single snapshot."""
        try:
            self._read_snapshot(fs, path, checked=False)
        except OSError as error:
            self.problems.append(f"{path}: {error.strerror or error}{_NOT_READ}")

    def _read_view(self, view: PartitionView, directory: Path) -> None:
        newest = newest_snapshot(view.fs, directory, self._end)
        if newest is not None:
            self.snapshot, offset = newest
            self._read_snapshot(view.fs, self.snapshot)
            self.end_offset = offset
        start = self.end_offset
        segments = view.listing.segments
        for segment, following in zip_longest(segments, segments[1:]):
            if following is not None and following.base_offset <= start:
                continue
            if self._end is not None and self.end_offset >= self._end:
                break
            if segment.base_offset > self.end_offset:  # a metadata log has no gaps
                missing = f"offsets {self.end_offset} to {segment.base_offset - 1} are missing before this segment"
                self._problem(segment.log, 0, missing)
                break
            if not self._read_file(view.fs, segment.log, start, segment):
                break
        if view.live:
            self.torn.clear()  # a controller may be writing it

    def _read_snapshot(self, fs: FileSystem, path: Path, *, checked: bool = True) -> None:
        if not self._trusting:
            self._read_file(fs, path, 0)
            return
        scan, begun, ended = SegmentScan(fs, path), False, False
        for chunk in scan:
            if not begun and len(chunk.batches) and not int(chunk.batches["attributes"][0]) & layout.CONTROL_MASK:
                self._problem(path, 0, "the snapshot does not begin with its header")
            for last in chunk.batches[-1:]:
                ended = last["position"] > 0 and bool(last["attributes"] & layout.CONTROL_MASK)
            begun = begun or len(chunk.batches) > 0
            valid = chunk.checksums_valid()
            if not valid.all():
                position = int(chunk.batches["position"][np.argmin(valid)])
                message = f"{path}: position {position}: {WRONG_CHECKSUM}"
                (self.problems if checked else self.unnoticed).append(message)
                self.corrupt.append(message)
            without = chunk.batches["count"] < 1
            if without.any():  # Kafka: Batch.data
                self._problem(path, int(chunk.batches["position"][np.argmax(without)]), "the batch has no record")
            for record in self._records(chunk, np.ones(len(chunk.batches), bool), 0):
                self._take(record)
        end = scan.end
        if not begun:
            self._problem(path, 0, "the snapshot has no header")
        elif end is not None and end.reason is EndReason.TRAILING:
            self.unnoticed.append(f"{path}: position {end.position}: {end.reason.value}")
        elif end is not None and end.reason is not EndReason.COMPLETE:
            self._problem(path, end.position, end.reason.value)
        elif end is not None and not ended:
            self.unnoticed.append(f"{path}: position {end.position}: the snapshot ends without its footer")

    def _read_file(self, fs: FileSystem, path: Path, start: int, segment: SegmentFiles | None = None) -> bool:
        """Replays the records of `path` from offset `start`. Returns False if damage ended it. A `segment` may end
        torn: one that follows must go on at the same offset."""
        scan = SegmentScan(fs, path)
        for chunk in scan:
            valid = chunk.checksums_valid()
            for record in self._records(chunk, valid, start):
                self._take(record)
            if not valid.all():
                position = int(chunk.batches["position"][np.argmin(valid)])
                return self._ends(fs, path, position, WRONG_CHECKSUM, segment)
        end = scan.end
        if end is None or end.reason is EndReason.COMPLETE:
            return True
        return self._ends(fs, path, end.position, end.reason.value, segment)

    def _ends(self, fs: FileSystem, path: Path, position: int, reason: str, segment: SegmentFiles | None) -> bool:
        """Notes why a file is not read beyond `position`; True if it is only torn there."""
        if segment is not None and is_torn_end(fs, segment, position):
            self.torn.append(f"{path}: position {position}: {reason}; the log ends at offset {self.end_offset}")
            return True
        self._problem(path, position, reason)
        return False

    def _records(self, chunk: Chunk, valid: np.ndarray, start: int) -> Iterator[MetadataRecord]:
        good = len(valid) if valid.all() else int(np.argmin(valid))
        batches = chunk.batches[:good]
        if good:
            last = int(batches["last_offset"][-1]) + 1
            self.end_offset = max(self.end_offset, last if self._end is None else min(last, self._end))
        is_control = (batches["attributes"] & layout.CONTROL_MASK) != 0
        if is_control.any():
            self._take_voters(chunk, batches[is_control], start)
        data_batches = batches[~is_control]
        for records in chunk.records(data_batches):
            if records.status.any() and not records.rows_before:
                position = int(records.batches["position"][np.argmax(records.status != 0)])
                self._problem(chunk.path, position, "the records of the batch cannot be decoded")
            yield from self._requested(records, chunk.path, start)

    def _take_voters(self, chunk: Chunk, batches: np.ndarray, start: int) -> None:
        for records in chunk.records(batches):
            for i, offset in enumerate(records.rows["offset"].tolist()):
                if offset < start or (self._end is not None and offset >= self._end):
                    continue
                try:
                    record = parse_control_record(records.key(i), records.value(i))
                except ControlRecordError as error:
                    self.problems.append(f"{chunk.path}: offset {offset}: {error}")
                    continue
                if record.type is ControlType.KRAFT_VOTERS:
                    self.voters = tuple(Voter.of(voter) for voter in record.data["voters"])

    def _requested(self, records: Records, path: Path, start: int) -> Iterator[MetadataRecord]:
        """Yields the records of the requested types from offset `start`; types below 128 take one byte."""
        rows, arena = records.rows, records.arena
        wanted = rows["offset"] >= start
        if self._end is not None:
            wanted &= rows["offset"] < self._end
        if self._kinds is not None:
            wanted &= rows["value_size"] >= 3
            at = np.where(wanted, rows["value_position"], 0).astype(np.int64)
            if len(arena):
                wanted &= (arena[at] == FRAME_VERSION) & np.isin(arena[np.minimum(at + 1, len(arena) - 1)], self._kinds)
        for i in np.flatnonzero(wanted).tolist():
            value = records.value(i) or b""
            yield MetadataRecord(value[1] if len(value) > 1 else -1, value, int(rows["offset"][i]), path)

    def _take(self, record: MetadataRecord) -> None:
        if self._trusting and record.kind in _TRANSACTION:
            self._check_transaction(record)
        if record.kind == BEGIN_TRANSACTION_RECORD:
            self._held, self.open_transaction = [], record.offset
        elif record.kind == ABORT_TRANSACTION_RECORD:
            self._held = self.open_transaction = None
        elif record.kind == END_TRANSACTION_RECORD:
            held, self._held = self._held or [], None
            self.open_transaction = None
            for each in held:
                self._decode(each)
        elif self._held is not None:
            self._held.append(record)
        else:
            self._decode(record)

    def _check_transaction(self, record: MetadataRecord) -> None:
        """Notes a marker that ends a broker's process."""
        begins, place = record.kind == BEGIN_TRANSACTION_RECORD, f"{record.path}: offset {record.offset}"
        if record.path == self.snapshot:
            self.problems.append(f"{place}: a transaction within a snapshot")
        elif begins and self._held is not None:
            self.problems.append(f"{place}: a transaction begins within another one")
        elif not begins and self._held is None:
            self.problems.append(f"{place}: the end of a transaction that has not begun")

    def _decode(self, record: MetadataRecord) -> None:
        try:
            decoded = decode_metadata_record(record.value)
        except WireError as error:
            self.problems.append(f"{record.path}: offset {record.offset}: {error}")
            if isinstance(error, UnknownRecordTypeError):
                self.of_newer.append(self.problems[-1])
            return
        self._apply(decoded, record)

    def _problem(self, path: Path, position: int, reason: str) -> None:
        self.problems.append(f"{path}: position {position}: {reason}{_NOT_READ}")


def read_voters(fs: FileSystem, directory: Path) -> tuple[Voter, ...]:
    """Returns the voters of a dynamic quorum that the metadata log in `directory` names last; none of a static one."""
    replay = MetadataReplay(lambda *_: None, ())
    replay.read(fs, directory)
    return replay.voters


def is_torn_end(fs: FileSystem, segment: SegmentFiles, position: int) -> bool:
    """True if only the rest of an unfinished write lies at `position` of a segment and after it, which no controller
    has acknowledged: a part of one batch, zeros, or one batch of which a power cut left a part unwritten, as zeros.
    Such a batch has a wrong checksum. One without zeros was whole once, and is damaged.

    An index that leads further shows that whole batches were there: such a file is the beginning of a log, as of a copy
    cut short. Raises OSError.
    """
    with fs.open(segment.log, "r") as file:
        if not _is_unfinished(fs, segment.log, file, position):
            return False
    if segment.offset_index is None:
        return True
    try:
        rows = read_index(fs, segment.offset_index, segment.base_offset).rows
    except (OSError, RefusedError):
        return True  # an index is only a hint
    return not (rows["position"] > position).any()


def _is_unfinished(fs: FileSystem, path: Path, file: File, position: int) -> bool:
    steps = iter(LogWalk(fs, path, position, file=file))
    first = next(steps, None)
    if first is None:
        return False
    if isinstance(first, Gap):
        is_lost = _is_lost(file, position, _LEAST_LOST_BYTES)  # its header
        return first.at_end and (first.zeros or first.reason is EndReason.TRAILING or is_lost)
    batch = first.batches[0]
    if first.valid.any() or len(first.batches) > 1 or not _is_partly_lost(file, position, int(batch["size"])):
        return False
    return all(isinstance(step, Gap) and step.zeros for step in steps)


def _is_partly_lost(file: File, position: int, size: int) -> bool:
    """True if the end of a batch, or one of its sectors, is zeros."""
    end = position + size
    if _is_lost(file, max(position, end - _LEAST_LOST_BYTES), _LEAST_LOST_BYTES):
        return True
    sectors = range(position - position % _SECTOR_BYTES, end, _SECTOR_BYTES)
    places = ((max(start, position), min(start + _SECTOR_BYTES, end)) for start in sectors)
    return any(_is_lost(file, start, stop - start) for start, stop in places)


def _is_lost(file: File, position: int, size: int) -> bool:
    data = file.read_at(position, size)
    return len(data) >= _LEAST_LOST_BYTES and not any(data)


def newest_snapshot(fs: FileSystem, directory: Path, end: int | None) -> tuple[Path, int] | None:
    """Returns the newest complete snapshot up to `end`, and its offset; `.part` files are incomplete."""
    found = [(match[1], match[2], name) for name in fs.list(directory) if (match := _SNAPSHOT.fullmatch(name))]
    fitting = [one for one in found if end is None or int(one[0]) <= end]
    if not fitting:
        return None
    offset, _, name = max(fitting)
    return directory / name, int(offset)
