"""What a cleaning task receives: a round as values that travel, and the same round again where it arrives."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np

from seglog import errors
from seglog.cleaner.grouping import SegmentBounds
from seglog.cleaner.options import CleanerOptions
from seglog.cleaner.output import SegmentSummary
from seglog.cleaner.round import CleaningRound, LastRecords
from seglog.cleaner.stats import CleanerStats
from seglog.clock import FixedClock
from seglog.errors import RefusedError, SeglogError
from seglog.log.segment import LogSegment
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem

Identity = tuple[int, int, int]  # size, modification time in nanoseconds, inode


@dataclass(frozen=True)
class RoundSpec:
    """A `CleaningRound` without open files. `bases` are those of all segments, `groups` ranges of them to rewrite.

    `sources` says what each file to rewrite looked like, by base offset. `staging` is a directory in the partition's.
    `seeds` are the words that key the hashes of this job. A task gets the part that it needs: `of_group` has the group
    `first_group` alone, `without_groups` none; `group_count` is that of the round.
    """

    directory: str
    staging: str
    topic_partition: TopicPartition
    bases: tuple[int, ...]
    groups: tuple[tuple[int, int], ...]
    sources: dict[int, Identity]
    first_dirty_offset: int
    first_uncleanable_offset: int
    log_start_offset: int
    now_ms: int
    delete_retention_ms: int
    legacy_horizon_ms: int
    bounds: SegmentBounds
    last_records: LastRecords
    options: CleanerOptions
    seeds: bytes
    limit_reason: str = ""
    first_group: int = 0
    group_count: int = 0

    @classmethod
    def of(cls, round_: CleaningRound, staging: Path, seeds: bytes) -> RoundSpec:
        """The values of a round. RefusedError when a source is gone."""
        numbers = {id(segment): i for i, segment in enumerate(round_.segments)}
        return cls(
            directory=str(round_.directory),
            staging=str(staging),
            topic_partition=round_.topic_partition,
            bases=tuple(segment.base_offset for segment in round_.segments),
            groups=tuple((numbers[id(group[0])], numbers[id(group[-1])] + 1) for group in round_.groups),
            sources={s.base_offset: identity_of(round_.fs, s.path) for s in round_.sources},
            first_dirty_offset=round_.first_dirty_offset,
            first_uncleanable_offset=round_.first_uncleanable_offset,
            log_start_offset=round_.log_start_offset,
            now_ms=round_.now_ms,
            delete_retention_ms=round_.delete_retention_ms,
            legacy_horizon_ms=round_.legacy_horizon_ms,
            bounds=round_.bounds,
            last_records=round_.last_records,
            options=replace(round_.options, jobs=1, roll=False),
            seeds=seeds,
            limit_reason=round_.limit_reason,
            group_count=len(round_.groups),
        )

    def of_group(self, number: int) -> RoundSpec:
        """What the task of one group must know; segments in front of the group are not among it."""
        begin, end = self.groups[number]
        return replace(
            self,
            bases=self.bases[begin:],
            groups=((0, end - begin),),
            sources={base: self.sources[base] for base in self.bases[begin:end]},
            first_group=number,
        )

    def without_groups(self) -> RoundSpec:
        """What a task must know that reads no segment."""
        return replace(self, bases=(), groups=(), sources={})

    @property
    def source_bytes(self) -> int:
        """Bytes to rewrite."""
        return sum(size for size, _, _ in self.sources.values())

    # what `cleaning_merge.Exchange` asks for

    @property
    def subject(self) -> str:
        return self.directory

    @property
    def hash_seeds(self) -> np.ndarray:
        return np.frombuffer(self.seeds, dtype=np.int64)

    @property
    def hash_mask(self) -> int:
        return self.options.hash_mask

    def round(self, fs: FileSystem, first: int = 0, last: int | None = None) -> CleaningRound:
        """The round over groups `first` to `last` (exclusive; None: all). RefusedError when a source has changed.

        Its segments begin with the first group's, as transactions are looked up in later segments only.
        """
        before = self.first_group
        groups = self.groups[max(first - before, 0) : None if last is None else last - before]
        start = groups[0][0] if groups else 0
        directory = Path(self.directory)
        segments = tuple(
            LogSegment(fs, directory, base, index_interval_bytes=self.bounds.index_interval_bytes)
            for base in self.bases[start:]
        )
        for begin, end in groups:
            for segment in segments[begin - start : end - start]:
                check_unchanged(fs, segment.path, self.sources[segment.base_offset])
        return CleaningRound(
            fs=fs,
            directory=directory,
            topic_partition=self.topic_partition,
            segments=segments,
            groups=tuple(segments[begin - start : end - start] for begin, end in groups),
            first_dirty_offset=self.first_dirty_offset,
            first_uncleanable_offset=self.first_uncleanable_offset,
            log_start_offset=self.log_start_offset,
            now_ms=self.now_ms,
            delete_retention_ms=self.delete_retention_ms,
            legacy_horizon_ms=self.legacy_horizon_ms,
            bounds=self.bounds,
            last_records=self.last_records,
            options=self.options,
            clock=FixedClock(self.now_ms),
        )


@dataclass(slots=True)
class Account:
    """What a task counted, as values; sums of them make the round's `CleanerStats`."""

    map_bytes_read: int = 0
    map_records_read: int = 0
    map_entries: int = 0
    index_passes: int = 1
    bytes_read: int = 0
    bytes_written: int = 0
    batches_written: int = 0
    counters: list[int] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, stats: CleanerStats) -> Account:
        return cls(
            stats.map_bytes_read,
            stats.map_records_read,
            stats.map_entries,
            stats.index_passes,
            stats.bytes_read,
            stats.bytes_written,
            stats.batches_written,
            stats.counters.tolist(),
            dict(stats.phases),
        )

    def add_to(self, stats: CleanerStats) -> None:
        """Adds these counts to a round's."""
        stats.map_bytes_read += self.map_bytes_read
        stats.map_records_read += self.map_records_read
        stats.map_entries += self.map_entries
        stats.index_passes = max(stats.index_passes, self.index_passes)
        stats.bytes_read += self.bytes_read
        stats.bytes_written += self.bytes_written
        stats.batches_written += self.batches_written
        if self.counters:
            stats.counters += np.array(self.counters, dtype=np.int64)
        for name, seconds in self.phases.items():
            stats.phases[name] = stats.phases.get(name, 0.0) + seconds


