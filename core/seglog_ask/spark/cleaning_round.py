"""A cleaning round that tasks carry out: what they are sent, what they bring back, and the driver's swap.

A task gets the round's plan (`RoundSpec`) and brings back staged groups and counts (`TaskOutcome`). Where the output
goes:

- On a shared file system, tasks stage groups in a directory inside the partition's. The driver then swaps them in
  (Kafka: replaceSegments), in `finish_round`:

  1. It checks that every group was staged exactly once, and that every source is still the planned file.
  2. It renames the staged files into the partition directory as `.cleaned`; loading discards these after a crash.
  3. `Log.replace_segments` puts them in place, lowest offsets first, as `clean_log` does.

  Until step 2, only the staging directory exists. The next round removes what a crash leaves of it (`make_staging`): it
  holds the log directory's lock, and so knows that nobody works there.
- With a `Delivery`, the source may be of any kind and the output becomes new objects. A task stages a group on its
  executor's own disk, then copies it into a place of its own below the output prefix (`tiers.publishing`). A failed or
  superfluous attempt leaves a place that no manifest names.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from seglog.cleaner.output import CleanerStats, CleaningResult, RoundCounts, SegmentSummary
from seglog.cleaner.round import CleaningRound, RoundPlan
from seglog.clock import Clock, FixedClock
from seglog.errors import IncompleteError, RefusedError, SeglogError
from seglog.format.filenames import FileKind, FileState, segment_file_name
from seglog.log.log import Log
from seglog.log.segment import LogSegment
from seglog.log.swap import Replacement
from seglog.model import TopicPartition
from seglog.storage.files import remove_tree
from seglog.storage.filesystem import FileSystem
from seglog.storage.room import CLEANING_SLACK_BYTES, require_room_to_clean
from seglog_ask.spark.tasks import remove_task_files
from seglog_ask.table.plan.files import files_of
from seglog_stores.formats.log_manifest import ManifestSegment
from seglog_stores.remote.settings import StoreSettings
from seglog_stores.tiers.publishing import SegmentToPut, new_place, put_segment
from seglog_stores.tiers.view import see_tiers

STAGING_PREFIX = ".seglog-clean-"
_KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)

Identity = tuple[int, int, int]  # size, modification time in nanoseconds, inode


def identity_of(fs: FileSystem, path: Path) -> Identity:
    """Returns a file's identity. Raises RefusedError if it is gone."""
    status = fs.status(path)
    if status is None:
        raise RefusedError(f"{path}: the file is gone; nothing was changed")
    return status.size, status.modified_ns, status.inode


def check_unchanged(fs: FileSystem, path: Path, known: Identity) -> None:
    """Raises RefusedError if the file has changed. On a shared file system, all hosts see the same inode."""
    if identity_of(fs, path) != known:
        raise RefusedError(f"{path}: the file changed while it was cleaned; nothing was changed")


# --- to the tasks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delivery:
    """A task's source and destination without a shared file system: the user's path, and the output prefix."""

    source: Path
    output: Path
    store: StoreSettings

    def files(self) -> FileSystem:
        """Returns a file system with the source and the executor's own disk."""
        return see_tiers(files_of(self.store), [self.source])[0]

    def put(
        self, fs: FileSystem, key: TopicPartition, directory: Path, summaries: Sequence[SegmentSummary]
    ) -> tuple[ManifestSegment, ...]:
        """Copies cleaned segments out of a directory of this machine. Their end offsets are set when they are read."""
        place, store = new_place(self.output, key), files_of(self.store)
        found = []
        for summary in summaries:
            base = summary.base_offset
            names = {kind: directory / segment_file_name(base, kind, FileState.CLEANED) for kind in _KINDS}
            present = {kind: path for kind, path in names.items() if fs.status(path) is not None}
            found.append(put_segment(fs, store, place, SegmentToPut(base, base, present)))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """A segment that is not rewritten, for a task to copy."""

    delivery: Delivery
    topic_partition: TopicPartition
    segment: SegmentToPut


def copied(work: SegmentCopy) -> ManifestSegment:
    """In a task: copies a segment into a place of this attempt."""
    delivery = work.delivery
    place = new_place(delivery.output, work.topic_partition)
    return put_segment(delivery.files(), files_of(delivery.store), place, work.segment)


@dataclass(frozen=True)
class RoundSpec:
    """A plan with extra settings for the tasks that carry it out. It is also the `Exchange` of the round's keys.

    `sources` holds the identity of each file to rewrite, by base offset. `staging` is a directory inside the
    partition's; with a `delivery`, one of the task's own. `seeds` are the words that key the hashes of this job. A task
    gets only the part that it needs: `of_group` has a single group, `without_groups` none; `group_count` is always the
    whole round's.
    """

    plan: RoundPlan
    staging: str
    sources: dict[int, Identity]
    seeds: bytes
    group_count: int
    delivery: Delivery | None = None

    @classmethod
    def of(cls, fs: FileSystem, plan: RoundPlan, staging: Path, seeds: bytes) -> RoundSpec:
        """Returns the spec for a plan. Raises RefusedError if a source is gone."""
        sources = {base: identity_of(fs, plan.directory / segment_file_name(base)) for base in plan.source_bases}
        alone = replace(plan, options=replace(plan.options, jobs=1, roll=False))
        return cls(alone, str(staging), sources, seeds, len(plan.groups))

    def of_group(self, number: int) -> RoundSpec:
        """Returns the spec of one group, without the segments before it."""
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
        """Returns the spec for a task that reads no segment."""
        return replace(self, plan=replace(self.plan, bases=(), groups=(), sizes=()), sources={})

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
        """Returns the file system that a task reads through; `fs` is its machine's."""
        return fs if self.delivery is None else self.delivery.files()

    @contextmanager
    def opened(self, fs: FileSystem, disk: Path) -> Iterator[tuple[FileSystem, RoundSpec]]:
        """Yields a task's file system and spec. With a `delivery`, staging is a temporary directory below `disk`."""
        fs = self.files(fs)
        if self.delivery is None:
            yield fs, self
            return
        directory = disk / f"seglog-clean-{uuid.uuid4().hex}"
        fs.make_directory(directory, parents=True)
        try:
            yield fs, replace(self, staging=str(directory))
        finally:
            remove_tree(fs, directory)

    def round(self, fs: FileSystem) -> CleaningRound:
        """Returns the round over the files. Raises RefusedError if a source has changed."""
        plan = self.plan
        interval = plan.bounds.index_interval_bytes
        segments = tuple(LogSegment(fs, plan.directory, base, index_interval_bytes=interval) for base in plan.bases)
        round_ = CleaningRound(plan, fs, segments, FixedClock(plan.now_ms))
        for segment in round_.sources:
            check_unchanged(fs, segment.path, self.sources[segment.base_offset])
        return round_


