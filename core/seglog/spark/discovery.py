"""From what a user wrote as path to the partitions there, on the driver: names and stat calls only.

A path is a partition directory, a log directory (one of a broker's `log.dirs`), a `.log` file, or a glob of them;
a `file:` URI is what Spark makes of a path in SQL. `PartitionLog` is one partition as the driver saw it: the
reader's plan rests on it, so a DataFrame is a snapshot. What costs reading (where the log ends, what transactions
did) is found when asked.
"""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np

from seglog.diagnosis.resync import OffsetRange, checksum_valid, entry_row
from seglog.diagnosis.walk import Gap, LogWalk
from seglog.errors import ConfigError, NotALogError, RefusedError, UnsupportedError
from seglog.format import filenames
from seglog.format.checkpoint import parse_offset_checkpoint
from seglog.log.listing import (
    PartitionListing,
    SegmentFiles,
    Target,
    TargetKind,
    list_log_directory,
    list_partition,
    resolve_path,
)
from seglog.log.offset_index import OffsetIndex
from seglog.log.producer_replay import rebuild_producer_state
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments
from seglog.log.transaction_index import AbortedTransaction, TransactionIndex
from seglog.model import TopicPartition
from seglog.spark.options import ReadOptions
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import OverlayFileSystem

_logger = logging.getLogger(__name__)

_GLOB = frozenset("*?[")
_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a log: the offset behind its last good batch, and the byte position behind it in the last segment."""

    next_offset: int
    position: int


@dataclass(frozen=True)
class PartitionLog:
    """One partition: its segments, and what the checkpoints beside it say (`high_watermark` None: nothing)."""

    fs: FileSystem
    topic_partition: TopicPartition
    directory: Path
    segments: tuple[SegmentFiles, ...]
    log_start_checkpoint: int
    high_watermark: int | None

    @property
    def size(self) -> int:
        """Bytes in all `.log` files."""
        return sum(segment.size for segment in self.segments)

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read: the checkpoint's, at least the first segment's base."""
        first = self.segments[0].base_offset if self.segments else 0
        return max(first, self.log_start_checkpoint)

    @property
    def log_end_offset(self) -> int:
        """The offset behind the last batch with a right checksum, at least the log start."""
        return max(self.tail.next_offset, self.log_start_offset)

    @cached_property
    def tail(self) -> LogTail:
        """Where the log ends, read from the last index entry on that is right."""
        segments = self.segments
        for _ in range(_ATTEMPTS if segments else 0):
            try:
                return tail_of(self.fs, segments[-1]) or LogTail(segments[-1].base_offset, 0)
            except FileNotFoundError:  # a broker has replaced or deleted the segment: it ends in what is there now
                segments = list_partition(self.fs, self.directory).segments or segments
        return LogTail(segments[-1].base_offset if segments else 0, 0)

    @cached_property
    def last_stable_offset(self) -> int:
        """First offset of the earliest transaction without a marker, else the log end. Changes nothing on disk."""
        overlay = OverlayFileSystem(self.fs)
        producers = ProducerStateManager(overlay, self.directory, strict=False)
        segments = LogSegments(LogSegment(overlay, self.directory, s.base_offset) for s in self.segments)
        if not segments:
            return self.log_end_offset
        start, end = self.log_start_offset, self.log_end_offset
        # at the time 0 no producer is old enough to be forgotten
        rebuild_producer_state(producers, segments, start, end, 0, reload_from_clean_shutdown=False)
        producers.on_high_watermark(end)
        unstable = producers.first_unstable_offset
        return end if unstable is None else min(unstable, end)

    @cached_property
    def aborted_transactions(self) -> tuple[AbortedTransaction, ...]:
        """All that the transaction indexes know, by first offset."""
        found: list[AbortedTransaction] = []
        for segment in self.segments:
            if segment.transaction_index is not None:
                found += TransactionIndex(self.fs, segment.transaction_index, segment.base_offset).entries
        return tuple(sorted(found, key=lambda entry: (entry.first_offset, entry.producer_id)))

    def index_of(self, segment: SegmentFiles) -> np.ndarray:
        """The entries of a segment's offset index that can be: int64 (n, 2), offset and position, ascending."""
        if segment.offset_index is None:
            return np.empty((0, 2), dtype=np.int64)
        index = OffsetIndex(self.fs, segment.offset_index, segment.base_offset)
        entries = np.column_stack((index.offsets, index.positions))
        inside = (entries[:, 1] > 0) & (entries[:, 1] < segment.size)
        return entries[inside]


