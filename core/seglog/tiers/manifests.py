"""Logs that a manifest has committed (`format.log_manifest`), as partitions of a tier.

The manifest decides what is part of a log, so nothing is left to choose: no overlaps, no lineage, no half uploads. An
object that it names and that is missing, or has another size, is a grave `Remark`; one that it does not name is
nobody's, and shown by `seglog tiers` alone. What a broker keeps beside its partitions, the manifest says too: the
checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from seglog.errors import CorruptTierError, NotALogError
from seglog.format import filenames
from seglog.format.checkpoint import format_leader_epochs, format_offset_checkpoint
from seglog.format.filenames import LEADER_EPOCH_CHECKPOINT, FileKind, parse_topic_partition
from seglog.format.log_manifest import (
    LOG_MANIFEST_BYTES_LIMIT,
    STAGED,
    LogManifest,
    ManifestPartition,
    ManifestSegment,
    latest_number,
    manifest_name,
    parse_log_manifest,
)
from seglog.format.tier_names import COMMITTED, is_place_name
from seglog.model import TopicPartition
from seglog.storage.filesystem import File, FileStatus, FileSystem
from seglog.tiers.contents import MadeFile, Stored, WholeObject
from seglog.tiers.recognition import Layout, Place, committed_prefix
from seglog.tiers.segments import Problem, Remark, TierSegment, own_epochs

_TRIES = 3


@dataclass(frozen=True, slots=True)
class CommittedLogs:
    """What counts below a prefix: the manifest, its path, and what its object is."""

    prefix: Path
    path: Path
    status: FileStatus
    manifest: LogManifest

    def places(self) -> list[Place]:
        """The partitions, which lie below the prefix under the names that they are shown by."""
        named = ((one, one.topic_partition) for one in self.manifest.partitions)
        return [Place(self.prefix / str(key), Layout.MANIFEST, key, one.topic_id, one) for one, key in named]

    def checkpoints(self) -> dict[Path, Stored]:
        """The files of a broker's log directory that say what the manifest does of its logs."""
        return checkpoints_of(self.prefix, self.manifest.partitions, self.status)


def object_of(prefix: Path, name: TopicPartition, segment: ManifestSegment, kind: FileKind) -> Path:
    """Where a file of a committed segment lies."""
    return prefix / str(name) / segment.place / segment.name_of(kind)


def checkpoints_of(prefix: Path, described: Sequence[ManifestPartition], status: FileStatus) -> dict[Path, Stored]:
    """The checkpoints about some partitions; `status` is that of what says so."""
    partitions = {one.topic_partition: one for one in described}
    said: dict[str, dict[TopicPartition, int]] = {
        filenames.RECOVERY_POINT_CHECKPOINT: {key: one.log_end_offset for key, one in partitions.items()},
        filenames.LOG_START_OFFSET_CHECKPOINT: {key: one.log_start_offset for key, one in partitions.items()},
        filenames.CLEANER_OFFSET_CHECKPOINT: {
            key: one.cleaned_offset for key, one in partitions.items() if one.cleaned_offset is not None
        },
    }
    made = {name: format_offset_checkpoint(offsets) for name, offsets in said.items() if offsets}
    return {prefix / name: MadeFile(data, replace(status, size=len(data))) for name, data in made.items()}


def read_committed(fs: FileSystem, prefix: Path) -> CommittedLogs | None:
    """What the newest manifest below `prefix` says; None where none was committed.

    Raises OSError, CorruptTierError: an older manifest never takes the place of one that cannot be read.
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
        except FileNotFoundError:  # writers that came after it have removed it
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("a loop that returns or raises")


def _read(prefix: Path, path: Path, number: int, file: File) -> CommittedLogs:
    status = file.status()
    if status.size > LOG_MANIFEST_BYTES_LIMIT:
        raise CorruptTierError(path, f"a manifest cannot have {status.size} bytes")
    data = file.read_at(0, status.size)
    if len(data) < status.size:
        raise CorruptTierError(path, f"it ends after {len(data)} bytes of {status.size}")
    manifest = parse_log_manifest(data, path)
    if manifest.number != number:
        raise CorruptTierError(path, f"the manifest is number {manifest.number}, and not what its name says")
    return CommittedLogs(prefix, path, status, manifest)


def committed_logs(fs: FileSystem, path: Path) -> CommittedLogs | None:
    """The logs that a manifest has committed and a path means or lies in; None where there is no such thing.

    NotALogError for a prefix where nothing was committed.
    """
    prefix = committed_prefix(fs, path)
    return None if prefix is None else required(fs, prefix)


def required(fs: FileSystem, prefix: Path) -> CommittedLogs:
    """The same; NotALogError where nothing was committed."""
    found = read_committed(fs, prefix)
    if found is None:
        raise NotALogError(prefix, f"{COMMITTED} holds no manifest: what lies here was never committed")
    return found


@dataclass(frozen=True, slots=True)
class ManifestFiles:
    """A partition's segments, the files that they have by name, and what must be said about them."""

    segments: Sequence[TierSegment]
    files: Mapping[str, Stored]
    remarks: Sequence[Remark]


