"""Reads logs that a manifest has committed (`formats.log_manifest`), as partitions of a tier.

The manifest decides what is part of a log, so there are no overlaps, no lineage and no partial uploads. An object that
it names and that is missing or has another size is a grave `Remark`. An object that it does not name is an orphan,
which only `seglog tiers` shows. The manifest also contains a broker's checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from seglog.errors import CorruptTierError, NotALogError
from seglog.format import filenames
from seglog.format.checkpoint import format_leader_epochs, format_offset_checkpoint
from seglog.format.filenames import LEADER_EPOCH_CHECKPOINT, FileKind, parse_topic_partition
from seglog.model import TopicPartition
from seglog.storage.filesystem import File, FileStatus, FileSystem
from seglog_stores.formats.log_manifest import (
    LOG_MANIFEST_BYTES_LIMIT,
    STAGED,
    LogManifest,
    ManifestPartition,
    ManifestSegment,
    latest_number,
    manifest_name,
    parse_log_manifest,
)
from seglog_stores.formats.tier_names import COMMITTED, is_place_name
from seglog_stores.tiers.contents import MadeFile, Stored, WholeObject
from seglog_stores.tiers.recognition import Layout, TierPlace, committed_prefix
from seglog_stores.tiers.segments import Problem, Remark, TierSegment, own_epochs

_TRIES = 3


@dataclass(frozen=True, slots=True)
class CommittedLogs:
    """The committed logs below a prefix: the manifest, its path, and the status of its object."""

    prefix: Path
    path: Path
    status: FileStatus
    manifest: LogManifest

    def places(self) -> list[TierPlace]:
        """Returns the partitions, which are below the prefix under the names at which they are shown."""
        named = ((partition, partition.topic_partition) for partition in self.manifest.partitions)
        return [
            TierPlace(self.prefix / str(key), Layout.MANIFEST, key, partition.topic_id, partition)
            for partition, key in named
        ]

    def checkpoints(self) -> dict[Path, Stored]:
        """Returns the checkpoints of a broker's log directory, derived from the manifest."""
        return checkpoints_of(self.prefix, self.manifest.partitions, self.status)


def object_of(prefix: Path, name: TopicPartition, segment: ManifestSegment, kind: FileKind) -> Path:
    """Returns the path of a committed segment's file."""
    return prefix / str(name) / segment.place / segment.name_of(kind)


def checkpoints_of(prefix: Path, described: Sequence[ManifestPartition], status: FileStatus) -> dict[Path, Stored]:
    """Returns the checkpoints of some partitions; `status` is that of the manifest."""
    partitions = {partition.topic_partition: partition for partition in described}
    offsets_of: dict[str, dict[TopicPartition, int]] = {
        filenames.RECOVERY_POINT_CHECKPOINT: {key: partition.log_end_offset for key, partition in partitions.items()},
        filenames.LOG_START_OFFSET_CHECKPOINT: {
            key: partition.log_start_offset for key, partition in partitions.items()
        },
        filenames.CLEANER_OFFSET_CHECKPOINT: {
            key: partition.cleaned_offset
            for key, partition in partitions.items()
            if partition.cleaned_offset is not None
        },
    }
    made = {name: format_offset_checkpoint(offsets) for name, offsets in offsets_of.items() if offsets}
    return {prefix / name: MadeFile(data, status._replace(size=len(data))) for name, data in made.items()}


def read_committed(fs: FileSystem, prefix: Path) -> CommittedLogs | None:
    """Reads the newest manifest below `prefix`. Returns None if none was committed.

    Raises OSError and CorruptTierError; it never falls back to an older manifest.
    """
    directory = prefix / COMMITTED
    for attempt in range(_TRIES):
        try:
            number = latest_number(fs.list(directory))
        except FileNotFoundError:
            return None
        if number is None:
            return None
        path = directory / manifest_name(number)
        try:
            with fs.open(path, "r") as file:
                return _read(prefix, path, number, file)
        except FileNotFoundError:  # later writers have removed it
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("a loop that returns or raises")


def _read(prefix: Path, path: Path, number: int, file: File) -> CommittedLogs:
    status = file.status()
    if status.size > LOG_MANIFEST_BYTES_LIMIT:
        raise CorruptTierError(path, f"a manifest cannot have {status.size} bytes")
    data = file.read_at(0, status.size)
    if len(data) < status.size:
        raise CorruptTierError(path, f"it ends after {len(data)} of {status.size} bytes")
    manifest = parse_log_manifest(data, path)
    if manifest.number != number:
        raise CorruptTierError(path, f"the manifest has the number {manifest.number}, which contradicts its name")
    return CommittedLogs(prefix, path, status, manifest)


def committed_logs(fs: FileSystem, path: Path) -> CommittedLogs | None:
    """Returns the committed logs that a path means or is in; None if there are none.

    Raises NotALogError for a prefix where nothing was committed.
    """
    prefix = committed_prefix(fs, path)
    return None if prefix is None else required(fs, prefix)


def required(fs: FileSystem, prefix: Path) -> CommittedLogs:
    """Returns the committed logs below `prefix`. Raises NotALogError if nothing was committed."""
    committed = read_committed(fs, prefix)
    if committed is None:
        raise NotALogError(prefix, f"{COMMITTED} has no manifest; the logs here were never committed")
    return committed


@dataclass(frozen=True, slots=True)
class ManifestFiles:
    """A partition's segments, their files by name, and remarks about them."""

    segments: Sequence[TierSegment]
    files: Mapping[str, Stored]
    remarks: Sequence[Remark]