@contextmanager
def permitted() -> Iterator[None]:
    """Names the file where permission is missing: RefusedError. A decorator as well."""
    try:
        yield
    except PermissionError as error:
        raise RefusedError(f"{error.filename}: no permission to read it") from error


@permitted()
def find_partitions(fs: FileSystem, options: ReadOptions) -> list[PartitionLog]:
    """The partitions that the options name, by topic and number.

    Raises NotALogError for a path without a log, ConfigError when a partition is asked for and missing, or found
    twice, RefusedError where permission is missing.
    """
    found: dict[TopicPartition, PartitionLog] = {}
    for target in _targets(fs, options.paths):
        for partition in _partitions(fs, target):
            known = found.get(partition.topic_partition)
            if known is not None and links.resolve(known.directory) != links.resolve(partition.directory):
                raise ConfigError(
                    f"{known.directory} and {partition.directory} both hold {partition.topic_partition}:"
                    " read replicas one by one"
                )
            if options.chooses(partition.topic_partition):
                found[partition.topic_partition] = partition
    missing = sorted((options.assign or frozenset()) - found.keys())
    absent = sorted((options.subscribe or frozenset()) - {key.topic for key in found})
    if missing or absent:
        names = ", ".join([*map(str, missing), *absent])
        raise ConfigError(f"{names}: no such partition below {', '.join(options.paths)}")
    return [found[key] for key in sorted(found)]


def tail_of(fs: FileSystem, segment: SegmentFiles, start: int | None = None) -> LogTail | None:
    """Behind the last batch of a segment whose checksum is right, or None when there is none.

    Reads from byte `start`, or from the last index entry that is a batch.
    """
    begin = _last_indexed(fs, segment) if start is None else start
    tail = None
    for step in LogWalk(fs, segment.log, begin, segment.size, offsets=OffsetRange(least=segment.base_offset)):
        if isinstance(step, Gap) or not step.valid.any():
            continue
        row = step.batches[np.flatnonzero(step.valid)[-1]]
        tail = LogTail(int(row["last_offset"]) + 1, int(row["position"]) + int(row["size"]))
    if tail is None and begin > 0 and start is None:
        return tail_of(fs, segment, 0)
    return tail


def batch_at(fs: FileSystem, path: Path, position: int, size: int) -> np.void | None:
    """The batch (a row of layout.BATCH) at `position` of a file of `size` bytes if its checksum is right.

    None as well when the file is gone: whoever reads it will say so.
    """
    try:
        with fs.open(path, "r") as file:
            row = entry_row(file, position, size)
            return row[0] if row is not None and checksum_valid(file, row[0]) else None
    except FileNotFoundError:
        return None


# --- paths --------------------------------------------------------------------------------------------------


def local_path(text: str) -> Path:
    """The path that `text` means: plain, or a `file:` URI. UnsupportedError for another scheme."""
    scheme = text.partition(":")[0] if "://" in text or text.startswith("file:") else ""
    if not scheme:
        return Path(text)
    if scheme != "file":
        raise UnsupportedError(f"{text}: seglog reads mounted file systems; mount it and leave out the scheme {scheme}")
    return Path(unquote(urlsplit(text).path))


