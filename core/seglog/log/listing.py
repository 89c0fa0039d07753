"""What lies in a partition directory or a log directory, without opening or touching anything.
 Names, and what `stat` says of them: no file is opened, created, locked or changed, so this works on a live
broker's directory. Dumps, verification, statistics, Spark and dry runs build on it; the loader does too.
Kafka: the directory walks of LogLoader and LogManager, LogFileUtils, UnifiedLog.parseTopicPartitionName.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal

from seglog import layout
from seglog.errors import NotALogError
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileStatus, FileSystem

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
REMOTE_INDEX_CACHE = "remote-log-index-cache"

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
META_PROPERTIES = "meta.properties"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

LOG_SUFFIX = ".log"
LOG_07_SUFFIX = ".kafka"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

# Kafka renames and deletes a segment's files in this order.
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
INDEX_SUFFIXES = SEGMENT_SUFFIXES[1:]

_OFFSET_FILE = re.compile(
    r"(?P<offset>[0-9]{20,})(?P<suffix>\.log|\.kafka|\.index|\.timeindex|\.txnindex|\.snapshot)"
    r"(?P<state>\.deleted|\.cleaned|\.swap)?",
)
_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})")
_SUFFIXED_DIRECTORY = re.compile(r"(?P<name>\S+-\S+)\.\S+-(?P<state>delete|stray|future)")
# Beside segments: what Kafka puts into a partition directory (quorum-state and *.checkpoint in the KRaft
# log).
_OTHER_FILES = re.compile(
    r"leader-epoch-checkpoint|partition\.metadata|quorum-state|[0-9]{20}-[0-9]{10}\.checkpoint(\.part)?"
)
_KAFKA_NAMES = (*OFFSET_CHECKPOINTS, META_PROPERTIES, CLEAN_SHUTDOWN_FILE)


@dataclass(frozen=True, slots=True)
class OffsetFileName:
    """A name of the form `<20 digits><suffix>[<state>]`; `state` is "", ".deleted", ".cleaned" or ".swap"."""

    offset: int
    suffix: str
    state: str


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of one segment. `size` (bytes) and `modified_ms` are those of `log`; a missing index is
    None.
    """

    base_offset: int
    log: Path
    size: int
    modified_ms: int
    offset_index: Path | None = None
    time_index: Path | None = None
    transaction_index: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that exist, in the order in which Kafka renames them."""
        indexes = (self.offset_index, self.time_index, self.transaction_index)
        return (self.log, *(index for index in indexes if index is not None))


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file whose name holds an offset; `suffix` and `state` as in `OffsetFileName`, `size` in bytes."""

    path: Path
    offset: int
    suffix: str
    state: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class PartitionListing:
    """What is in a partition directory.

    `segments` and `snapshots` ascend by offset; in a 0.7 directory `segments` are its `.kafka` files and an
    offset is a byte position. `orphans` are indexes without their `.log`; `leftovers` are the `.deleted`,
    `.cleaned` and `.swap` files that a broker settles when it starts, and half-written `.tmp` files;
    `strangers` are names that Kafka never gives, sub-directories included. `topic_partition` is None when the
    directory's name is no partition's.
    """

    directory: Path
    topic_partition: TopicPartition | None
    format: Literal["kafka", "0.7"]
    segments: tuple[SegmentFiles, ...] = ()
    snapshots: tuple[NamedFile, ...] = ()
    orphans: tuple[NamedFile, ...] = ()
    leftovers: tuple[Path, ...] = ()
    strangers: tuple[Path, ...] = ()
    leader_epoch_checkpoint: Path | None = None
    partition_metadata: Path | None = None

    @property
    def size(self) -> int:
        """Bytes in all `.log` files."""
        return sum(segment.size for segment in self.segments)


class PartitionState(Enum):
    """What a partition directory's name says of it (Kafka: LogManager)."""

    LIVE = "live"
    DELETE = "delete"  # scheduled for deletion
    STRAY = "stray"  # not owned by the broker any more, kept aside
    FUTURE = "future"  # target of a move between log directories


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A sub-directory of a log directory that is a partition."""

    path: Path
    topic_partition: TopicPartition
    state: PartitionState

    @property
    def is_cluster_metadata(self) -> bool:
        """The KRaft controller's own log, which no LogManager loads."""
        return self.topic_partition.topic == CLUSTER_METADATA_TOPIC


