"""One partition as the planner and the readers see it: segment names first, sizes and contents only on request.

A partition may have ten thousand segments, and a query or a trigger may need one. So a listing yields names alone;
a segment's size costs one `stat` when it is asked for, and the log's end or its transactions are read when asked for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from seglog.errors import GONE, NotALogError, RefusedError, UnsupportedError
from seglog.format.filenames import FileKind, FileName, FileState, parse_file_name
from seglog.layout import INT64_MAX
from seglog.log.indexes import AbortedTransaction, TransactionIndex
from seglog.log.places import SegmentPlaces, closing_timestamp
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments, rebuild_producer_state
from seglog.model import TopicPartition
from seglog.scan.listing import INDEX_KINDS, SegmentFiles
from seglog.scan.log_walk import Gap, LogWalk
from seglog.scan.resync import PlausibleOffsets
from seglog.scan.segment_scan import entry_row
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import OverlayFileSystem
from seglog_stores.formats.tier_names import WATERMARK
from seglog_stores.tiers.view import TierFileSystem

T = TypeVar("T")

_PAUSES_S = (0.0, 0.001, 0.003, 0.01, 0.03)
_TRIES = 8

Identity = tuple[int, int, int]  # size, modification time in nanoseconds, inode


# --- segments -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SegmentName:
    """A `.log` file and its index files as the listing had them; None where an index is missing."""

    base_offset: int
    log: Path
    offset_index: Path | None = None
    time_index: Path | None = None
    transaction_index: Path | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment after a `stat` of its log: its files, and the log's identity and (for an object) ETag at that time."""

    files: SegmentFiles
    identity: Identity
    version: str


def list_segments(fs: FileSystem, directory: Path) -> tuple[SegmentName, ...]:
    """Returns the segments by base offset. Raises NotALogError without a directory, UnsupportedError for a 0.7 log.

    During a swap, neither the old segments nor the new ones have their final names. So while files are being replaced,
    the directory is listed again until two listings agree and no swap is under way. It gives up soon, because a crash
    may have left the swap unfinished.
    """
    names = _names_in(fs, directory)
    for pause in _PAUSES_S:
        states = {parsed.state for parsed in names.values()}
        if states <= {FileState.LIVE}:
            break
        again = _names_in(fs, directory)
        if again == names and FileState.SWAP not in states:
            break
        time.sleep(pause)
        names = again
    found: dict[FileKind, dict[int, Path]] = {kind: {} for kind in FileKind}
    for name, parsed in names.items():
        if parsed.state is FileState.LIVE:
            found[parsed.kind][parsed.offset] = directory / name
    if found[FileKind.LOG_07] and not found[FileKind.LOG]:
        raise UnsupportedError(
            f"{directory}: a log of Kafka 0.7 has no offsets to read by; pipe `seglog read --json` into"
            " `seglog append --create --input-format jsonl` to make a newer log of it"
        )
    return tuple(
        SegmentName(offset, found[FileKind.LOG][offset], *(found[kind].get(offset) for kind in INDEX_KINDS))
        for offset in sorted(found[FileKind.LOG])
    )


def _names_in(fs: FileSystem, directory: Path) -> dict[str, FileName]:
    """Returns the file names that begin with an offset, parsed."""
    try:
        listed = fs.list(directory)
    except FileNotFoundError as error:
        raise NotALogError(directory, "no such directory") from error
    except NotADirectoryError as error:
        raise NotALogError(directory, "not a directory") from error
    if WATERMARK in listed:
        raise RefusedError(
            f"{directory}: {WATERMARK} says how far Pinterest's uploader has come, and is only honoured if the path"
            " names this directory, not one above it"
        )
    return {name: parsed for name in listed if (parsed := parse_file_name(name)) is not None}


def look_at(fs: FileSystem, name: SegmentName) -> Segment:
    """Returns the segment with its log's present size and identity. Raises FileNotFoundError if the log is gone."""
    status = fs.status(name.log)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(name.log))
    if status.is_directory:
        raise NotALogError(name.log, "a directory where a segment must be")
    indexes = name.offset_index, name.time_index, name.transaction_index
    files = SegmentFiles(name.base_offset, name.log, status.size, status.modified_ms, *indexes)
    return Segment(files, (status.size, status.modified_ns, status.inode), status.version)


