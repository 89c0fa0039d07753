"""Checkpoint files: offsets and clean-shutdown marker of a log directory, leader epochs of a log, a broker's obstacles.

Kafka: OffsetCheckpointFile, CleanShutdownFileHandler, LeaderEpochFileCache. Every change replaces the whole file
atomically. An offset checkpoint is read again for each update, under the directory's lock: the update changes the
entries of the partitions worked on and keeps all others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from seglog.errors import CorruptCheckpointError, CorruptionError, RefusedError
from seglog.format import filenames
from seglog.format.checkpoint import (
    CheckpointEndsError,
    CheckpointNumberError,
    EpochEntry,
    OffsetLines,
    format_clean_shutdown,
    format_leader_epochs,
    offset_entries,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from seglog.model import NO_LEADER_EPOCH, TopicPartition
from seglog.scan.listing import OFFSET_CHECKPOINTS
from seglog.storage.filesystem import FileSystem, write_atomically
from seglog.storage.overlay import BLOCK_BYTES, blocks

_logger = logging.getLogger(__name__)

NAMED_BY_OFFSET = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".cleaned", ".swap")
NO_OFFSET = -1


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
                raise CorruptCheckpointError(path, f"line {number}: {what}; `seglog repair` settles it")


class OffsetCheckpoint:
    """One file of `topic partition offset` lines.

    A file with an entry that is not a number counts as empty, as for a starting broker; any other damage is a
    CorruptCheckpointError, because a broker takes the directory offline then. With `tolerant` (only for reading) both
    count as empty. `damage` describes the damage that was ignored.
    """

    def __init__(self, fs: FileSystem, path: Path, *, tolerant: bool = False) -> None:
        self.path, self.damage = path, ""
        self._fs, self._tolerant = fs, tolerant
        self._data: bytes | None = None  # of the file that `offsets` were read from or written to
        self._lines: OffsetLines | None = None  # of that file, once it was written
        self.offsets: dict[TopicPartition, int] = {}
        self.offsets = self._read()

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
            lines, self._lines = self._lines, None  # unknown if the file cannot be written
            if lines is None:
                lines = OffsetLines(wanted)
            else:
                for topic_partition, offset in changes.items():
                    lines.put(topic_partition, offset)
            data = lines.data()
            write_atomically(self._fs, self.path, data)
            self._data, self._lines = data, lines
        self.offsets = wanted

    def _read(self) -> dict[TopicPartition, int]:
        """Reads the file; parses it only if it is not as it was left: each round over ten thousand logs comes here."""
        data = None if self._fs.status(self.path) is None else self._fs.read_bytes(self.path)
        if data is not None and data == self._data:
            return self.offsets
        self._data = self._lines = None
        if data is None:
            return {}
        try:
            offsets = parse_offset_checkpoint(data, self.path)
        except CorruptCheckpointError as error:
            if not self._tolerant and not isinstance(error, CheckpointNumberError):
                raise
            self.damage = str(error)
            _logger.warning("%s: taken as empty", error)
            return {}
        self._data = data
        return offsets


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


class LeaderEpochCache:
    """The leader epochs of one log and their start offsets, both ascending. `path` is the checkpoint file.

    Loading assigns the file's entries one by one, which repairs their order. Raises CorruptCheckpointError if the file
    cannot be read; with `tolerant` it counts as empty instead, and `damage` is that error. `highest_epoch` is the
    highest epoch ever assigned here: a leader records its epoch at the log end before it writes, and opening the log
    drops such an entry, but the epoch was that leader's all the same.
    """

    def __init__(self, fs: FileSystem, directory: Path, *, tolerant: bool = False) -> None:
        self.path = directory / filenames.LEADER_EPOCH_CHECKPOINT
        self.damage: CorruptCheckpointError | None = None
        self._fs = fs
        self._entries: list[EpochEntry] = []
        self.highest_epoch = NO_LEADER_EPOCH
        try:
            for entry in self._read():
                self._assign(entry)
        except CorruptCheckpointError as error:
            if not tolerant:
                advice = "`seglog repair` rebuilds it from the records"
                raise CorruptCheckpointError(self.path, f"{error.reason}; {advice}") from error
            self.damage = error

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """The epochs in ascending order."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The latest epoch, or -1."""
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begins `epoch` at `start_offset` and drops entries that contradict it. Durable on return."""
        if self._assign(EpochEntry(epoch, start_offset)):
            self.flush()

    def assign_appended(self, batches: np.ndarray) -> None:
        """Assigns the epochs of batches to be appended (rows of layout.BATCH in log order; Kafka: UnifiedLog.append).

        An epoch below the latest is assigned, too; a batch without an epoch changes nothing. A message of magic 0 or 1
        cannot have one, and makes the earlier epochs meaningless: they are dropped.
        """
        legacy = np.flatnonzero(batches["magic"] < 2)
        changed = bool(len(legacy) and self._entries)
        if len(legacy):
            self._entries = []
            batches = batches[legacy[-1] + 1 :]
        epochs, starts = batches["leader_epoch"], batches["base_offset"]
        # only a batch with another epoch, or an offset that goes back, can change anything
        differs = np.ones(len(batches), dtype=bool)
        differs[1:] = (epochs[1:] != epochs[:-1]) | (starts[1:] < starts[:-1])
        for i in np.flatnonzero(differs & (epochs >= 0)).tolist():
            changed |= self._assign(EpochEntry(int(epochs[i]), int(starts[i])))
        if changed:
            self.flush()

    def assign_recovered(self, batches: np.ndarray) -> None:
        """Assigns the epochs of recovered batches (rows of layout.BATCH, magic 2): each one above all before it (Kafka:
        LogSegment.recover).
        """
        if not len(batches):
            return
        epochs = batches["leader_epoch"]
        before = np.maximum.accumulate(np.concatenate(([self.latest_epoch], epochs[:-1])))
        changed = False
        for i in np.flatnonzero((epochs > before) & (epochs >= 0)).tolist():
            changed |= self._assign(EpochEntry(int(epochs[i]), int(batches["base_offset"][i])))
        if changed:
            self.flush()

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that begin at or after `end_offset`."""
        if self.latest_epoch >= 0 and end_offset >= 0 and self._entries[-1].start_offset >= end_offset:
            self._entries = [entry for entry in self._entries if entry.start_offset < end_offset]
            self.flush()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops the epochs that end below `start_offset`; the one that holds it begins there afterwards."""
        below = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if not below or (below[-1].start_offset == start_offset and len(below) == 1):
            return
        kept = [entry for entry in self._entries if entry.start_offset > start_offset]
        self._entries = [EpochEntry(below[-1].epoch, start_offset), *kept]
        self.flush()

    def clear_and_flush(self) -> None:
        """Forgets every epoch."""
        self._entries = []
        self.flush()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Returns (epoch, end offset) of the greatest epoch of at most `epoch`; (-1, -1) if unknown (KIP-101)."""
        if not self._entries or epoch < 0 or epoch > self.latest_epoch:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        higher = next(entry for entry in self._entries if entry.epoch > epoch)
        floors = [entry.epoch for entry in self._entries if entry.epoch <= epoch]
        return (floors[-1] if floors else epoch), higher.start_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """Returns the epoch in which `offset` was written, or None before the first epoch."""
        found = [entry.epoch for entry in self._entries if entry.start_offset <= offset]
        return found[-1] if found else None

    def flush(self) -> None:
        """Writes the file; durable on return."""
        write_atomically(self._fs, self.path, format_leader_epochs(self._entries))

    def create_file(self) -> None:
        """Creates the empty file that a broker creates with a new log, if it is missing; durable on return."""
        if self._fs.status(self.path) is None:
            self._fs.open(self.path, "create_new").close()
            self._fs.sync_directory(self.path.parent)

    def _read(self) -> Iterable[EpochEntry]:
        if self._fs.status(self.path) is None:
            return ()
        return parse_leader_epochs(self._fs.read_bytes(self.path), self.path)

    def _assign(self, entry: EpochEntry) -> bool:
        """Adds an entry and drops those whose epoch or start is not below its own; returns False if it is not new."""
        if entry.epoch < 0 or entry.start_offset < 0:
            raise CorruptCheckpointError(self.path, f"epoch {entry.epoch} at offset {entry.start_offset} is impossible")
        last = self._entries[-1] if self._entries else None
        if last is not None and last.epoch == entry.epoch and entry.start_offset >= last.start_offset:
            return False
        while self._entries and (
            self._entries[-1].epoch >= entry.epoch or self._entries[-1].start_offset >= entry.start_offset
        ):
            self._entries.pop()
        self._entries.append(entry)
        self.highest_epoch = max(self.highest_epoch, entry.epoch)
        return True


