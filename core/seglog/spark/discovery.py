"""From what a user wrote as path to the partitions there, on the driver: names alone, and of those only what is wanted.

A path is a partition directory, a log directory (one of a broker's `log.dirs`), a `.log` file, or a glob of them.
`PartitionLog` is one partition as the driver saw it: the reader's plan rests on it. What costs a `stat` (a segment's
size) or reading (where the log ends, what transactions did) is found when asked.
"""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from seglog import layout
from seglog.errors import ConfigError, NotALogError, RefusedError
from seglog.format import filenames
from seglog.format.checkpoint import parse_offset_checkpoint
from seglog.format.tier_names import COMMITTED, OF_A_TIER, is_place_name
from seglog.layout import INT64_MAX
from seglog.log.indexes import AbortedTransaction, OffsetIndex, TimeIndex, TransactionIndex
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments, rebuild_producer_state
from seglog.model import TopicPartition
from seglog.remote.routing import RoutingFileSystem, parse_location
from seglog.scan.listing import SegmentFiles, TargetKind, resolve_path
from seglog.scan.log_walk import Gap, LogWalk
from seglog.scan.resync import PlausibleOffsets
from seglog.scan.segment_scan import SegmentScan, checksum_valid, entry_row
from seglog.spark.committed import BrokersTiers, committed_files
from seglog.spark.globs import expand
from seglog.spark.offsets import Offsets
from seglog.spark.options import NO_TIER_NAMES, ReadOptions
from seglog.spark.runs import RunWatch
from seglog.spark.segment_names import GONE, Segment, SegmentName, list_segments, look_at
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import OverlayFileSystem
from seglog.tiers.view import TierFileSystem

T = TypeVar("T")

_TRIES = 8


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a log: the offset after its last good batch, and the byte position after it in the last segment.

    `batch` says where that batch begins, and its checksum; None when the last segment has none.
    """

    next_offset: int
    position: int
    batch: tuple[int, int] | None = None

    def is_in(self, fs: FileSystem, segment: SegmentFiles) -> bool:
        """Whether the batch still is where it was: its header is looked at."""
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
    """One partition: the names of its segments, and what the checkpoints beside it say.

    `high_watermark` is None where they say nothing. `only` is the one segment that a path named. A segment is looked at
    when it is asked for, once; FileNotFoundError then means that it was replaced since (`listed_again`).
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
        """Which of the segments are to be read, by their place."""
        return tuple(i for i, name in enumerate(self.names) if self.only is None or name.log.name == self.only.name)

    def segment(self, index: int) -> Segment:
        """The segment at this place, as it was when it was first asked for."""
        if index not in self._seen:
            self._seen[index] = look_at(self.fs, self.names[index])
        return self._seen[index]

    def place_of(self, base_offset: int) -> int:
        """The place of the segment with that base offset, which is there."""
        return bisect_left(self.names, base_offset, key=lambda name: name.base_offset)

    def end_of(self, index: int) -> int:
        """The offset before which a segment ends: where the next one begins; of the last one unknown, INT64_MAX."""
        return self.names[index + 1].base_offset if index + 1 < len(self.names) else INT64_MAX

    @property
    def last(self) -> SegmentFiles | None:
        """The last segment that is to be read."""
        return self.segment(self.chosen[-1]).files if self.chosen else None

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read: the checkpoint's, at least the first segment's base."""
        first = self.names[self.chosen[0]].base_offset if self.chosen else 0
        return max(first, self.log_start_checkpoint)

    @property
    def log_end_offset(self) -> int:
        """The offset after the last batch with a right checksum, at least the log start."""
        return max(self.tail.next_offset, self.log_start_offset)

    @cached_property
    def tail(self) -> LogTail:
        """Where the log ends, read from the last index entry on that is right."""
        last = self.last
        if last is None:
            return LogTail(0, 0)
        return tail_of(self.fs, last) or LogTail(last.base_offset, 0)

    @cached_property
    def last_stable_offset(self) -> int:
        """First offset of the earliest transaction without a marker, else the log end. Changes nothing on disk."""
        overlay = OverlayFileSystem(self.fs)
        producers = ProducerStateManager(overlay, self.directory, strict=False)
        bases = [self.names[i].base_offset for i in self.chosen]
        segments = LogSegments(LogSegment(overlay, self.directory, base) for base in bases)
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
        for name in (self.names[i] for i in self.chosen):
            if name.transaction_index is not None:
                found += TransactionIndex(self.fs, name.transaction_index, name.base_offset).entries
                if self.fs.status(name.transaction_index) is None:  # then it has no entries, and another file has
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(name.transaction_index))
        return tuple(sorted(found, key=lambda entry: (entry.first_offset, entry.producer_id)))

    def index_of(self, segment: SegmentFiles) -> np.ndarray:
        """The entries of a segment's offset index that can be: int64 (n, 2), offset and position, ascending."""
        if segment.offset_index is None:
            return np.empty((0, 2), dtype=np.int64)
        index = OffsetIndex(self.fs, segment.offset_index, segment.base_offset)
        entries = np.column_stack((index.offsets, index.positions))
        inside = (entries[:, 1] > 0) & (entries[:, 1] < segment.size)
        return entries[inside]

    def is_older(self, index: int, timestamp: int) -> bool:
        """Whether all records of a segment are older than `timestamp`, as its time index says; False where that is not
        known: of the last segment, and of one without entries."""
        name = self.names[index]
        if index == len(self.names) - 1 or name.time_index is None:
            return False
        times = TimeIndex(self.fs, name.time_index, name.base_offset)
        return bool(times.entries) and times.last_entry[0] < timestamp

    def listed_again(self) -> PartitionLog:
        """The same partition as it is now. NotALogError when it is gone."""
        return replace(self, names=list_segments(self.fs, self.directory), _seen={})


