"""Restores partitions from directories that a broker set aside and logs that runs removed (`seglog restore`).

1. Each source names its partition: by the directory's name (`orders-0.<uuid>-delete`, `-stray`, `-future`), or by the
   journal of the run that took it out. A log directory contributes the partitions that were set aside. A broker cuts a
   topic's name that would make the directory's too long (KAFKA-4893): then the caller gives the whole name.
2. The parts of a partition are joined (`salvage.parts`).
3. A new directory gets the segments and `partition.metadata`; recovery builds indexes, snapshots and epochs.

Sources are only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import CorruptCheckpointError, NotALogError, RefusedError, SeglogError, raise_errors
from seglog.format.filenames import (
    META_PROPERTIES,
    PARTITION_METADATA,
    PartitionState,
    parse_partition_directory,
)
from seglog.model import TopicPartition
from seglog.progress import BytesRead
from seglog.repairs.undo.beside import new_directory, remove_unfinished, require_free
from seglog.repairs.undo.journal import JOURNAL_FILE, OLD, read_journal
from seglog.scan.listing import TargetKind, list_log_directory, list_partition, require_batches, resolve_path
from seglog.scan.topic_ids import topic_id_of
from seglog.storage import links
from seglog.storage.adapters import InheritingFileSystem
from seglog.storage.filesystem import FileSystem
from seglog.storage.room import check_space
from seglog_rescue.salvage.parts import Joined, PartFile, files_of, is_written, join, keep_times, write_segments
from seglog_rescue.salvage.salvage import complete_log

_METADATA_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class PartDirectory:
    """A directory with files of a partition."""

    directory: Path
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """A joined partition: `target` is its new directory, `metadata` the bytes of its `partition.metadata`, None if no
    part has one. `is_there` is set if an earlier run has made it."""

    partition: TopicPartition
    target: Path
    parts: tuple[PartDirectory, ...]
    joined: Joined
    metadata: bytes | None
    topic_id: str | None
    is_there: bool


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """All partitions, by name; `left_out` lists the directories not taken, with the reasons."""

    output: Path
    partitions: tuple[RestoredPartition, ...]
    left_out: tuple[tuple[Path, str], ...]

    @property
    def is_whole(self) -> bool:
        """True if no offset that a part had is missing, and no part is damaged."""
        return not any(partition.joined.missing or partition.joined.damage for partition in self.partitions)


def plan_restore(
    fs: FileSystem,
    sources: Sequence[Path],
    output: Path,
    topics: Sequence[str] = (),
    progress: BytesRead = lambda _size: None,
) -> RestorePlan:
    """Reads all parts; changes nothing. `topics` are whole names of topics whose directories' names were cut.

    Raises NotALogError if there are no parts, RefusedError or Obstacles if they contradict each other, if the whole
    name of a topic is not known, or if `output` is not a place for them.
    """
    output = links.resolve(output)
    if fs.status(output / META_PROPERTIES) is not None:
        raise RefusedError(
            f"{output} is a broker's log directory, and the broker would take what is put there for a stray: restore to"
            " a new directory, and seglog transplant it from there"
        )
    parts: dict[TopicPartition, list[PartDirectory]] = {}
    left_out: list[tuple[Path, str]] = []
    errors: list[SeglogError] = []
    for path in dict.fromkeys(map(links.resolve, sources)):
        if output == path or path in output.parents:
            raise RefusedError(f"{output} lies in {path}, which restore never writes to: choose another place")
        for part in _parts_of(fs, path, left_out):
            try:
                partition = _whole_name(part, topics)
            except RefusedError as error:
                errors.append(error)
            else:
                parts.setdefault(partition, []).append(part)
    if not parts and not errors:
        raise NotALogError(sources[0], "it holds no partition that was set aside")
    restored: list[RestoredPartition] = []
    for partition, directories in sorted(parts.items()):
        try:
            restored.append(_join_parts(fs, partition, directories, output, progress))
        except SeglogError as error:
            errors.append(error)
    raise_errors(errors)
    return RestorePlan(output, tuple(restored), tuple(left_out))


def restore(fs: FileSystem, clock: Clock, plan: RestorePlan) -> list[Path]:
    """Makes the missing partition directories, each whole or not at all; returns all directories of the plan."""
    fs.make_directory(plan.output, parents=True)
    remove_unfinished(fs, plan.output)
    missing = [partition for partition in plan.partitions if not partition.is_there]
    check_space(fs, plan.output, sum(partition.joined.size for partition in missing))
    for partition in missing:
        with new_directory(fs, partition.target) as place:
            files = InheritingFileSystem(fs)
            write_segments(files, partition.joined, place)
            complete_log(files, clock, partition.metadata, place)
            keep_times(files, partition.joined, place)
    return [partition.target for partition in plan.partitions]


def _parts_of(fs: FileSystem, path: Path, left_out: list[tuple[Path, str]]) -> Iterator[PartDirectory]:
    if fs.status(path / JOURNAL_FILE) is not None:
        yield from _parts_of_run(fs, path, left_out)
        return
    target = resolve_path(fs, path)
    if target.kind is TargetKind.FILE:
        raise NotALogError(path, "a file; name the directory that was set aside, or the run's folder")
    if target.kind is TargetKind.PARTITION:
        name = parse_partition_directory(path.name)
        if name is None:
            raise RefusedError(
                f"{path}: its name does not say which topic and partition it is; rename the copy to TOPIC-NUMBER"
            )
        yield PartDirectory(path, name.topic_partition)
        return
    for place in list_log_directory(fs, path).partitions:
        if place.state is not PartitionState.LIVE:
            yield PartDirectory(place.path, place.topic_partition)
        elif not place.is_cluster_metadata:
            left_out.append((place.path, "it was not set aside; name the directory itself to include it"))


def _whole_name(part: PartDirectory, topics: Sequence[str]) -> TopicPartition:
    """Returns the partition of a directory, one whose name was cut by the given whole name of its topic.

    Raises RefusedError if none is given, or several that fit.
    """
    name, cut = parse_partition_directory(part.directory.name), part.partition
    if name is None or not name.may_be_cut:
        return cut
    fitting = [topic for topic in dict.fromkeys(topics) if topic.startswith(cut.topic)]
    if len(fitting) == 1:
        return TopicPartition(fitting[0], cut.partition)
    what = "several topics that --topic names begin with it" if fitting else "give the whole name with --topic"
    raise RefusedError(
        f"{part.directory}: a broker cuts names that are too long, so the topic's may go on after these"
        f" {len(cut.topic)} characters: {what}"
    )


def _parts_of_run(fs: FileSystem, folder: Path, left_out: list[tuple[Path, str]]) -> Iterator[PartDirectory]:
    run = read_journal(fs, folder)
    old = run.folder / OLD
    for name in fs.list(old) if fs.status(old) is not None else ():
        status, parsed = fs.status(old / name, follow=False), parse_partition_directory(name)
        if status is None or not status.is_directory or parsed is None:
            continue
        if any(file.endswith(".log") for file in fs.list(old / name)):
            yield PartDirectory(old / name, parsed.topic_partition)
        else:
            left_out.append((old / name, "the run removed no log of it"))


def _join_parts(
    fs: FileSystem, partition: TopicPartition, parts: Sequence[PartDirectory], output: Path, progress: BytesRead
) -> RestoredPartition:
    files: list[PartFile] = []
    for part in parts:
        require_batches(fs, part.directory)
        files += files_of(list_partition(fs, part.directory))
    if not files:
        raise NotALogError(parts[0].directory, "it holds no segment")
    target = output / str(partition)
    joined = join(fs, files, progress)
    is_there = is_written(fs, joined, target)
    if not is_there:
        require_free(fs, target)
    metadata, topic_id = _metadata_of(fs, partition, parts)
    return RestoredPartition(partition, target, tuple(parts), joined, metadata, topic_id, is_there)


def _metadata_of(
    fs: FileSystem, partition: TopicPartition, parts: Sequence[PartDirectory]
) -> tuple[bytes | None, str | None]:
    """Returns the `partition.metadata` of the parts and its topic id. Raises RefusedError if the ids differ."""
    by_id: dict[str, tuple[bytes, Path]] = {}
    for part in parts:
        path = part.directory / PARTITION_METADATA
        if fs.status(path) is None:
            continue
        data = fs.read_bytes(path, _METADATA_LIMIT)
        try:
            by_id.setdefault(topic_id_of(data, path), (data, part.directory))
        except CorruptCheckpointError:
            continue  # not needed: a transplant uses the new cluster's file
    if len(by_id) > 1:
        ids = ", ".join(f"{topic_id} in {place}" for topic_id, (_, place) in by_id.items())
        raise RefusedError(f"{partition} has several topic ids ({ids}): these are logs of different topics")
    return next(((data, topic_id) for topic_id, (data, _) in by_id.items()), (None, None))