# --- obstacles ---------------------------------------------------------------------------------------------
#
# They stop a broker from opening a partition or a log directory although its logs are whole: unreadable small files,
# and names without the offset that they should have. Recovering, cleaning and deleting do not need most of these files,
# so they report what a starting broker would (Kafka: LogManager.loadLog, LogLoader.loadSegmentFiles,
# PartitionMetadataFile, LeaderEpochCheckpointFile, MetaPropertiesEnsemble).


def is_offset(text: str) -> bool:
    """True if Java would parse the text as a long."""
    return filenames.JAVA_NUMBER.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


def partition_obstacles(fs: FileSystem, directory: Path) -> Iterator[str]:
    """Yields why a broker would not open the partition in `directory`, as sentences; nothing for a missing one."""
    found = fs.status(directory)
    if found is None or not found.is_directory:
        return
    metadata = directory / filenames.PARTITION_METADATA
    yield from _unreadable(fs, metadata, lambda path: parse_partition_metadata(fs.read_bytes(path), path))
    epochs = directory / filenames.LEADER_EPOCH_CHECKPOINT
    yield from _unreadable(fs, epochs, lambda path: LeaderEpochCache(fs, path.parent))
    strange = [n for n in fs.list(directory) if n.endswith(NAMED_BY_OFFSET) and not is_offset(n.partition(".")[0])]
    statuses = dict(fs.entries(directory)) if strange else {}
    for name in strange:
        if name in statuses and not statuses[name].is_directory:
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


def room_to_close(fs: FileSystem, log_directory: Path) -> int:
    """Returns the bytes that closing a log directory may write: its checkpoints and the marker are replaced one after
    the other, each written beside the old one."""
    names = (*OFFSET_CHECKPOINTS, filenames.CLEAN_SHUTDOWN_FILE)
    statuses = [fs.status(log_directory / name) for name in names]
    largest = max(status.size if status is not None else 0 for status in statuses)
    return statuses.count(None) * BLOCK_BYTES + blocks(largest + BLOCK_BYTES)
