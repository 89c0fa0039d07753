"""Listings of partition directories and log directories, by file names and `stat` alone.

No file is opened, created, locked or changed, so this works on a live broker's directory. Dumps, verification,
statistics, Spark, dry runs and the loader build on it.
Kafka: the directory walks of LogLoader and LogManager, LogFileUtils, UnifiedLog.parseTopicPartitionName.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from seglog.errors import NotALogError, RefusedError, UnsupportedError
from seglog.format import filenames
from seglog.format.filenames import FileKind, FileName, FileState, PartitionState
from seglog.model import TopicPartition
from seglog.remote_path import why_absent
from seglog.storage import links
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog.storage.lock import partition_path

OFFSET_CHECKPOINTS = (
    filenames.RECOVERY_POINT_CHECKPOINT,
    filenames.LOG_START_OFFSET_CHECKPOINT,
    filenames.HIGH_WATERMARK_CHECKPOINT,
    filenames.CLEANER_OFFSET_CHECKPOINT,
)

# Kafka renames and deletes a segment's files in this order.
SEGMENT_KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)
INDEX_KINDS = SEGMENT_KINDS[1:]

_Entry = TypeVar("_Entry")

_PARTITIONS_NAMED = 5
_UNFINISHED = (".deleted", ".cleaned", ".swap", ".tmp", ".part")
_OTHER_FILES = (filenames.LEADER_EPOCH_CHECKPOINT, filenames.PARTITION_METADATA, filenames.QUORUM_STATE)
_LOG_DIRECTORY_FILES = (*OFFSET_CHECKPOINTS, filenames.META_PROPERTIES, filenames.CLEAN_SHUTDOWN_FILE)


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of one segment. `size` (bytes) and `modified_ms` are the `.log`'s; a missing index is None.

    `index_size` are the bytes of the indexes as a listing saw them.
    """

    base_offset: int
    log: Path
    size: int
    modified_ms: int
    offset_index: Path | None = None
    time_index: Path | None = None
    transaction_index: Path | None = None
    index_size: int = 0

    @property
    def files(self) -> tuple[Path, ...]:
        """The existing files, in the order in which Kafka renames them."""
        indexes = (self.offset_index, self.time_index, self.transaction_index)
        return (self.log, *(index for index in indexes if index is not None))


class NamedFile(NamedTuple):
    """A file whose name starts with an offset: a tuple, because a listing makes one for each. `size` is in bytes."""

    path: Path
    offset: int
    kind: FileKind
    state: FileState
    size: int
    modified_ms: int


@dataclass(frozen=True)  # without slots, for the cached property
class PartitionListing:
    """The contents of a partition directory.

    `segments` and `snapshots` ascend by offset; in a 0.7 directory `segments` are its `.kafka` files and an offset is a
    byte position. `orphans` are indexes without their `.log`; `leftovers` are the `.deleted`, `.cleaned` and `.swap`
    files that a starting broker settles, and half-written `.tmp` files; `strangers` are names that Kafka never gives,
    including sub-directories; `repair_notes` are left by repairs (`format.repair_note`). `topic_partition` is None if
    the directory's name is not a partition's.
    """

    directory: Path
    topic_partition: TopicPartition | None
    format: Literal["kafka", "0.7"]
    segments: tuple[SegmentFiles, ...] = ()
    snapshots: tuple[NamedFile, ...] = ()
    orphans: tuple[NamedFile, ...] = ()
    leftovers: tuple[Path, ...] = ()
    strangers: tuple[Path, ...] = ()
    repair_notes: tuple[Path, ...] = ()
    leader_epoch_checkpoint: Path | None = None
    partition_metadata: Path | None = None

    @cached_property
    def size(self) -> int:
        """The bytes of all `.log` files."""
        return sum(segment.size for segment in self.segments)


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A sub-directory of a log directory that is a partition."""

    path: Path
    topic_partition: TopicPartition
    state: PartitionState

    @classmethod
    def at(cls, path: Path) -> PartitionDirectory | None:
        """Returns the partition that the name of a directory says, None if it is not one's."""
        name = filenames.parse_partition_directory(path.name)
        return None if name is None else cls(path, name.topic_partition, name.state)

    @property
    def is_cluster_metadata(self) -> bool:
        """The KRaft controller's own log, which no LogManager loads."""
        return self.topic_partition.topic == filenames.CLUSTER_METADATA_TOPIC


