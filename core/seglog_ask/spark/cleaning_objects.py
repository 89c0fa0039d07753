"""Cleans logs where they are into new objects below a new prefix: no rename, no lock, no shared file system.

1. The driver opens each log over an overlay, as a dry run of `seglog clean` does, and fixes its round there.
2. Tasks read the source through its URL, write cleaned segments to their executor's own disk, and put them into places
   of their own below the prefix. Tasks also copy what is not rewritten.
3. The driver checks that every source is unchanged, and commits all partitions by one manifest.

Nothing is visible before step 3. If the driver dies, a task runs twice or a partition cannot be cleaned, objects remain
that no manifest names (`seglog tiers` shows them). The files are those of `seglog clean`, byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from seglog.cleaner.cleaner import apply_plan, roll_as_planned
from seglog.cleaner.dirtiness import policy_problem
from seglog.cleaner.output import CleanerStats, CleaningResult
from seglog.cleaner.round import RoundPlan, plan_round
from seglog.clock import Clock
from seglog.errors import RefusedError, SeglogError
from seglog.format.filenames import FileKind, parse_topic_partition, segment_file_name
from seglog.log.directory import LogDirectory
from seglog.log.log import Log
from seglog.log.read_loader import ViewingFileSystem
from seglog.model import TopicPartition
from seglog.operations.clean import (
    DirectoryCleaning,
    Outcome,
    Skipped,
    first_dirty,
    open_for_cleaning,
    open_lossless,
)
from seglog.operations.workspace import Workspace
from seglog.scan.listing import list_log_directory, list_partition
from seglog.scan.topic_ids import topic_id_of_partition
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import partition_path
from seglog.storage.overlay import OverlayFileSystem
from seglog.storage.routing import RoutingFileSystem
from seglog_ask.spark.cleaning_round import (
    Delivery,
    Identity,
    RoundSpec,
    SegmentCopy,
    TaskOutcome,
    check_unchanged,
    copied,
    identity_of,
    staged_groups,
)
from seglog_ask.table.plan.files import files_of, sent_along
from seglog_stores.formats.log_manifest import ManifestPartition, ManifestSegment
from seglog_stores.remote.settings import StoreSettings
from seglog_stores.tiers.manifests import object_of
from seglog_stores.tiers.publishing import (
    commit,
    epochs_in,
    new_place,
    put_object,
    put_segment,
    require_new,
    segments_to_put,
)

_NO_STAGING = Path()  # each task has its own
_SEED_BYTES = 32
_COMPARED_BYTES = 16 << 20  # enough for an index; opening never makes a log anew
_READ_BY_TASKS = (FileKind.LOG, FileKind.TRANSACTION_INDEX)


class Tasks(Protocol):
    """Runs the work: in Spark, or for tests in this process."""

    def rewrite(self, specs: Sequence[RoundSpec]) -> Sequence[Sequence[TaskOutcome | SeglogError]]:
        """Returns the outcomes of each round's tasks."""
        ...

    def run(self, items: Sequence[SegmentCopy], body: Callable[[SegmentCopy], Any]) -> list[Any]:
        """Returns `body` of each item. Raises the first SeglogError of a task."""
        ...


@dataclass(frozen=True, slots=True)
class Destination:
    """The sources as the user named them, and the new prefix for the output."""

    sources: Sequence[Path]
    output: Path
    store: StoreSettings

    @classmethod
    def of(cls, sources: Sequence[Path], output: Path, store: Mapping[str, str] | None = None) -> Destination:
        """Returns the destination, with what the driver's environment knows of the stores."""
        return cls(sources, output, sent_along(StoreSettings.of(store or {}), [*sources, output]))


@dataclass(slots=True)
class _Round:
    """A log open over an overlay, its round, and its future entry in the manifest."""

    delivery: Delivery
    part: DirectoryCleaning
    source: FileSystem
    overlay: OverlayFileSystem
    log: Log
    key: TopicPartition
    plan: RoundPlan
    spec: RoundSpec
    result: CleaningResult | None
    checkpoint: int | None
    identities: Mapping[int, Identity]
    cleaned: list[ManifestSegment] = field(default_factory=list)
    kept: list[ManifestSegment] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        return self.log.directory