@dataclass(frozen=True, slots=True)
class LogDirectoryListing:
    """What is in a log directory (one of a broker's `log.dirs`).

    `partitions` are in the order of topic and partition number, whatever their state. `checkpoints` maps the
    names in `OFFSET_CHECKPOINTS` to the files that exist. `strangers` are the sub-directories that stop a
    broker from starting.
    """

    path: Path
    partitions: tuple[PartitionDirectory, ...]
    checkpoints: dict[str, Path]
    clean_shutdown: bool
    meta_properties: Path | None = None
    lock: Path | None = None
    strangers: tuple[Path, ...] = ()

    @property
    def live(self) -> tuple[PartitionDirectory, ...]:
        """The partitions that a broker serves: neither deleted nor stray nor future, without the KRaft log."""
        return tuple(
            p for p in self.partitions if p.state is PartitionState.LIVE and not p.is_cluster_metadata
        )


class TargetKind(Enum):
    """What a path that a user typed is."""

    FILE = "file"
    PARTITION = "partition"
    LOG_DIRECTORY = "log directory"


@dataclass(frozen=True, slots=True)
class Target:
    """A path that a user typed, and what it is. `directory` is the partition or log directory (of a file:
    its parent).
    """

    path: Path
    kind: TargetKind

    @property
    def directory(self) -> Path:
        return self.path.parent if self.kind is TargetKind.FILE else self.path


def file_name(offset: int, suffix: str, state: str = "") -> str:
    """A segment file's name: at least 20 digits, then the suffix (Kafka:
    LogFileUtils.filenamePrefixFromOffset).
    """
    return f"{offset:020d}{suffix}{state}"


def parse_file_name(name: str) -> OffsetFileName | None:
    """The parts of a segment file's name, or None when Kafka gives no such name."""
    match = _OFFSET_FILE.fullmatch(name)
    if match is None or int(match["offset"]) > layout.INT64_MAX:
        return None
    return OffsetFileName(int(match["offset"]), match["suffix"], match["state"] or "")


def parse_directory_name(name: str) -> tuple[TopicPartition, PartitionState] | None:
    """The partition that a directory's name says, or None: `topic-3`, or
    `topic-3.<id>-delete|-stray|-future`.

    The partition number stands behind the last `-`; the topic part of a suffixed name may have been cut by
    Kafka.
    """
    state = PartitionState.LIVE
    suffixed = _SUFFIXED_DIRECTORY.fullmatch(name)
    if suffixed is not None:
        name, state = suffixed["name"], PartitionState(suffixed["state"])
    match = _DIRECTORY.fullmatch(name)
    if match is None or int(match["partition"]) > layout.INT32_MAX or match["topic"] in (".", ".."):
        return None
    return TopicPartition(match["topic"], int(match["partition"])), state


def list_partition(fs: FileSystem, directory: Path) -> PartitionListing:
    """Names what is in a partition directory. NotALogError when there is no such directory."""
    _require_directory(fs, directory)
    found: dict[str, dict[int, NamedFile]] = {}
    leftovers: list[Path] = []
    strangers: list[Path] = []
    others: set[str] = set()
    for name in fs.list(directory):
        path, parsed = directory / name, parse_file_name(name)
        status = fs.status(path)
        if status is None:
            continue  # removed since the directory was read: a broker may be at work
        if parsed is not None and not status.is_directory and not parsed.state:
            found.setdefault(parsed.suffix, {})[parsed.offset] = _named(path, parsed, status)
        elif not status.is_directory and name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ".tmp")):
            leftovers.append(path)
        elif not status.is_directory and _OTHER_FILES.fullmatch(name):
            others.add(name)
        else:
            strangers.append(path)
    is_07 = LOG_07_SUFFIX in found and LOG_SUFFIX not in found
    logs = found.get(LOG_07_SUFFIX if is_07 else LOG_SUFFIX, {})
    strays = [] if is_07 else found.get(LOG_07_SUFFIX, {}).values()
    parsed_directory = parse_directory_name(directory.resolve().name)
    return PartitionListing(
        directory=directory,
        topic_partition=None if parsed_directory is None else parsed_directory[0],
        format="0.7" if is_07 else "kafka",
        segments=tuple(_segment_files(logs[offset], found) for offset in sorted(logs)),
        snapshots=_ascending(found.get(SNAPSHOT_SUFFIX, {}).values()),
        orphans=_ascending(f for s in INDEX_SUFFIXES for o, f in found.get(s, {}).items() if o not in logs),
        leftovers=tuple(leftovers),
        strangers=(*strangers, *(stray.path for stray in strays)),
        leader_epoch_checkpoint=directory / LEADER_EPOCH_CHECKPOINT
        if LEADER_EPOCH_CHECKPOINT in others
        else None,
        partition_metadata=directory / PARTITION_METADATA if PARTITION_METADATA in others else None,
    )