def files_of_partition(fs: FileSystem, directory: Path, partition: ManifestPartition) -> ManifestFiles:
    """Returns the existing files that the manifest names for a partition. Raises OSError."""
    remarks: list[Remark] = []
    entries = _listed(fs, directory)
    read = (_segment(fs, directory, partition, described, entries, remarks) for described in partition.segments)
    segments = [segment for segment in read if segment is not None]
    files: dict[str, Stored] = {}
    for described, segment in segments:
        files |= {described.name_of(kind): stored for kind, stored in segment.files.items()}
    if segments and partition.epochs:
        data = format_leader_epochs(partition.epochs)
        files[LEADER_EPOCH_CHECKPOINT] = MadeFile(data, segments[-1][1].log.status._replace(size=len(data)))
    first = partition.segments[0].base_offset
    if partition.log_start_offset > first:
        message = (
            f"the log begins at offset {partition.log_start_offset}, inside its first segment; a broker that loads only"
            " the segments begins at offset"
        )
        remarks.append(_remark(partition, Problem.LOG_START, f"{message} {first}", directory, first))
    return ManifestFiles([segment for _, segment in segments], files, remarks)


def _listed(fs: FileSystem, directory: Path) -> dict[Path, FileStatus]:
    """Returns the objects in the places of a partition."""
    statuses: dict[Path, FileStatus] = {}
    for name, status in _entries(fs, directory):
        if status.is_directory and is_place_name(name):
            inside = _entries(fs, directory / name)
            statuses |= {directory / name / file: what for file, what in inside if not what.is_directory}
    return statuses


def _segment(
    fs: FileSystem,
    directory: Path,
    partition: ManifestPartition,
    described: ManifestSegment,
    entries: Mapping[Path, FileStatus],
    remarks: list[Remark],
) -> tuple[ManifestSegment, TierSegment] | None:
    files: dict[FileKind, Stored] = {}
    place = directory / described.place
    for kind, named in described.objects.items():
        path = place / described.name_of(kind)
        status = entries.get(path)
        if status is None:
            message = f"{path} is missing, which the manifest names for offsets {described.base_offset} to"
            problem = Problem.MISSING_OBJECT
        elif status.size != named.size:
            message = f"{path} has {status.size} bytes instead of {named.size}, for offsets {described.base_offset} to"
            problem = Problem.BAD_OBJECT
        else:
            files[kind] = WholeObject(fs, path, status, named.crc32c)
            continue
        end = described.end_offset
        remarks.append(_remark(partition, problem, f"{message} {end}", path, described.base_offset, end))
    log = files.get(FileKind.LOG)
    if log is None:
        return None
    start, end = described.base_offset, described.end_offset
    epochs = own_epochs(partition.epochs, start, end)
    return described, TierSegment(start, end, described.place, epochs, files, None, place, log.status.modified_ms)


def _remark(
    partition: ManifestPartition, problem: Problem, message: str, path: Path, first: int, last: int | None = None
) -> Remark:
    return Remark(problem, str(partition.topic_partition), message, first, last, path)


# --- orphans ----------------------------------------------------------------------------------------------


def orphans(fs: FileSystem, logs: CommittedLogs, only: Set[str] | None = None) -> Iterator[Remark]:
    """Yields the objects below a prefix that its manifest does not name; with `only`, those of the partitions or topics
    of these names. Raises OSError.

    Failed attempts and running jobs leave them.
    """
    for name, status in _entries(fs, logs.prefix):
        key = parse_topic_partition(name)
        if status.is_directory and key is not None and (only is None or only & {name, key.topic}):
            yield from _orphans_of(fs, logs.prefix / name, key, logs.manifest.partition(key))
    staged = logs.prefix / COMMITTED / STAGED
    for name, _ in () if only is not None else _entries(fs, staged):
        yield _orphan_place(fs, logs.prefix.name, staged / name, "was staged by a job that is running or has died")


def _orphans_of(
    fs: FileSystem, directory: Path, key: TopicPartition, partition: ManifestPartition | None
) -> Iterator[Remark]:
    segments = () if partition is None else partition.segments
    named = {directory / segment.place / segment.name_of(kind) for segment in segments for kind in segment.objects}
    places = {path.parent for path in named}
    for path in sorted(_listed(fs, directory)):
        if path.parent in places and path not in named:
            yield Remark(Problem.ORPHAN_OBJECT, str(key), f"no manifest names {path}", path=path)
    for name, status in _entries(fs, directory):
        if status.is_directory and directory / name not in places:
            yield _orphan_place(fs, str(key), directory / name, "is in no manifest: its job is running or has died")


def _orphan_place(fs: FileSystem, partition: str, directory: Path, why: str) -> Remark:
    statuses = [status for _, status in _entries(fs, directory) if not status.is_directory]
    newest = datetime.fromtimestamp(max((status.modified_ms for status in statuses), default=0) / 1000, UTC)
    count = f"{len(statuses)} objects, {sum(status.size for status in statuses)} bytes"
    size = f"{count}, last changed {newest:%Y-%m-%d %H:%M:%SZ}"
    return Remark(Problem.ORPHAN_OBJECT, partition, f"{directory} ({size}) {why}", path=directory)


def _entries(fs: FileSystem, directory: Path) -> Sequence[tuple[str, FileStatus]]:
    """Returns the entries of a directory; none if it does not exist, because an object store has no empty ones."""
    try:
        return fs.entries(directory)
    except FileNotFoundError:
        return ()