@dataclass(frozen=True)  # without slots, for the cached property
class LogDirectoryListing:
    """The contents of a log directory (one of a broker's `log.dirs`).

    `partitions` are ordered by topic and partition number, whatever their state. `checkpoints` maps the names in
    `OFFSET_CHECKPOINTS` to the existing files. `strangers` are the sub-directories that stop a broker from starting;
    `misnamed` ones count as partitions for it, but of topics with invalid names.
    """

    path: Path
    partitions: tuple[PartitionDirectory, ...]
    checkpoints: dict[str, Path]
    clean_shutdown: bool
    meta_properties: Path | None
    lock: Path | None
    strangers: tuple[Path, ...]
    misnamed: tuple[Path, ...]

    @cached_property
    def live(self) -> tuple[PartitionDirectory, ...]:
        """The partitions that a broker serves: neither deleted nor stray nor future, without the KRaft log."""
        return tuple(p for p in self.partitions if p.state is PartitionState.LIVE and not p.is_cluster_metadata)

    @cached_property
    def largest_numbers(self) -> Mapping[str, int]:
        """The largest number of a live partition, by topic."""
        return {one.topic_partition.topic: one.topic_partition.partition for one in self.live}  # they ascend


class TargetKind(Enum):
    """The kind of a path that a user typed."""

    FILE = "file"
    PARTITION = "partition"
    LOG_DIRECTORY = "log directory"


@dataclass(frozen=True, slots=True)
class Target:
    """A path that a user typed, and its kind. `directory` is the partition or log directory, for a file its parent."""

    path: Path
    kind: TargetKind

    @property
    def directory(self) -> Path:
        return self.path.parent if self.kind is TargetKind.FILE else self.path


def list_partition(fs: FileSystem, directory: Path) -> PartitionListing:
    """Lists a partition directory. Raises NotALogError if there is no such directory."""
    return listing_of(directory, readable_entries(fs, directory))


def listing_of(directory: Path, entries: Iterable[tuple[str, FileStatus]]) -> PartitionListing:
    """Returns the listing of a partition directory with these names in it (`readable_entries`)."""
    found: dict[FileKind, dict[int, NamedFile]] = {}
    leftovers: list[Path] = []
    strangers: list[Path] = []
    notes: list[Path] = []
    others: set[str] = set()
    for name, status in entries:
        path, parsed = directory / name, filenames.parse_file_name(name)
        if status.no_file:
            strangers.append(path)  # a broker that looks for segments and snapshots sees neither
        elif parsed is not None and parsed.state is FileState.LIVE:
            file = NamedFile(path, parsed.offset, parsed.kind, parsed.state, status.size, status.modified_ms)
            found.setdefault(parsed.kind, {})[parsed.offset] = file
        elif name.endswith(_UNFINISHED):
            leftovers.append(path)
        elif name in _OTHER_FILES:
            others.add(name)
        elif name.startswith(filenames.REPAIR_NOTE_PREFIX) and not status.is_link:
            notes.append(path)
        else:
            strangers.append(path)
    return _assembled(directory, found, tuple(leftovers), strangers, others, tuple(notes))


def readable_entries(fs: FileSystem, directory: Path) -> Sequence[tuple[str, FileStatus]]:
    """Returns the names in a partition directory, and what they are. Raises the errors of `list_partition`."""
    require_directory(fs, directory)
    entries = listed(fs.entries, directory)
    for name, status in entries:
        if status.is_link:
            _require_followed(fs, directory / name, filenames.parse_file_name(name))
    return entries


def first_base_offset(fs: FileSystem, directory: Path) -> int | None:
    """Returns the base offset of a partition's first segment, None without segments. Raises OSError."""
    logs = (name for name, status in fs.entries(directory) if name.endswith(FileKind.LOG.value) and not status.no_file)
    parsed = map(filenames.parse_file_name, logs)
    return min((name.offset for name in parsed if name is not None), default=None)


