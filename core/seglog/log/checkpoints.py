"""A log directory's checkpoints and clean-shutdown marker, the evidence in a partition's files without them, and the
small files that stop a broker.

Kafka: OffsetCheckpointFile, CleanShutdownFileHandler. An update changes the entries of the partitions worked on and
keeps all others: the file is read again each time, under the directory's lock, and replaced as a whole.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seglog.errors import CorruptCheckpointError, CorruptionError, RefusedError
from seglog.format import filenames
from seglog.format.checkpoint import (
    CheckpointEndsError,
    CheckpointNumberError,
    format_clean_shutdown,
    format_offset_checkpoint,
    offset_entries,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from seglog.log.leader_epochs import LeaderEpochCache
from seglog.log.segment import LogSegment
from seglog.model import TopicPartition
from seglog.scan.listing import OFFSET_CHECKPOINTS, PartitionListing, SegmentFiles
from seglog.storage.files import write_atomically
from seglog.storage.filesystem import FileSystem

_logger = logging.getLogger(__name__)

NAMED_BY_OFFSET = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".cleaned", ".swap")
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


def check_checkpoints(fs: FileSystem, log_directory: Path) -> None:
    """Raises CorruptCheckpointError if an offset checkpoint is damaged or names a partition twice.

    The latter kills a broker's cleaner thread; some damaged files count as empty for it.
    """
    for name in OFFSET_CHECKPOINTS:
        path = log_directory / name
        if fs.status(path) is None:
            continue
        seen: dict[TopicPartition, int] = {}
        for number, (topic_partition, _) in enumerate(offset_entries(fs.read_bytes(path), path), start=3):
            first = seen.setdefault(topic_partition, number)
            if first != number:
                what = f"{topic_partition} is listed twice (first in line {first})"
                raise CorruptCheckpointError(path, f"line {number}: {what}; `seglog verify --repair` settles it")


class OffsetCheckpoint:
    """One file of `topic partition offset` lines.

    A file with an entry that is no number counts as empty, as for a starting broker; any other damage is a
    CorruptCheckpointError, because a broker takes the directory offline then. With `tolerant` (only for reading) both
    count as empty. `damage` describes the damage that was ignored.
    """

    def __init__(self, fs: FileSystem, path: Path, *, tolerant: bool = False) -> None:
        self.path, self.damage = path, ""
        self._fs, self._tolerant = fs, tolerant
        self.offsets: dict[TopicPartition, int] = self._read()

    def update(self, changes: Mapping[TopicPartition, int | None]) -> None:
        """Sets entries, removes those given as None, keeps all others; durable on return. Writes only real changes."""
        current = self._read()
        wanted = dict(current)
        for topic_partition, offset in changes.items():
            if offset is None:
                wanted.pop(topic_partition, None)
            else:
                wanted[topic_partition] = offset
        if wanted != current or self._fs.status(self.path) is None:
            write_atomically(self._fs, self.path, format_offset_checkpoint(wanted))
        self.offsets = wanted

    def _read(self) -> dict[TopicPartition, int]:
        if self._fs.status(self.path) is None:
            return {}
        try:
            return parse_offset_checkpoint(self._fs.read_bytes(self.path), self.path)
        except CorruptCheckpointError as error:
            if not self._tolerant and not isinstance(error, CheckpointNumberError):
                raise
            self.damage = str(error)
            _logger.warning("%s: taken as empty", error)
            return {}


class CleanShutdownMarker:
    """`.kafka_cleanshutdown`, which exists while every log of the directory is closed properly."""

    def __init__(self, fs: FileSystem, log_directory: Path) -> None:
        self.path = log_directory / filenames.CLEAN_SHUTDOWN_FILE
        self._fs = fs
        self.found = fs.status(self.path) is not None
        self._contents = fs.read_bytes(self.path) if self.found else format_clean_shutdown()

    def remove(self) -> None:
        """Removes the marker, so that a crash from here on counts as unclean; durable on return."""
        if self._fs.status(self.path) is not None:
            self._fs.remove(self.path)
            self._fs.sync_directory(self.path.parent)

    def write(self) -> None:
        """Writes the marker: everything is flushed and closed. A marker that existed comes back unchanged."""
        write_atomically(self._fs, self.path, self._contents)


@dataclass(frozen=True, slots=True)
class ShutdownEvidence:
    """The evidence in a partition's files: whether the log was closed, and if not, the offset to recover from."""

    clean: bool
    recovery_point: int
    reason: str