@dataclass(frozen=True, slots=True)
class StagedGroup:
    """A rewritten group: its segments' `.cleaned` files lie complete and fsynced in `directory`."""

    number: int
    directory: str
    summaries: tuple[SegmentSummary, ...]


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What a task that rewrites brings back: staged groups and counts, or the error that ended it."""

    groups: tuple[StagedGroup, ...] = ()
    account: Account = field(default_factory=Account)
    failure: tuple[str, str, dict[str, object]] | None = None

    def raise_failure(self) -> None:
        """Raises the task's error here, as the class that it was."""
        if self.failure is not None:
            raise revived(self.failure)


def failed(error: SeglogError) -> TaskOutcome:
    """The outcome of a task that met `error`: handed back and not raised, as trying again would end the same."""
    return TaskOutcome(failure=(type(error).__name__, str(error), dict(vars(error))))


def revived(failure: tuple[str, str, dict[str, object]]) -> SeglogError:
    """An error that travelled: class, text, attributes."""
    name, text, attributes = failure
    kind = getattr(errors, name, SeglogError)
    found = cast(SeglogError, kind.__new__(kind, text))
    vars(found).update(attributes)
    return found


def identity_of(fs: FileSystem, path: Path) -> Identity:
    """What a file looks like. RefusedError when it is gone."""
    status = fs.status(path)
    if status is None:
        raise RefusedError(f"{path}: the file is gone; nothing was changed")
    return status.size, status.modified_ns, status.inode


def check_unchanged(fs: FileSystem, path: Path, known: Identity) -> None:
    """RefusedError unless the file still is what it was. On a shared file system all hosts see the same inode."""
    if identity_of(fs, path) != known:
        raise RefusedError(f"{path}: the file changed while it was cleaned; nothing was changed")


def packed(value: object) -> bytes:
    """A value for a binary column."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