def _require_followed(fs: FileSystem, link: Path, parsed: FileName | None) -> None:
    """Raises the error for a link that is not followed, so that its target does not count as missing."""
    if (parsed is not None and parsed.state is FileState.LIVE) or link.name in _OTHER_FILES:
        fs.status(link)


def list_log_directory(fs: FileSystem, path: Path) -> LogDirectoryListing:
    """Lists a log directory. Raises NotALogError if there is no such directory."""
    require_directory(fs, path)
    partitions: list[PartitionDirectory] = []
    strangers: list[Path] = []
    misnamed: list[Path] = []
    files: set[str] = set()
    for name, status in listed(fs.entries, path):
        parsed = filenames.parse_partition_directory(name)
        # A link that is not followed counts as what its name says: opening it raises the error.
        is_file = name in _LOG_DIRECTORY_FILES or parsed is None if status.is_link else not status.is_directory
        if is_file:
            files.add(name)
        elif filenames.is_seglogs_directory(name):
            continue
        elif parsed is not None:
            partitions.append(PartitionDirectory(path / name, parsed.topic_partition, parsed.state))
        elif name != filenames.REMOTE_INDEX_CACHE:
            (misnamed if filenames.is_taken_for_partition(name) else strangers).append(path / name)
    return LogDirectoryListing(
        path=path,
        partitions=tuple(sorted(partitions, key=lambda found: (found.topic_partition, found.path.name))),
        checkpoints={name: path / name for name in OFFSET_CHECKPOINTS if name in files},
        clean_shutdown=filenames.CLEAN_SHUTDOWN_FILE in files,
        meta_properties=path / filenames.META_PROPERTIES if filenames.META_PROPERTIES in files else None,
        lock=path / filenames.LOCK_FILE if filenames.LOCK_FILE in files else None,
        strangers=tuple(strangers),
        misnamed=tuple(misnamed),
    )


def resolve_paths(fs: FileSystem, paths: Sequence[Path]) -> list[Target]:
    """Returns what each path is: a file, a partition directory or a log directory. LOGDIR/TOPIC, if there is no such
    file, stands for the partitions of a topic. Raises NotALogError for anything else.
    """
    return [target for path in paths for target in topic_partitions(fs, path) or [resolve_path(fs, path)]]


def topic_partitions(fs: FileSystem, path: Path) -> list[Target]:
    """Returns the partitions in `path.parent` of the topic `path.name`, by number; none if the path exists, or the
    directory has no such topic."""
    parent = fs.status(path.parent) if fs.status(path) is None else None
    if parent is None or not parent.is_directory:
        return []
    try:
        names = listed(fs.list, path.parent)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return []  # a web server without listings
    named = ((filenames.parse_topic_partition(name), name) for name in names)
    found = sorted((key.partition, name) for key, name in named if key is not None and key.topic == path.name)
    return [Target(path.parent / name, TargetKind.PARTITION) for _, name in found]


def partition_names(fs: FileSystem, target: Target) -> list[str]:
    """Returns the names of the partition directories that a target names, or lies in."""
    if target.kind is TargetKind.LOG_DIRECTORY:
        return [partition.path.name for partition in list_log_directory(fs, target.path).partitions]
    return [links.name_of(target.directory)]


def resolve_path(fs: FileSystem, path: Path) -> Target:
    """Returns what `path` is. Contents decide before names: a log directory may be called `kafka-logs-1`."""
    status = fs.status(path)
    if status is None:
        raise NotALogError(path, why_absent(path, "no such file or directory"))
    if not status.is_directory:
        return Target(path, TargetKind.FILE)
    names = listed(fs.list, path)
    if any(name in _LOG_DIRECTORY_FILES for name in names):
        return Target(path, TargetKind.LOG_DIRECTORY)  # also with segments in its root, which a broker ignores
    if any(filenames.parse_file_name(name) is not None for name in names):
        return Target(path, TargetKind.PARTITION)
    if _has_partition(fs, path, names):
        return Target(path, TargetKind.LOG_DIRECTORY)
    is_named_so = filenames.parse_partition_directory(links.name_of(path)) is not None
    if any(name in _OTHER_FILES for name in names) or (not names and is_named_so):
        return Target(path, TargetKind.PARTITION)
    raise NotALogError(path)