def clean_into(
    tasks: Tasks,
    to: Destination,
    work: Workspace,
    shown: Sequence[Path],
    directories: Sequence[DirectoryCleaning],
) -> list[Outcome]:
    """Cleans logs into a new prefix: named partitions, and every compacted partition of a named log directory.

    `work` has the files, and `shown` the path of each source there, that `tiers.view.see_tiers` returns.

    Raises RefusedError if the output is not new, is among the sources, or a source has changed, and the errors of
    `operations.clean.clean` for a log. Then nothing is committed.
    """
    files = files_of(to.store)
    require_new(files, to.output)
    deliveries: dict[Path, Delivery] = {}
    for source, path in zip(to.sources, shown, strict=True):
        delivery = Delivery(source, to.output, to.store)
        deliveries |= {links.resolve(path): delivery, partition_path(path): delivery}
    outcomes: list[Outcome] = []
    rounds: list[_Round] = []
    with ExitStack() as stack:
        for part in directories:
            _require_apart(to.output, part.log_directory)
            for planned in _opened(stack, deliveries, work, part):
                if isinstance(planned, Skipped):
                    outcomes.append(planned)
                else:
                    rounds.append(planned)
    places: dict[TopicPartition, Path] = {}
    for round_ in rounds:
        other = places.setdefault(round_.key, round_.directory)
        if other != round_.directory:
            raise RefusedError(
                f"{other} and {round_.directory} are both {round_.key}: clean them into separate prefixes"
            )
    due = [round_ for round_ in rounds if round_.spec.group_count]
    rewritten = dict(zip(map(id, due), tasks.rewrite([round_.spec for round_ in due]), strict=True))
    for round_ in due:
        round_.cleaned, round_.result = _collected(round_, rewritten[id(round_)], work.clock)
    _copy(tasks, files, rounds)
    for round_ in rounds:
        source_files = round_.delivery.files()
        for base, identity in round_.identities.items():
            check_unchanged(source_files, round_.directory / segment_file_name(base), identity)
    if rounds:
        commit(files, to.output, None, [_described(files, round_) for round_ in rounds], work.clock)
    for round_ in rounds:
        assert round_.result is not None  # from the plan, or from its tasks
        outcomes.append(round_.part.cleaned(round_.log, round_.result))
    return outcomes


def _require_apart(output: Path, log_directory: Path) -> None:
    if output == log_directory or output in log_directory.parents or log_directory in output.parents:
        raise RefusedError(f"{output} is among the logs in {log_directory}: name a separate prefix")


# --- planning on the driver -----------------------------------------------------------------------------------


def _opened(
    stack: ExitStack, deliveries: Mapping[Path, Delivery], work: Workspace, part: DirectoryCleaning
) -> Iterator[_Round | Skipped]:
    overlay = OverlayFileSystem(ViewingFileSystem(work.fs, part.log_directory))
    directory = stack.enter_context(open_for_cleaning(overlay, part, work.clock, take_lock=False))
    for path in _chosen(directory, part):
        if isinstance(path, Skipped):
            yield path
        else:
            delivery = deliveries.get(path) or deliveries[part.log_directory]
            yield _planned(delivery, work, overlay, directory, part, path)


def _chosen(directory: LogDirectory, part: DirectoryCleaning) -> Iterator[Path | Skipped]:
    """Yields the named partitions; of a whole log directory all other compacted ones, whatever their dirty ratio."""
    yield from part.named
    for partition in list_log_directory(directory.fs, directory.path).live if part.whole else ():
        if partition.path not in part.named:
            topic = partition.topic_partition.topic
            problem = policy_problem(part.topics.resolve(topic), topic)
            yield Skipped(partition.path, problem) if problem else partition.path


def _planned(
    delivery: Delivery,
    work: Workspace,
    overlay: OverlayFileSystem,
    directory: LogDirectory,
    part: DirectoryCleaning,
    path: Path,
) -> _Round:
    key, fs, clock = parse_topic_partition(path.name), work.fs, work.clock
    if key is None:
        raise RefusedError(f"{path}: only a directory named TOPIC-NUMBER (orders-0) can be committed as a partition")
    log = open_lossless(directory, path)
    checkpoint = first_dirty(directory, log)
    plan = plan_round(log, part.options, clock, checkpoint)
    _require_as_stored(fs, overlay, plan)
    bases = [segment.base_offset for segment in log.segments]
    identities = {base: identity_of(fs, path / segment_file_name(base)) for base in bases}
    result = None
    if plan.groups:
        roll_as_planned(log, plan)
    else:
        result = apply_plan(log, plan, clock)
    spec = RoundSpec.of(overlay, plan, _NO_STAGING, os.urandom(_SEED_BYTES))
    return _Round(
        delivery, part, fs, overlay, log, key, plan, replace(spec, delivery=delivery), result, checkpoint, identities
    )