def settled(log: PartitionLog, work: Callable[[PartitionLog], T]) -> tuple[PartitionLog, T]:
    """What `work` makes of a partition, and the partition as it was then.

    A broker beside us may clean, delete and roll: where a segment vanishes under the work, it begins anew with what is
    there now.
    """
    for _ in range(_TRIES):
        try:
            return log, work(log)
        except GONE:
            log = log.listed_again()
    return log, work(log)


@contextlib.contextmanager
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
    twice, RefusedError where permission is missing, IncompleteError beside a run that is not over.
    """
    return Finder(fs, options).find()


class Finder:
    """Finds the partitions that options name, again and again; what a path is, is found out once.

    A search lists each log directory once, and in it each partition that is wanted: names, not files, are looked at.
    """

    def __init__(self, fs: FileSystem, options: ReadOptions) -> None:
        self._fs, self._options = fs, options
        self._kinds: dict[Path, TargetKind] = {}
        self._listed: dict[Path, bool] = {}  # log directories, and whether a manifest commits what is in them
        self._tiers, self._names_in = BrokersTiers(fs, options), dict[Path, list[str]]()
        self._just_read: list[TierFileSystem] = []  # manifests' logs, by this search
        self._chosen: dict[Path, set[str]] = {}  # of directories of object stores, what was listed of them

    def find(self, *, require: bool = True) -> list[PartitionLog]:
        """The partitions there are now. Errors are those of `find_partitions`; not `require`: some may be missing."""
        found: dict[TopicPartition, PartitionLog] = {}
        seen: set[TopicPartition] = set()
        runs = RunWatch(self._fs, fail_on_data_loss=self._options.fail_on_data_loss)
        checkpoints: dict[Path, tuple[Offsets, Offsets]] = {}
        committed: dict[Path, TierFileSystem] = {}
        self._just_read = []

        def checkpoints_in(fs: FileSystem, directory: Path) -> tuple[Offsets, Offsets]:
            if directory not in checkpoints:
                checkpoints[directory] = _checkpoints(fs, directory)
            return checkpoints[directory]

        for path, kind, tier in self._targets():
            if kind is TargetKind.LOG_DIRECTORY:
                runs.look_in(links.resolve(path))
            for key, directory in self._directories(tier or self._fs, path, kind):
                if not self._options.chooses(key):
                    continue
                if not self._options.where.chooses(key):
                    seen.add(key)
                    continue
                fs = tier or self._committed(committed, directory)
                if fs is None:
                    continue  # what lies there was never committed
                seen.add(key)
                known = found.get(key)
                if known is not None and links.resolve(known.directory) != links.resolve(directory):
                    raise ConfigError(f"{known.directory} and {directory} both hold {key}: read replicas one by one")
                runs.look_in(log_directory := links.resolve(directory).parent)
                names = self._names(fs, directory, kind)
                if names is None:
                    continue
                starts, marks = checkpoints_in(fs, log_directory)
                only = path if kind is TargetKind.FILE else None
                log = PartitionLog(fs, key, directory, names, starts.get(key, 0), marks.get(key), only)
                if only is not None and not log.chosen:
                    raise NotALogError(path, "no segment's .log file")
                found[key] = log
        runs.look_again()
        if require:
            self._check_missing(seen)
        return [found[key] for key in sorted(found)]

    def _targets(self) -> Iterator[tuple[Path, TargetKind, FileSystem | None]]:
        """The paths, what they are, and what shows those that lie in a broker's tiered storage."""
        is_read = False
        for text in self._options.paths:
            path = parse_location(text).absolute()  # a task's working directory is its own
            expanded = expand(self._fs, path)
            count = 0
            for one in expanded:
                try:
                    target = self._target(one)
                except NotALogError:
                    if len(expanded) == 1:
                        raise
                    continue  # a glob meets checkpoints and other strangers beside the partitions
                if target[1] is TargetKind.FILE and len(expanded) > 1 and not one.name.endswith(".log"):
                    continue
                is_read, count = is_read or target[2] is not None, count + 1
                yield target
            if not count:
                raise NotALogError(path)
        if not is_read and self._options.tier != NO_TIER_NAMES:
            raise ConfigError("local, tierKey and remoteMetadata are for paths in tiered storage, and none of these is")

    def _target(self, path: Path) -> tuple[Path, TargetKind, FileSystem | None]:
        try:
            kind = self._kind(path)
        except NotALogError:
            shown = self._tiers.shown(path)
            if shown is None:
                raise
        else:
            shown = self._tiers.shown(path) if self._hints_at_tier(path, kind) else None
            if shown is None:
                return path, kind, None
        self._chosen.pop(path, None)  # they are shown under other names
        return shown[1], resolve_path(*shown).kind, shown[0]

    def _hints_at_tier(self, path: Path, kind: TargetKind) -> bool:
        """By the names in a directory, which are kept for whoever asks for them next."""
        directory = path.parent if kind is TargetKind.FILE else path
        if path in self._chosen:
            return any(map(OF_A_TIER.search, self._chosen[path]))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # whoever lists its segments says so
            self._names_in[directory] = self._fs.list(directory)
        return any(map(OF_A_TIER.search, self._names_in.get(directory, ())))

    def _kind(self, path: Path) -> TargetKind:
        self._chosen.pop(path, None)
        if self._kinds.get(path, TargetKind.LOG_DIRECTORY) is TargetKind.LOG_DIRECTORY and self._lists_chosen(path):
            self._kinds[path] = TargetKind.LOG_DIRECTORY
        if path not in self._kinds:
            self._kinds[path] = self._resolved(path)
        return self._kinds[path]

    def _resolved(self, path: Path) -> TargetKind:
        try:
            return resolve_path(self._fs, path).kind
        except NotALogError:
            fs = committed_files(self._fs, path, fail_on_data_loss=self._options.fail_on_data_loss)
            if fs is None:
                raise
            self._just_read.append(fs)
            return resolve_path(fs, path).kind

    def _committed(self, known: dict[Path, TierFileSystem], directory: Path) -> FileSystem | None:
        """What shows a partition's files: of a log that a manifest has committed, what the manifest names; None where
        it does not name the partition.
        """
        above = directory.parent
        if above not in known:
            if not self._may_be_committed(directory):
                return self._fs
            fs = next((one for one in self._just_read if one.shows(directory)), None)
            fs = fs or committed_files(self._fs, directory, fail_on_data_loss=self._options.fail_on_data_loss)
            if fs is None:
                return self._fs
            known[above] = fs
        return known[above] if known[above].shows(directory) else None

    def _may_be_committed(self, directory: Path) -> bool:
        """By what was listed anyway: the log directory, or else the partition."""
        if directory.parent in self._listed:
            return self._listed[directory.parent]
        try:
            return any(map(is_place_name, self._names_in.pop(directory, []) or self._fs.list(directory)))
        except (FileNotFoundError, NotADirectoryError):
            return False  # whoever lists its segments says so

    def _lists_chosen(self, path: Path) -> bool:
        """Lists of a directory of an object store the chosen partitions alone; False where that is not to be had."""
        beginnings = self._options.beginnings()
        if beginnings is None or not isinstance(self._fs, RoutingFileSystem):
            return False
        found: set[str] = set()
        for start in beginnings:
            names = self._fs.beginning(path, start)
            if names is None:
                return False
            found |= names
        if found:
            self._chosen[path] = found
        return bool(found)

    def _directories(self, fs: FileSystem, path: Path, kind: TargetKind) -> Iterator[tuple[TopicPartition, Path]]:
        """The partitions of a target by their names."""
        if kind is not TargetKind.LOG_DIRECTORY:
            directory = path.parent if kind is TargetKind.FILE else path
            name = links.resolve(directory).name
            parsed = filenames.parse_partition_directory(name)
            # a copy under a name of its own still is a log: its name stands for the topic
            yield (TopicPartition(name, 0) if parsed is None else parsed.topic_partition), directory
            return
        if path in self._chosen:
            names: Iterable[str] = self._chosen[path]
        else:
            names = (self._names_in.pop(path, []) if fs is self._fs else []) or _listed(fs, path)
            self._listed[path] = COMMITTED in names
        for name in names:
            parsed = filenames.parse_partition_directory(name)
            if parsed is None or parsed.state is not filenames.PartitionState.LIVE:
                continue
            if parsed.topic_partition.topic != filenames.CLUSTER_METADATA_TOPIC:
                yield parsed.topic_partition, path / name

    def _names(self, fs: FileSystem, directory: Path, kind: TargetKind) -> tuple[SegmentName, ...] | None:
        """The segments of a partition; None where a log directory has no such directory any more, or a file."""
        try:
            return list_segments(fs, directory)
        except NotALogError:
            if kind is not TargetKind.LOG_DIRECTORY:
                raise
            return None

    def _check_missing(self, found: Collection[TopicPartition]) -> None:
        missing = sorted((self._options.assign or frozenset()) - set(found))
        absent = sorted((self._options.subscribe or frozenset()) - {key.topic for key in found})
        if missing or absent:
            names = ", ".join([*map(str, missing), *absent])
            raise ConfigError(f"{names}: no such partition below {', '.join(self._options.paths)}")