def is_beside_logs(path: Path) -> bool:
    """True if a file's name is not a log's: an index, a snapshot, a checkpoint."""
    name = filenames.parse_file_name(path.name)
    is_index = name is not None and name.kind not in (FileKind.LOG, FileKind.LOG_07, FileKind.METADATA_SNAPSHOT)
    return is_index or path.name in (*_OTHER_FILES, *_LOG_DIRECTORY_FILES)


def require_log_file(path: Path) -> None:
    """Raises NotALogError for a file whose name is not a log's."""
    if is_beside_logs(path):
        directory = path.absolute().parent
        raise NotALogError(path, f"not a log; verifying its directory, {directory}, checks its contents")


def refuse_file(target: Target) -> None:
    """Raises NotALogError for a file, for work on whole partitions."""
    if target.kind is TargetKind.FILE:
        raise NotALogError(
            target.path, f"a file; the partition is a directory, perhaps {target.path.absolute().parent}"
        )


def require_segment(target: Target) -> None:
    """Raises NotALogError for a file that is not a segment, and so does not stand for its partition."""
    name = filenames.parse_file_name(target.path.name)
    is_segment = name is not None and name.kind in (FileKind.LOG, FileKind.LOG_07)
    if target.kind is TargetKind.FILE and not is_segment:
        raise NotALogError(target.path, "neither a segment nor a directory; seglog dump shows what Kafka's files hold")


def is_07(fs: FileSystem, directory: Path) -> bool:
    """True if a directory holds a log of Kafka 0.7, by file names alone; False if it is missing."""
    try:
        names = fs.list(directory)
    except FileNotFoundError:
        return False
    if not any(name.endswith(FileKind.LOG_07.value) for name in names):
        return False
    parsed = map(filenames.parse_file_name, names)
    kinds = {name.kind for name in parsed if name is not None and name.state is FileState.LIVE}
    return FileKind.LOG_07 in kinds and FileKind.LOG not in kinds


def require_batches(fs: FileSystem, directory: Path) -> None:
    """Raises UnsupportedError for a log of Kafka 0.7, whose messages are not batches."""
    if is_07(fs, directory):
        raise UnsupportedError(
            f"{directory} is a log of Kafka 0.7, beside which a broker begins an empty one: seglog read, dump and"
            " verify read it, and salvage copies its good messages"
        )


def require_partition(fs: FileSystem, path: Path) -> None:
    """Raises NotALogError unless `path` is a partition directory; for a log directory it names the partitions."""
    target = resolve_path(fs, path)
    refuse_file(target)
    if target.kind is TargetKind.LOG_DIRECTORY:
        live = list_log_directory(fs, path).live
        names = sorted((found.path.name for found in live), key=lambda name: name.startswith("__"))  # Kafka's own last
        shown = ", ".join(names[:_PARTITIONS_NAMED]) + (", …" if len(names) > _PARTITIONS_NAMED else "")
        held = f"name one of its {len(names)} partitions: {shown}" if names else "it holds no partition"
        if len(names) == 1:
            held = f"name its partition, {shown}"
        raise NotALogError(path, f"a log directory, not a partition; {held}")


def refuse_partition(fs: FileSystem, path: Path) -> None:
    """Raises NotALogError for a partition where a log directory is wanted."""
    try:
        is_partition = resolve_path(fs, path).kind is TargetKind.PARTITION and fs.list(path)
    except NotALogError:
        return  # an empty directory may become a log directory
    if is_partition:
        around = links.resolve(path).parent
        raise NotALogError(path, f"a partition, not a log directory; name the one it lies in, {around}")


def require_room_for_partition(fs: FileSystem, path: Path) -> None:
    """Raises RefusedError unless the missing `path` may become a partition: TOPIC-NUMBER in a log directory."""
    name = filenames.parse_topic_partition(path.name)
    if name is None:
        raise RefusedError(f"{path}: only a directory named TOPIC-NUMBER (orders-0) can be made a partition")
    require_directory(fs, path.parent)
    try:
        inside = resolve_path(fs, path.parent).kind
    except NotALogError:
        return  # an empty directory, or a working directory, may become a log directory
    if inside is TargetKind.PARTITION:
        raise RefusedError(f"{path}: {path.parent} is a partition itself; name a place in a log directory")