def expand(fs: FileSystem, path: Path) -> list[Path]:
    """The paths that a glob stands for; a path that exists stands for itself. NotALogError when nothing fits."""
    if not _GLOB & set(str(path)) or fs.status(path) is not None:
        return [path]
    found = [Path(path.anchor)]
    for part in path.parts[1 if path.anchor else 0 :]:
        found = list(_matching(fs, found, part))
    if not found:
        raise NotALogError(path, "nothing matches")
    return found


def _matching(fs: FileSystem, directories: Iterable[Path], part: str) -> Iterator[Path]:
    for directory in directories:
        status = fs.status(directory)
        if status is None or not status.is_directory:
            continue
        names = fs.list(directory) if _GLOB & set(part) else [part]
        for name in names:
            hidden = name.startswith(".") and not part.startswith(".")
            if name == part or (not hidden and fnmatch.fnmatchcase(name, part)):
                yield directory / name


def _targets(fs: FileSystem, paths: Iterable[str]) -> Iterator[Target]:
    for text in paths:
        path = local_path(text).absolute()  # a task's working directory is its own
        expanded = expand(fs, path)
        found = 0
        for one in expanded:
            try:
                target = resolve_path(fs, one)
            except NotALogError:
                if len(expanded) == 1:
                    raise
                continue  # a glob meets checkpoints and other strangers beside the partitions
            if target.kind is TargetKind.FILE and len(expanded) > 1 and not one.name.endswith(".log"):
                continue
            found += 1
            yield target
        if not found:
            raise NotALogError(path)


def _partitions(fs: FileSystem, target: Target) -> Iterator[PartitionLog]:
    if target.kind is TargetKind.LOG_DIRECTORY:
        listing = list_log_directory(fs, target.path)
        starts, marks = _checkpoints(fs, target.path)
        for found in listing.live:
            try:
                listed = list_partition(fs, found.path)
            except NotALogError:
                continue  # a broker has deleted it meanwhile
            yield _partition(fs, listed, starts, marks)
        return
    listed = list_partition(fs, target.directory)
    starts, marks = _checkpoints(fs, links.resolve(target.directory).parent)
    log = _partition(fs, listed, starts, marks)
    if target.kind is TargetKind.FILE:
        name = target.path.name
        only = tuple(segment for segment in log.segments if segment.log.name == name)
        if not only:
            raise NotALogError(target.path, "no segment's .log file")
        log = PartitionLog(fs, log.topic_partition, log.directory, only, log.log_start_checkpoint, log.high_watermark)
    yield log


def _partition(
    fs: FileSystem, listing: PartitionListing, starts: dict[TopicPartition, int], marks: dict[TopicPartition, int]
) -> PartitionLog:
    if listing.format != "kafka":
        raise UnsupportedError(f"{listing.directory}: a log of Kafka 0.7 has no offsets to read by; convert it first")
    # a copy under a name of its own still is a log: its name stands for the topic
    key = listing.topic_partition or TopicPartition(listing.directory.resolve().name, 0)
    return PartitionLog(fs, key, listing.directory, listing.segments, starts.get(key, 0), marks.get(key))


def _checkpoints(fs: FileSystem, directory: Path) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The log start offsets and high watermarks that a log directory's checkpoints hold; empty without them."""
    found = []
    for name in (filenames.LOG_START_OFFSET_CHECKPOINT, filenames.HIGH_WATERMARK_CHECKPOINT):
        path = directory / name
        present = fs.status(path) is not None
        found.append(parse_offset_checkpoint(fs.read_bytes(path), path) if present else {})
    return found[0], found[1]


def _last_indexed(fs: FileSystem, segment: SegmentFiles) -> int:
    """The last index position where a batch with a right checksum begins, else 0."""
    if segment.offset_index is None:
        return 0
    index = OffsetIndex(fs, segment.offset_index, segment.base_offset)
    for position in index.positions[: -4 : -1].tolist():
        if 0 < position < segment.size and batch_at(fs, segment.log, position, segment.size) is not None:
            return int(position)
    return 0
