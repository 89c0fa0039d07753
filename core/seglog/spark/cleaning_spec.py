"""What a cleaning task receives and hands back: the plan of a round, with what tasks need besides, and its counts."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np

from seglog import errors
from seglog.cleaner.output import CleanerStats, RoundCounts, SegmentSummary
from seglog.cleaner.round import CleaningRound, RoundPlan
from seglog.clock import FixedClock
from seglog.errors import IncompleteError, RefusedError, SeglogError
from seglog.format.filenames import segment_file_name
from seglog.format.log_manifest import ManifestSegment
from seglog.log.segment import LogSegment
from seglog.spark.cleaning_delivery import Delivery, own_directory
from seglog.storage.filesystem import FileSystem

Identity = tuple[int, int, int]  # size, modification time in nanoseconds, inode


@dataclass(frozen=True)
class RoundSpec:
    """A plan, and what tasks that carry it out need besides.

    `sources` says what each file to rewrite looked like, by base offset. `staging` is a directory in the partition's.
    `seeds` are the words that key the hashes of this job. A task gets the part that it needs: `of_group` has one group
    alone, `without_groups` none; `group_count` is that of the round. With a `delivery`, staging is the task's own, and
    what was staged is put where that says.
    """

    plan: RoundPlan
    staging: str
    sources: dict[int, Identity]
    seeds: bytes
    group_count: int
    delivery: Delivery | None = None

    @classmethod
    def of(cls, fs: FileSystem, plan: RoundPlan, staging: Path, seeds: bytes) -> RoundSpec:
        """What tasks need for a plan. RefusedError when a source is gone."""
        sources = {base: identity_of(fs, plan.directory / segment_file_name(base)) for base in plan.source_bases}
        alone = replace(plan, options=replace(plan.options, jobs=1, roll=False))
        return cls(alone, str(staging), sources, seeds, len(plan.groups))

    def of_group(self, number: int) -> RoundSpec:
        """What the task of one group must know; segments in front of the group are not among it."""
        begin, end = self.plan.groups[number]
        first = self.plan.groups[0][0]
        plan = replace(
            self.plan,
            bases=self.plan.bases[begin:],
            groups=((0, end - begin),),
            sizes=self.plan.sizes[begin - first : end - first],
        )
        return replace(self, plan=plan, sources={base: self.sources[base] for base in plan.source_bases})

    def without_groups(self) -> RoundSpec:
        """What a task must know that reads no segment."""
        return replace(self, plan=replace(self.plan, bases=(), groups=(), sizes=()), sources={})

    # what `cleaning_merge.Exchange` asks for

    @property
    def subject(self) -> str:
        return str(self.plan.directory)

    @property
    def hash_seeds(self) -> np.ndarray:
        return np.frombuffer(self.seeds, dtype=np.int64)

    @property
    def hash_mask(self) -> int:
        return self.plan.options.hash_mask

    def files(self, fs: FileSystem) -> FileSystem:
        """What a task reads through, on a machine with the files `fs`."""
        return fs if self.delivery is None else self.delivery.files()

    @contextmanager
    def opened(self, fs: FileSystem, disk: Path) -> Iterator[tuple[FileSystem, RoundSpec]]:
        """The files that a task works on, and the spec that it goes by: with a `delivery` it is staged below `disk`."""
        fs = self.files(fs)
        if self.delivery is None:
            yield fs, self
            return
        with own_directory(fs, disk) as directory:
            yield fs, replace(self, staging=str(directory))

    def round(self, fs: FileSystem) -> CleaningRound:
        """The round over the files themselves. RefusedError when a source has changed."""
        plan = self.plan
        interval = plan.bounds.index_interval_bytes
        segments = tuple(LogSegment(fs, plan.directory, base, index_interval_bytes=interval) for base in plan.bases)
        round_ = CleaningRound(plan, fs, segments, FixedClock(plan.now_ms))
        for segment in round_.sources:
            check_unchanged(fs, segment.path, self.sources[segment.base_offset])
        return round_


@dataclass(frozen=True, slots=True)
class StagedGroup:
    """A rewritten group: its segments' `.cleaned` files lie complete and fsynced in `directory`; or `delivered`."""

    number: int
    directory: str
    summaries: tuple[SegmentSummary, ...]
    delivered: tuple[ManifestSegment, ...]


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What a task that rewrites brings back: staged groups and counts, or the error that ended it."""

    groups: tuple[StagedGroup, ...] = ()
    counts: RoundCounts = field(default_factory=RoundCounts)
    failure: tuple[str, str, dict[str, object]] | None = None

    def raise_failure(self) -> None:
        """Raises the task's error here, as the class that it was."""
        if self.failure is not None:
            raise revived(self.failure)


def staged_groups(
    spec: RoundSpec, outcomes: Iterable[TaskOutcome], stats: CleanerStats, effect: str
) -> list[StagedGroup]:
    """The round's groups in order; what tasks have counted is added to `stats`.

    Raises a task's error, or IncompleteError where a group is missing: it says that nothing was `effect` ("changed").
    """
    groups: dict[int, StagedGroup] = {}
    for outcome in outcomes:
        outcome.raise_failure()
        stats.add(outcome.counts)
        groups.update({group.number: group for group in outcome.groups})
    missing = spec.group_count - len(groups)
    if missing:
        raise IncompleteError(
            f"{spec.plan.directory}: {missing} of {spec.group_count} groups of segments were not cleaned; nothing was"
            f" {effect}"
        )
    return [groups[number] for number in range(len(groups))]


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