def _require_as_stored(fs: FileSystem, overlay: OverlayFileSystem, plan: RoundPlan) -> None:
    """Raises RefusedError if opening the log repaired a file that tasks read: they see the source as it is stored."""
    for base in plan.source_bases:
        for kind in _READ_BY_TASKS:
            path = plan.directory / segment_file_name(base, kind)
            if _is_changed(fs, overlay, path):
                raise RefusedError(
                    f"{path} is not as a broker leaves it after a clean stop, and opening the log would repair it:"
                    " fetch the log, run `seglog recover` on the copy, and clean that"
                )


def _is_changed(fs: FileSystem, overlay: OverlayFileSystem, path: Path) -> bool:
    """True if a file of the overlay differs from the source's. One that was made anew may be equal."""
    if path in overlay.gone:
        return True
    if path not in overlay.changed:
        return False
    derived, stored = overlay.derived(path), fs.status(path)
    if stored is None or derived.size != stored.size:
        return True
    is_front = derived.source is not None and derived.kept == derived.size
    return not is_front and (stored.size > _COMPARED_BYTES or overlay.read_bytes(path) != fs.read_bytes(path))


# --- the tasks' results ---------------------------------------------------------------------------------------


def _collected(
    round_: _Round, outcomes: Sequence[TaskOutcome | SeglogError], clock: Clock
) -> tuple[list[ManifestSegment], CleaningResult]:
    """Returns the cleaned segments in order. Raises a task's error, or IncompleteError if a group is missing."""
    stats = CleanerStats(clock)
    staged = staged_groups(round_.spec, outcomes, stats, "committed")
    stats.all_done()
    summaries = [summary for group in staged for summary in group.summaries]
    result = CleaningResult.of(round_.plan, stats, summaries, dry_run=False)
    return [segment for group in staged for segment in group.delivered], result


def _copy(tasks: Tasks, store: RoutingFileSystem, rounds: Sequence[_Round]) -> None:
    """Copies segments that no round rewrites: in tasks, except those that opening the log has changed on the driver."""
    items: list[tuple[_Round, SegmentCopy]] = []
    for one in rounds:
        for segment in segments_to_put(one.overlay, one.directory):
            if segment.base_offset in one.plan.source_bases:
                continue
            if any(_is_changed(one.source, one.overlay, path) for path in segment.files.values()):
                place = new_place(one.delivery.output, one.key)
                one.kept.append(put_segment(one.overlay, store, place, segment))
            else:
                items.append((one, SegmentCopy(one.delivery, one.key, segment)))
    for (one, _), segment in zip(items, tasks.run([item for _, item in items], copied), strict=True):
        one.kept.append(segment)


def _described(store: RoutingFileSystem, round_: _Round) -> ManifestPartition:
    """Returns a partition's manifest entry: its segments in order, each ending where the next one begins."""
    found = sorted([*round_.cleaned, *round_.kept], key=lambda one: one.base_offset)
    ends = [*(one.base_offset - 1 for one in found[1:]), round_.log.log_end_offset - 1]
    segments = [replace(one, end_offset=end) for one, end in zip(found, ends, strict=True)]
    snapshots = {one.offset: one.path for one in list_partition(round_.overlay, round_.directory).snapshots}
    for i, one in enumerate(segments):
        path = snapshots.get(one.end_offset + 1)
        if path is not None and FileKind.PRODUCER_SNAPSHOT not in one.objects:
            target = object_of(round_.delivery.output, round_.key, one, FileKind.PRODUCER_SNAPSHOT)
            with round_.overlay.open(path, "r") as file:
                stored = put_object(store, target, file)
            segments[i] = replace(one, objects={**one.objects, FileKind.PRODUCER_SNAPSHOT: stored})
    cleaned = round_.plan.end_offset if round_.plan.groups else round_.checkpoint
    epochs = epochs_in(round_.overlay, round_.directory)
    topic_id = topic_id_of_partition(round_.overlay, round_.directory)
    return ManifestPartition(round_.key, topic_id, round_.log.log_start_offset, cleaned, epochs, tuple(segments))