def tail_of(fs: FileSystem, segment: SegmentFiles, start: int | None = None) -> LogTail | None:
    """Behind the last batch of a segment whose checksum is right, or None when there is none.

    Reads from byte `start`, or from the last index entry that is a batch.
    """
    begin = _last_indexed(fs, segment) if start is None else start
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


def batch_at(fs: FileSystem, path: Path, position: int, size: int) -> np.void | None:
    """The batch (a row of layout.BATCH) at `position` of a file of `size` bytes if its checksum is right.

    None as well when the file is gone: whoever reads it will say so.
    """
    try:
        with fs.open(path, "r") as file:
            row = entry_row(file, position, size)
            return row[0] if row is not None and checksum_valid(file, row[0]) else None
    except GONE:
        return None


def first_offset_at(fs: FileSystem, path: Path, position: int, size: int) -> int | None:
    """The offset of the first record of the batch at `position`; None where no good batch begins.

    A compressed wrapper of magic 0 or 1 says where it ends: where it begins is found by decoding it.
    """
    row = batch_at(fs, path, position, size)
    if row is None:
        return None
    if row["magic"] >= 2 or not row["attributes"] & layout.CODEC_MASK:
        return int(row["base_offset"])
    with contextlib.suppress(*GONE):
        for chunk in SegmentScan(fs, path, position, position + int(row["size"])):
            for records in chunk.records():
                if len(records) and not records.status.any():
                    return int(records.rows["offset"][0])
    return None


# --- paths --------------------------------------------------------------------------------------------------


def _listed(fs: FileSystem, path: Path) -> list[str]:
    try:
        return fs.list(path)
    except FileNotFoundError as error:
        raise NotALogError(path, "no such directory") from error


def _checkpoints(fs: FileSystem, directory: Path) -> tuple[Offsets, Offsets]:
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
    for position in index.positions[:-4:-1].tolist():
        if 0 < position < segment.size and batch_at(fs, segment.log, position, segment.size) is not None:
            return int(position)
    return 0