def log_directory_of(target: Target) -> Path:
    """Returns the log directory that a typed path is or lies in, resolved; for a file its partition's."""
    if target.kind is TargetKind.LOG_DIRECTORY:
        return links.resolve(target.path)
    return partition_path(target.directory).parent


def partition_directories(fs: FileSystem, target: Target) -> tuple[Path, ...]:
    """Returns the partitions that a target names: all live ones of a log directory, or the one that a segment lies in.

    Raises NotALogError for any other file.
    """
    if target.kind is TargetKind.LOG_DIRECTORY:
        return tuple(found.path for found in list_log_directory(fs, target.path).live)
    require_segment(target)
    return (target.directory,)


def _has_partition(fs: FileSystem, path: Path, names: Iterable[str]) -> bool:
    """True if a sub-directory is a partition by its name and contents: `/etc` has a `dbus-1`, which is none."""
    for name in names:
        if filenames.parse_partition_directory(name) is None:
            continue
        try:
            status = fs.status(path / name)
            if status is None or not status.is_directory:
                continue
            inside = fs.list(path / name)
        except PermissionError:
            return True
        except OSError:
            continue
        if not inside or any(filenames.parse_file_name(each) is not None or each in _OTHER_FILES for each in inside):
            return True
    return False


def require_directory(fs: FileSystem, path: Path) -> None:
    """Raises NotALogError unless `path` is a directory."""
    status = fs.status(path)
    if status is None:
        raise NotALogError(path, why_absent(path, "no such directory"))
    if not status.is_directory:
        raise NotALogError(path, f"not a directory; the one that it lies in is {path.absolute().parent}")


def listed(listing: Callable[[Path], Sequence[_Entry]], path: Path) -> Sequence[_Entry]:
    """Lists a directory by `listing`. Raises NotALogError if it is gone meanwhile: a broker deletes topics."""
    try:
        return listing(path)
    except FileNotFoundError as error:
        raise NotALogError(path, "no such directory any more") from error


def _assembled(
    directory: Path,
    found: dict[FileKind, dict[int, NamedFile]],
    leftovers: tuple[Path, ...],
    strangers: list[Path],
    others: set[str],
    notes: tuple[Path, ...],
) -> PartitionListing:
    is_07 = FileKind.LOG_07 in found and FileKind.LOG not in found
    logs = found.get(FileKind.LOG_07 if is_07 else FileKind.LOG, {})
    strays = {} if is_07 else found.get(FileKind.LOG_07, {})
    name = filenames.parse_partition_directory(links.name_of(directory))
    indexes = [file for kind in INDEX_KINDS for file in found.get(kind, {}).values()]
    epochs, metadata = filenames.LEADER_EPOCH_CHECKPOINT, filenames.PARTITION_METADATA
    return PartitionListing(
        directory=directory,
        topic_partition=None if name is None else name.topic_partition,
        format="0.7" if is_07 else "kafka",
        segments=tuple(_segment_files(logs[offset], found) for offset in sorted(logs)),
        snapshots=_ascending(found.get(FileKind.PRODUCER_SNAPSHOT, {}).values()),
        orphans=_ascending(index for index in indexes if index.offset not in logs),
        leftovers=leftovers,
        strangers=(*strangers, *(stray.path for stray in strays.values())),
        repair_notes=notes,
        leader_epoch_checkpoint=directory / epochs if epochs in others else None,
        partition_metadata=directory / metadata if metadata in others else None,
    )


def _segment_files(log: NamedFile, found: dict[FileKind, dict[int, NamedFile]]) -> SegmentFiles:
    indexes = [found[kind].get(log.offset) if kind in found else None for kind in INDEX_KINDS]
    offset, time, transaction = (None if index is None else index.path for index in indexes)
    size = sum(index.size for index in indexes if index is not None)
    return SegmentFiles(log.offset, log.path, log.size, log.modified_ms, offset, time, transaction, size)


def _ascending(files: Iterable[NamedFile]) -> tuple[NamedFile, ...]:
    return tuple(sorted(files, key=lambda file: (file.offset, file.kind.value)))