# --- a partition ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a log: the offset after its last good batch, and the byte position after it in the last segment.

    `batch` is the position and the checksum of that batch; None if the last segment has no good batch.
    """

    next_offset: int
    position: int
    batch: tuple[int, int] | None = None

    def is_in(self, fs: FileSystem, segment: SegmentFiles) -> bool:
        """True if the batch is still at its place, judged by its header."""
        if self.batch is None or self.position > segment.size:
            return False
        with fs.open(segment.log, "r") as file:
            row = entry_row(file, self.batch[0], segment.size)
        return row is not None and (int(row["crc"][0]), int(row["last_offset"][0])) == (
            self.batch[1],
            self.next_offset - 1,
        )


@dataclass(frozen=True)
class PartitionLog:
    """One partition: its segments' names, and the values that the checkpoints next to it give.

    `high_watermark` is None if no checkpoint lists the partition. `only` is the single segment that a path named. Each
    segment is looked at once, when it is first asked for. A FileNotFoundError then means that the segment has been
    replaced since the listing (`listed_again`).
    """

    fs: FileSystem
    topic_partition: TopicPartition
    directory: Path
    names: tuple[SegmentName, ...]
    log_start_checkpoint: int
    high_watermark: int | None
    only: Path | None
    _seen: dict[int, Segment] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def chosen(self) -> tuple[int, ...]:
        """The indexes in `names` of the segments to read."""
        return tuple(i for i, name in enumerate(self.names) if self.only is None or name.log.name == self.only.name)

    def segment(self, index: int) -> Segment:
        """Returns the segment at this index, as it was when first asked for."""
        if index not in self._seen:
            self._seen[index] = look_at(self.fs, self.names[index])
        return self._seen[index]

    def place_of(self, base_offset: int) -> int:
        """Returns the index of the segment with that base offset, which must exist."""
        return bisect_left(self.names, base_offset, key=lambda name: name.base_offset)

    def end_of(self, index: int) -> int:
        """Returns the next segment's base offset; INT64_MAX for the last segment, whose end is unknown."""
        return self.names[index + 1].base_offset if index + 1 < len(self.names) else INT64_MAX

    @property
    def last(self) -> SegmentFiles | None:
        """The last segment to read."""
        return self.segment(self.chosen[-1]).files if self.chosen else None

    @property
    def log_start_offset(self) -> int:
        """The first readable offset: the checkpointed log start, but at least the first segment's base offset."""
        first = self.names[self.chosen[0]].base_offset if self.chosen else 0
        return max(first, self.log_start_checkpoint)

    @property
    def log_end_offset(self) -> int:
        """The offset after the last batch with a valid checksum, but at least the log start."""
        return max(self.tail.next_offset, self.log_start_offset)

    @property
    def is_vouched(self) -> bool:
        """True if a tier's or a commit's own list tells whether a segment is missing."""
        return isinstance(self.fs, TierFileSystem)

    @cached_property
    def tail(self) -> LogTail:
        """The end of the log, found by walking from the last valid index entry."""
        last = self.last
        if last is None:
            return LogTail(0, 0)
        return tail_of(self.fs, last) or LogTail(last.base_offset, 0)

    @cached_property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction, else the log end. Changes nothing on disk."""
        overlay = OverlayFileSystem(self.fs)
        producers = ProducerStateManager(overlay, self.directory, strict=False)
        bases = [self.names[i].base_offset for i in self.chosen]
        segments = LogSegments(LogSegment(overlay, self.directory, base) for base in bases)
        if not segments:
            return self.log_end_offset
        start, end = self.log_start_offset, self.log_end_offset
        # at time 0 no producer id has expired
        rebuild_producer_state(producers, segments, start, end, 0, reload_from_clean_shutdown=False)
        producers.on_high_watermark(end)
        unstable = producers.first_unstable_offset
        return end if unstable is None else min(unstable, end)

    @cached_property
    def aborted_transactions(self) -> tuple[AbortedTransaction, ...]:
        """All entries of the transaction indexes, by first offset."""
        found: list[AbortedTransaction] = []
        for name in (self.names[i] for i in self.chosen):
            if name.transaction_index is not None:
                found += TransactionIndex(self.fs, name.transaction_index, name.base_offset).entries
                if self.fs.status(name.transaction_index) is None:  # a missing file reads as one without entries
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(name.transaction_index))
        return tuple(sorted(found, key=lambda entry: (entry.first_offset, entry.producer_id)))

    def places(self, index: int) -> SegmentPlaces:
        """Returns where in a segment a range lies."""
        return SegmentPlaces.of(self.fs, self.segment(index).files)

    def is_older(self, index: int, timestamp: int) -> bool:
        """True if the time index shows that all records of a segment are older than `timestamp`."""
        largest = self.largest_timestamp(index)
        return largest is not None and largest < timestamp

    def largest_timestamp(self, index: int) -> int | None:
        """Returns the largest timestamp of a segment's records by the time index.

        None where that is unknown: for the last segment, and for one without time index entries.
        """
        name = self.names[index]
        if index == len(self.names) - 1 or name.time_index is None:
            return None
        return closing_timestamp(self.fs, name.time_index, name.base_offset)

    def listed_again(self) -> PartitionLog:
        """Returns the partition as it is now. Raises NotALogError if it is gone."""
        return replace(self, names=list_segments(self.fs, self.directory), _seen={})


def settled(log: PartitionLog, work: Callable[[PartitionLog], T]) -> tuple[PartitionLog, T]:
    """Returns `work(log)`, and the partition as it was at that time.

    A running broker may clean, delete and roll. If a segment vanishes during the work, the partition is listed again
    and the work starts over.
    """
    for _ in range(_TRIES):
        try:
            return log, work(log)
        except GONE:
            log = log.listed_again()
    return log, work(log)


@contextlib.contextmanager
def permitted() -> Iterator[None]:
    """Turns a PermissionError into a RefusedError that names the file. Also usable as a decorator."""
    try:
        yield
    except PermissionError as error:
        raise RefusedError(f"{error.filename}: no permission to read it") from error


# --- batches --------------------------------------------------------------------------------------------------


def tail_of(fs: FileSystem, segment: SegmentFiles, start: int | None = None) -> LogTail | None:
    """Returns the end of a segment's last batch with a valid checksum, or None if it has none.

    Reads from byte `start`, or from the last index entry that is believed.
    """
    begin = SegmentPlaces.of(fs, segment).start(INT64_MAX).position if start is None else start
    tail = None
    for step in LogWalk(fs, segment.log, begin, segment.size, offsets=PlausibleOffsets(least=segment.base_offset)):
        if isinstance(step, Gap) or not step.valid.any():
            continue
        row = step.batches[np.flatnonzero(step.valid)[-1]]
        position = int(row["position"])
        tail = LogTail(int(row["last_offset"]) + 1, position + int(row["size"]), (position, int(row["crc"])))
    if tail is None and begin > 0 and start is None:
        return tail_of(fs, segment, 0)
    return tail