def shutdown_evidence(fs: FileSystem, listing: PartitionListing) -> ShutdownEvidence:
    """Judges by its files whether a partition was closed properly, if no log directory can tell: a copied or lone one.

    A broker would treat such a directory as unclean and read it from its start, cutting it at the first damage. That is
    more than necessary: segments before the active one were complete when they were rolled. So:

    - closed: no leftovers, every segment has its indexes without zero padding and without an entry beyond its end, the
      newest snapshot is at the log end, and the last batch ends where its file ends;
    - otherwise unclean, from the first segment whose indexes are missing, padded or too long, at the latest from the
      active one.

    Reads names, indexes and the end of the active segment; changes nothing.
    """
    if not listing.segments:
        return ShutdownEvidence(True, 0, "there are no segments")
    active = listing.segments[-1].base_offset
    segment = LogSegment(fs, listing.directory, active)
    next_offset, valid_bytes = segment.read_next_offset()
    ends = [*(later.base_offset for later in listing.segments[1:]), next_offset]
    for files, end in zip(listing.segments, ends, strict=True):
        reason = _unfinished_index(fs, files, end)
        if reason:
            return ShutdownEvidence(False, files.base_offset, reason)
    if valid_bytes != segment.size:
        return ShutdownEvidence(False, active, f"the last batch ends at byte {valid_bytes} of {segment.size}")
    if any(path.name.endswith((".swap", ".cleaned")) for path in listing.leftovers):
        return ShutdownEvidence(False, active, "a replacement of segments was interrupted")
    newest = max((snapshot.offset for snapshot in listing.snapshots), default=0)
    if newest != next_offset:
        return ShutdownEvidence(False, active, f"no producer snapshot at the log end, {next_offset}")
    return ShutdownEvidence(True, next_offset, "")


def _unfinished_index(fs: FileSystem, files: SegmentFiles, end: int) -> str:
    """Returns the fault in the indexes of a segment that ends before offset `end`, or ""."""
    segment = LogSegment(fs, files.log.parent, files.base_offset)
    for index in (segment.offset_index, segment.time_index):
        status = fs.status(index.path)
        if status is None:
            return f"{index.path.name} is missing"
        if status.size != index.size:
            return f"{index.path.name} has {status.size} bytes for {index.size} bytes of entries"
    # a crash may undo the cutting of an index, and not that of its log
    offsets, times = segment.offset_index, segment.time_index
    if offsets.entries and (int(offsets.positions[-1]) >= files.size or offsets.last_offset >= end):
        return f"{offsets.path.name} has entries beyond the end of its segment"
    if times.entries and times.last_entry[1] >= end:
        return f"{times.path.name} has entries beyond the end of its segment"
    return ""


# --- obstacles ---------------------------------------------------------------------------------------------
#
# They stop a broker from opening a partition or a log directory although its logs are whole: unreadable small files,
# and names without the offset that they should have. Recovering, cleaning and deleting do not need most of these files,
# so they report what a starting broker would (Kafka: LogManager.loadLog, LogLoader.loadSegmentFiles,
# PartitionMetadataFile, LeaderEpochCheckpointFile, MetaPropertiesEnsemble).


def is_offset(text: str) -> bool:
    """True if Java would parse the text as a long."""
    return _NUMBER.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


def partition_obstacles(fs: FileSystem, directory: Path) -> Iterator[str]:
    """Yields why a broker would not open the partition in `directory`, as sentences; nothing for a missing one."""
    found = fs.status(directory)
    if found is None or not found.is_directory:
        return
    metadata = directory / filenames.PARTITION_METADATA
    yield from _unreadable(fs, metadata, lambda path: parse_partition_metadata(fs.read_bytes(path), path))
    epochs = directory / filenames.LEADER_EPOCH_CHECKPOINT
    yield from _unreadable(fs, epochs, lambda path: LeaderEpochCache(fs, path.parent))
    for name, status in fs.entries(directory):
        if not status.is_directory and name.endswith(NAMED_BY_OFFSET) and not is_offset(name.partition(".")[0]):
            yield f"{directory / name}: the name is not an offset"


def directory_obstacles(fs: FileSystem, log_directory: Path) -> Iterator[str]:
    """Yields why a broker would not open the log directory, as sentences."""
    properties = log_directory / filenames.META_PROPERTIES
    yield from _unreadable(fs, properties, lambda path: parse_meta_properties(fs.read_bytes(path), path))
    for name in OFFSET_CHECKPOINTS:
        yield from _unreadable(fs, log_directory / name, lambda path: _read_checkpoint(fs, path))


def _read_checkpoint(fs: FileSystem, path: Path) -> None:
    try:
        parse_offset_checkpoint(fs.read_bytes(path), path)
    except CheckpointEndsError:
        return  # counts as empty for a broker
    except CheckpointNumberError as error:
        if path.name in (filenames.RECOVERY_POINT_CHECKPOINT, filenames.LOG_START_OFFSET_CHECKPOINT):
            return  # and this one too
        raise error


def _unreadable(fs: FileSystem, path: Path, read: Callable[[Path], object]) -> Iterator[str]:
    if fs.status(path) is None:
        return
    try:
        read(path)
    except (CorruptionError, RefusedError) as error:
        yield str(error)
    except OSError as error:
        yield f"{path}: {error.strerror or error}"