def files_of_partition(fs: FileSystem, directory: Path, partition: ManifestPartition) -> ManifestFiles:
    """What the manifest names of a partition, as far as it is there. Raises OSError."""
    remarks: list[Remark] = []
    entries = _listed(fs, directory)
    found = [one for each in partition.segments if (one := _segment(fs, directory, partition, each, entries, remarks))]
    files: dict[str, Stored] = {}
    for described, segment in found:
        files |= {described.name_of(kind): stored for kind, stored in segment.files.items()}
    if found and partition.epochs:
        files[LEADER_EPOCH_CHECKPOINT] = _epochs_file(partition, found[-1][1])
    first = partition.segments[0].base_offset
    if partition.log_start_offset > first:
        message = (
            f"the log begins at offset {partition.log_start_offset}, within its first segment: a broker that loads the"
            " segments alone begins before it, at offset"
        )
        remarks.append(_remark(partition, Problem.LOG_START, f"{message} {first}", directory, first))
    return ManifestFiles([segment for _, segment in found], files, remarks)


def _listed(fs: FileSystem, directory: Path) -> dict[Path, FileStatus]:
    """The objects in the places of a partition."""
    found: dict[Path, FileStatus] = {}
    for name, status in _entries(fs, directory):
        if status.is_directory and is_place_name(name):
            inside = _entries(fs, directory / name)
            found |= {directory / name / each: what for each, what in inside if not what.is_directory}
    return found


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
    for kind, wanted in described.objects.items():
        path = place / described.name_of(kind)
        status = entries.get(path)
        if status is None:
            message = f"{path} is missing: the manifest names it for offsets {described.base_offset} to"
            problem = Problem.MISSING_OBJECT
        elif status.size != wanted.size:
            message = f"{path} has {status.size} bytes instead of {wanted.size}, of offsets {described.base_offset} to"
            problem = Problem.BAD_OBJECT
        else:
            files[kind] = WholeObject(fs, path, status, wanted.crc32c)
            continue
        end = described.end_offset
        remarks.append(_remark(partition, problem, f"{message} {end}", path, described.base_offset, end))
    log = files.get(FileKind.LOG)
    if log is None:
        return None
    start, end = described.base_offset, described.end_offset
    epochs = own_epochs(partition.epochs, start, end)
    return described, TierSegment(start, end, described.place, epochs, files, None, place, log.status.modified_ms)


def _epochs_file(partition: ManifestPartition, last: TierSegment) -> Stored:
    data = format_leader_epochs(partition.epochs)
    return MadeFile(data, replace(last.log.status, size=len(data)))


def _remark(
    partition: ManifestPartition, problem: Problem, message: str, path: Path, first: int, last: int | None = None
) -> Remark:
    return Remark(problem, str(partition.topic_partition), message, first, last, path)


# --- what nobody names ------------------------------------------------------------------------------------


def orphans(fs: FileSystem, logs: CommittedLogs, only: Set[str] | None = None) -> Iterator[Remark]:
    """What lies below a prefix, or there for partitions or topics of these names `only`, and its manifest does not
    name. Raises OSError.

    Attempts that failed leave it, and so does a job that is at work.
    """
    for name, status in _entries(fs, logs.prefix):
        key = parse_topic_partition(name)
        if status.is_directory and key is not None and (only is None or only & {name, key.topic}):
            yield from _orphans_of(fs, logs.prefix / name, key, logs.manifest.partition(key))
    staged = logs.prefix / COMMITTED / STAGED
    for name, _ in () if only is not None else _entries(fs, staged):
        yield _nobodys(fs, str(logs.prefix.name), staged / name, "was staged by a job that is at work or has died")


def _orphans_of(
    fs: FileSystem, directory: Path, key: TopicPartition, partition: ManifestPartition | None
) -> Iterator[Remark]:
    segments = () if partition is None else partition.segments
    named = {directory / one.place / one.name_of(kind) for one in segments for kind in one.objects}
    places = {path.parent for path in named}
    for path in sorted(_listed(fs, directory)):
        if path.parent in places and path not in named:
            yield Remark(Problem.ORPHAN_OBJECT, str(key), f"{path}: no manifest names it", path=path)
    for name, status in _entries(fs, directory):
        if status.is_directory and directory / name not in places:
            yield _nobodys(fs, str(key), directory / name, "is named by no manifest: a job is at work or has died")


def _nobodys(fs: FileSystem, partition: str, directory: Path, why: str) -> Remark:
    found = [status for _, status in _entries(fs, directory) if not status.is_directory]
    newest = datetime.fromtimestamp(max((one.modified_ms for one in found), default=0) / 1000, UTC)
    what = f"{len(found)} objects, {sum(one.size for one in found)} bytes, the last one of {newest:%Y-%m-%d %H:%M:%SZ}"
    return Remark(Problem.ORPHAN_OBJECT, partition, f"{directory} ({what}) {why}", path=directory)


def _entries(fs: FileSystem, directory: Path) -> Sequence[tuple[str, FileStatus]]:
    """What is in a directory; nothing where there is none, as an object store keeps none that is empty."""
    try:
        return fs.entries(directory)
    except FileNotFoundError:
        return ()