def list_log_directory(fs: FileSystem, path: Path) -> LogDirectoryListing:
    """Names what is in a log directory. NotALogError when there is no such directory."""
    _require_directory(fs, path)
    partitions: list[PartitionDirectory] = []
    strangers: list[Path] = []
    files: set[str] = set()
    for name in fs.list(path):
        status = fs.status(path / name)
        if status is None:
            continue
        parsed = parse_directory_name(name)
        if not status.is_directory:
            files.add(name)
        elif parsed is not None:
            partitions.append(PartitionDirectory(path / name, *parsed))
        elif name != REMOTE_INDEX_CACHE:
            strangers.append(path / name)
    return LogDirectoryListing(
        path=path,
        partitions=tuple(sorted(partitions, key=lambda found: (found.topic_partition, found.path.name))),
        checkpoints={name: path / name for name in OFFSET_CHECKPOINTS if name in files},
        clean_shutdown=CLEAN_SHUTDOWN_FILE in files,
        meta_properties=path / META_PROPERTIES if META_PROPERTIES in files else None,
        lock=path / LOCK_FILE if LOCK_FILE in files else None,
        strangers=tuple(strangers),
    )


def resolve_paths(fs: FileSystem, paths: Sequence[Path]) -> list[Target]:
    """What each path is: a file, a partition directory or a log directory. NotALogError for anything else."""
    return [resolve_path(fs, path) for path in paths]


def resolve_path(fs: FileSystem, path: Path) -> Target:
    """What `path` is. Contents decide before names: a log directory may well be called `kafka-logs-1`."""
    status = fs.status(path)
    if status is None:
        raise NotALogError(path, "no such file or directory")
    if not status.is_directory:
        return Target(path, TargetKind.FILE)
    names = fs.list(path)
    if any(parse_file_name(name) is not None for name in names):
        return Target(path, TargetKind.PARTITION)
    if any(name in _KAFKA_NAMES for name in names) or _has_partition(fs, path, names):
        return Target(path, TargetKind.LOG_DIRECTORY)
    if any(_OTHER_FILES.fullmatch(name) for name in names) or (
        not names and parse_directory_name(path.resolve().name)
    ):
        return Target(path, TargetKind.PARTITION)
    raise NotALogError(path)


def partitions_of(fs: FileSystem, target: Target) -> tuple[PartitionListing, ...]:
    """The partitions that a target names: of a log directory all live ones, of a file the partition it lies
    in.
    """
    if target.kind is TargetKind.LOG_DIRECTORY:
        return tuple(list_partition(fs, found.path) for found in list_log_directory(fs, target.path).live)
    return (list_partition(fs, target.directory),)


def _has_partition(fs: FileSystem, path: Path, names: Iterable[str]) -> bool:
    for name in names:
        status = fs.status(path / name) if parse_directory_name(name) is not None else None
        if status is not None and status.is_directory:
            return True
    return False


def _require_directory(fs: FileSystem, path: Path) -> None:
    status = fs.status(path)
    if status is None:
        raise NotALogError(path, "no such directory")
    if not status.is_directory:
        raise NotALogError(path, "not a directory")


def _named(path: Path, parsed: OffsetFileName, status: FileStatus) -> NamedFile:
    return NamedFile(path, parsed.offset, parsed.suffix, parsed.state, status.size, status.modified_ms)


def _segment_files(log: NamedFile, found: dict[str, dict[int, NamedFile]]) -> SegmentFiles:
    indexes = [found.get(suffix, {}).get(log.offset) for suffix in INDEX_SUFFIXES]
    paths = [None if index is None else index.path for index in indexes]
    return SegmentFiles(log.offset, log.path, log.size, log.modified_ms, *paths)


def _ascending(files: Iterable[NamedFile]) -> tuple[NamedFile, ...]:
    return tuple(sorted(files, key=lambda file: (file.offset, file.suffix)))