# --- from the tasks -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StagedGroup:
    """A rewritten group: its `.cleaned` files are complete and fsynced in `directory`, or its segments `delivered`."""

    number: int
    directory: str
    summaries: tuple[SegmentSummary, ...]
    delivered: tuple[ManifestSegment, ...]


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The result of a task that rewrites: staged groups, and counts, which add up."""

    groups: tuple[StagedGroup, ...] = ()
    counts: RoundCounts = field(default_factory=RoundCounts)


def staged_groups(
    spec: RoundSpec, outcomes: Iterable[TaskOutcome | SeglogError], stats: CleanerStats, effect: str
) -> list[StagedGroup]:
    """Returns the round's groups in order, and adds the tasks' counts to `stats`.

    Raises a task's error, or IncompleteError if a group is missing; its message says that nothing was `effect`
    ("changed").
    """
    groups: dict[int, StagedGroup] = {}
    for outcome in outcomes:
        if isinstance(outcome, SeglogError):
            raise outcome
        stats.add(outcome.counts)
        groups.update({group.number: group for group in outcome.groups})
    missing = spec.group_count - len(groups)
    if missing:
        raise IncompleteError(
            f"{spec.plan.directory}: {missing} of {spec.group_count} groups of segments were not cleaned; nothing was"
            f" {effect}"
        )
    return [groups[number] for number in range(len(groups))]


# --- the driver's swap ----------------------------------------------------------------------------------------


def make_staging(fs: FileSystem, partition: Path) -> Path:
    """Makes a staging directory in a partition directory, and removes those of dead rounds. The lock must be held."""
    for name in fs.list(partition):
        if name.startswith(STAGING_PREFIX):
            remove_task_files(fs, partition / name)
    path = partition / f"{STAGING_PREFIX}{uuid.uuid4().hex[:12]}"
    fs.make_directory(path)
    return path


def remove_staging(fs: FileSystem, spec: RoundSpec) -> None:
    """Removes what attempts have left."""
    if fs.status(Path(spec.staging)) is not None:
        remove_task_files(fs, Path(spec.staging))


def check_space(log: Log, plan: RoundPlan) -> None:
    """Raises RefusedError if the disk lacks room for an output as large as the sources."""
    needed = plan.source_bytes + CLEANING_SLACK_BYTES
    require_room_to_clean(log.fs, plan.directory, needed, "`seglog clean` counts the output first")


def finish_round(
    log: Log, spec: RoundSpec, outcomes: Iterable[TaskOutcome | SeglogError], clock: Clock
) -> CleaningResult:
    """Swaps in what tasks have staged. Raises a task's error, IncompleteError or RefusedError without any change."""
    stats = CleanerStats(clock)
    staged = staged_groups(spec, outcomes, stats, "changed")
    replaced = _sources(log, spec)
    with stats.phase("swap"):
        cleaned = [_adopted(log.fs, spec, group) for group in staged]
        log.replace_segments([Replacement(new, old) for new, old in zip(cleaned, replaced, strict=True)])
    remove_staging(log.fs, spec)
    stats.all_done()
    summaries = [summary for group in staged for summary in group.summaries]
    return CleaningResult.of(spec.plan, stats, summaries, dry_run=False)


def _sources(log: Log, spec: RoundSpec) -> list[list[LogSegment]]:
    """Returns the log's segments, group by group. Raises RefusedError if they are not those that tasks have read."""
    known = {segment.base_offset: segment for segment in log.segments}
    replaced: list[list[LogSegment]] = []
    for begin, end in spec.plan.groups:
        bases = spec.plan.bases[begin:end]
        for base in bases:
            if base not in known:
                raise RefusedError(f"{spec.plan.directory}: the log changed while it was cleaned; nothing was changed")
            check_unchanged(log.fs, known[base].path, spec.sources[base])
        replaced.append([known[base] for base in bases])
    return replaced


def _adopted(fs: FileSystem, spec: RoundSpec, group: StagedGroup) -> list[LogSegment]:
    """Moves a group's staged segments into the partition directory as `.cleaned`, and checks their sizes."""
    staging, plan = Path(group.directory), spec.plan
    for name in fs.list(staging):
        fs.rename(staging / name, plan.directory / name)
    segments = []
    for summary in group.summaries:
        interval = plan.bounds.index_interval_bytes
        state = FileState.CLEANED
        segment = LogSegment(fs, plan.directory, summary.base_offset, index_interval_bytes=interval, state=state)
        if segment.size != summary.size:
            raise IncompleteError(
                f"{segment.path}: {segment.size} bytes arrived of {summary.size}; do all executors share this file"
                " system?"
            )
        segments.append(segment)
    return segments
