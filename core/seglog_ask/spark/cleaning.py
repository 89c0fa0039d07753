"""`clean` on Spark: many partitions, a task each; a giant one over all tasks (Kafka: LogCleaner).

1. The driver takes each log directory's lock, opens the logs and fixes their rounds, as `seglog clean` does.
2. Rounds that fit a task run side by side, the largest first: the single-node cleaner, up to the swap. A giant one is
   a job of its own: the three stages of `cleaning_stages`, with the exact keys exchanged as blobs.
3. The driver checks and swaps (`cleaning_round`) and writes the checkpoint.

Tasks only read, and write to a staging directory of their attempt, so retries, speculation and lost executors do no
harm. The files are those of `seglog clean`, byte for byte. All executors must see the directories under the same paths:
`local[*]`, or a shared file system.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from seglog.cleaner.cleaner import roll_as_planned
from seglog.cleaner.dirtiness import LogToClean
from seglog.cleaner.manager import CleanerManager
from seglog.cleaner.round import CleanerOptions, RoundPlan, StrategyKind, plan_round
from seglog.clock import Clock
from seglog.errors import SeglogError, UnsupportedError
from seglog.log.directory import LogDirectory
from seglog.log.log import Log
from seglog.operations.clean import (
    Cleaned,
    CleaningFailure,
    DirectoryCleaning,
    Outcome,
    Skipped,
    compacted_log,
    compacted_partitions,
    left_alone,
    open_for_cleaning,
    plan_named,
    with_history,
    write_end,
)
from seglog.operations.workspace import Workspace
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.cleaning_round import (
    RoundSpec,
    SegmentCopy,
    TaskOutcome,
    check_space,
    finish_round,
    make_staging,
    remove_staging,
)
from seglog_ask.spark.cleaning_stages import index_group, merge_keys, rewrite_group, rewrite_round
from seglog_ask.spark.key_merge import ENTRY_BYTES, MEMORY_BYTES, MergeSpace
from seglog_ask.spark.keys import object_blob, opened
from seglog_ask.spark.tasks import (
    ROW,
    Watch,
    attempt_id,
    blobs_of,
    collected,
    cores_of,
    distributed,
    in_batches,
    local_directory,
    packed,
    rows,
    run_tasks,
    settle,
    try_tasks,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Plan = Literal["auto", "directory", "shuffle"]

# One core cleans less than this within seconds, and a job of three stages gains nothing.
GIANT_BYTES = 2 << 30
# About 5 million records of 200 bytes: 500 MiB of keys and table in a reducer (core/SPARK.md).
BYTES_PER_REDUCER = 1 << 30
# For a log with many offsets in few bytes (well compressed, or with gaps): at most one reducer for this much.
_LEAST_BYTES_PER_REDUCER = 16 << 20
_ENTRY_ESTIMATE = ENTRY_BYTES + 2 * 16  # with a key of 16 bytes
_SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class Placement:
    """The choice of plan for a round: `auto` decides by `giant_bytes`; `reducers` 0 by the bytes and offsets to clean.

    A reducer holds keys and table in `reducer_memory_bytes`; beyond that they go to Spark's local directory.
    """

    plan: Plan = "auto"
    giant_bytes: int = GIANT_BYTES
    reducers: int = 0
    reducer_memory_bytes: int = MEMORY_BYTES

    def check(self, options: CleanerOptions) -> None:
        """Raises UnsupportedError if the plan is impossible with these options."""
        if self.plan == "shuffle" and not _can_be_split(options):
            raise UnsupportedError("rounds with a strategy other than offset, or with --expire, run in one task each")

    def is_giant(self, spec: RoundSpec, all_bytes: int, cores: int) -> bool:
        """True if a round is split over tasks: it can be, and would otherwise keep one core busy after the others."""
        if self.plan != "auto":
            return self.plan == "shuffle"
        straggler = spec.plan.source_bytes > self.giant_bytes and spec.plan.source_bytes * cores > all_bytes
        return _can_be_split(spec.plan.options) and spec.group_count > 1 and straggler

    def reducers_for(self, spec: RoundSpec, cores: int) -> int:
        """Returns how many reducers share the keys of a round, so that each should hold its own in memory."""
        source_bytes = spec.plan.source_bytes
        by_bytes = -(-source_bytes // BYTES_PER_REDUCER)
        entries = spec.plan.first_uncleanable_offset - spec.plan.first_dirty_offset
        by_entries = entries * _ENTRY_ESTIMATE // self.reducer_memory_bytes
        return self.reducers or max(cores, by_bytes, min(by_entries, source_bytes // _LEAST_BYTES_PER_REDUCER))


DEFAULT_PLACEMENT = Placement()


def _can_be_split(options: CleanerOptions) -> bool:
    return options.strategy.kind is StrategyKind.OFFSET and not options.expire


@dataclass(frozen=True, slots=True)
class _Due:
    """A log to clean now: a named one comes with its plan, one that a manager chose with what it `found`."""

    directory: LogDirectory
    part: DirectoryCleaning
    log: Log
    plan: RoundPlan | None = None
    manager: CleanerManager | None = None
    found: LogToClean | None = None


def clean(
    spark: SparkSession,
    work: Workspace,
    directories: Sequence[DirectoryCleaning],
    placement: Placement = DEFAULT_PLACEMENT,
    watch: Watch | None = None,
) -> Generator[Outcome, None, None]:
    """Cleans by the rules of `operations.clean.clean`, many logs at a time; keeps the rounds' statistics too.

    Raises the same errors, and UnsupportedError for an impossible placement. An error within one partition becomes its
    `CleaningFailure`.
    """
    for directory in directories:
        placement.check(directory.options)
    yield from with_history(work, _cleaned(spark, work, directories, placement, watch))


def _cleaned(
    spark: SparkSession,
    work: Workspace,
    directories: Sequence[DirectoryCleaning],
    placement: Placement,
    watch: Watch | None,
) -> Iterator[Outcome]:
    due: list[_Due] = []
    managers: list[tuple[LogDirectory, DirectoryCleaning, CleanerManager]] = []
    with ExitStack() as stack:
        for part in directories:
            directory = stack.enter_context(open_for_cleaning(work.fs, part, work.clock))
            yield from _named(directory, part, work.clock, due)
            if part.whole:
                logs: list[Log] = []
                for partition in compacted_partitions(directory, part):
                    log = partition if isinstance(partition, Skipped) else compacted_log(directory, partition.path)
                    if isinstance(log, Log):
                        logs.append(log)
                    elif log is not None:
                        yield log
                managers.append(
                    (directory, part, CleanerManager(directory, logs, work.clock, rolled=part.options.roll))
                )
        while due := [*due, *_eligible(managers)]:
            yield from _run(spark, due, work.clock, placement, watch)
            due = []
        for directory, _, manager in managers:
            yield from left_alone(directory, manager)


def _named(
    directory: LogDirectory, part: DirectoryCleaning, clock: Clock, due: list[_Due]
) -> Iterator[Cleaned | CleaningFailure]:
    """Opens the named partitions, and adds those with something to clean to `due`."""
    for path in part.named:
        try:
            planned = plan_named(directory, part, path, clock, check_space)
            if isinstance(planned, Cleaned):
                yield planned
            else:
                due.append(_Due(directory, part, planned.log, planned.plan))
        except SeglogError as error:
            yield CleaningFailure(path, error)


def _eligible(managers: Sequence[tuple[LogDirectory, DirectoryCleaning, CleanerManager]]) -> Iterator[_Due]:
    for directory, part, manager in managers:
        while (taken := manager.take_filthiest()) is not None:
            log, found = taken
            yield _Due(directory, part, log, manager=manager, found=found)


def _run(
    spark: SparkSession, due: Sequence[_Due], clock: Clock, placement: Placement, watch: Watch | None
) -> Iterator[Outcome]:
    rounds: list[tuple[_Due, RoundSpec]] = []
    try:
        for one in due:
            try:
                rounds.append((one, _prepared(one, clock)))
            except SeglogError as error:
                yield _failed(one, error)
        for i, outcomes in _rewritten(spark, [spec for _, spec in rounds], placement, watch):
            yield _finished(*rounds[i], outcomes, clock)
    finally:
        for one, spec in rounds:
            remove_staging(one.log.fs, spec)


def _prepared(due: _Due, clock: Clock) -> RoundSpec:
    log, plan = due.log, due.plan
    if plan is None:
        first_dirty = None if due.found is None else due.found.first_dirty_offset
        plan = plan_round(log, due.part.options, clock, first_dirty)
        check_space(log, plan)
    roll_as_planned(log, plan)
    return RoundSpec.of(log.fs, plan, make_staging(log.fs, log.directory), os.urandom(_SEED_BYTES))


def _finished(due: _Due, spec: RoundSpec, outcomes: Sequence[TaskOutcome | SeglogError], clock: Clock) -> Outcome:
    try:
        result = finish_round(due.log, spec, outcomes, clock)
        write_end(due.directory, due.log, result)
    except SeglogError as error:
        return _failed(due, error)
    if due.manager is not None and due.found is not None:
        due.manager.done(due.found, result.end_offset)
    return due.part.cleaned(due.log, result)


def _failed(due: _Due, error: SeglogError) -> CleaningFailure:
    if due.manager is not None:
        due.manager.failed(due.log.topic_partition, error)
    return CleaningFailure(due.log.directory, error)


# --- tasks ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SparkTasks:
    """The tasks of `cleaning_objects` on Spark."""

    spark: SparkSession
    placement: Placement
    watch: Watch | None = None

    def rewrite(self, specs: Sequence[RoundSpec]) -> list[list[TaskOutcome]]:
        """Returns the outcomes of each round's tasks.

        Raises the first error of a task, and UnsupportedError for an impossible placement.
        """
        for spec in specs:
            self.placement.check(spec.plan.options)
        found: dict[int, list[TaskOutcome]] = {}
        for i, outcomes in _rewritten(self.spark, specs, self.placement, self.watch):
            found[i] = []
            for outcome in outcomes:
                if isinstance(outcome, SeglogError):
                    raise outcome
                found[i].append(outcome)
        return [found[i] for i in range(len(specs))]

    def run(self, items: Sequence[SegmentCopy], body: Callable[[SegmentCopy], Any]) -> list[Any]:
        return run_tasks(self.spark, items, body, self.watch)


def _rewritten(
    spark: SparkSession, specs: Sequence[RoundSpec], placement: Placement, watch: Watch | None
) -> Iterator[tuple[int, Sequence[TaskOutcome | SeglogError]]]:
    """Yields (index, outcomes) of each round: first the small ones, which run side by side, then each giant one."""
    cores, all_bytes = cores_of(spark), sum(spec.plan.source_bytes for spec in specs)
    giants = [i for i, spec in enumerate(specs) if placement.is_giant(spec, all_bytes, cores)]
    others = sorted(set(range(len(specs))) - set(giants), key=lambda i: -specs[i].plan.source_bytes)
    for i, outcome in zip(others, try_tasks(spark, [specs[i] for i in others], _whole, watch), strict=True):
        yield i, [outcome]
    for i in giants:
        reducers = placement.reducers_for(specs[i], cores)
        try:
            outcomes = shuffled(spark, specs[i], reducers, watch, placement.reducer_memory_bytes)
        except SeglogError as error:
            outcomes = [error]
        yield i, outcomes


def _whole(spec: RoundSpec) -> TaskOutcome | SeglogError:
    return rewrite_round(LocalFileSystem(), spec, attempt_id(), local_directory())


def shuffled(
    spark: SparkSession,
    spec: RoundSpec,
    reducers: int,
    watch: Watch | None = None,
    reducer_memory_bytes: int = MEMORY_BYTES,
) -> list[TaskOutcome | SeglogError]:
    """Runs the three stages of one round as one Spark job. Returns the outcomes for `finish_round`."""
    from pyspark.sql.functions import col

    groups = spec.group_count
    if not groups:
        return []
    work = distributed(spark, [object_blob(spec.of_group(number)) for number in range(groups)])
    keys: DataFrame = work.mapInArrow(partial(_index, reducers), ROW)
    merge = partial(_merge, spec.without_groups(), reducer_memory_bytes)
    merged = keys.repartitionById(reducers, col("target")).mapInArrow(merge, ROW)
    rewritten = merged.unionAll(work).repartitionById(groups, col("target")).mapInArrow(_rewrite, ROW)
    return list(collected(rewritten, watch).values())


def _index(reducers: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    for number, blob in blobs_of(batches):
        yield from in_batches(index_group(LocalFileSystem(), opened(blob), number, reducers))


def _merge(spec: RoundSpec, memory_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    found = blobs_of(batches)
    first = next(found, None)
    if first is not None:
        space = MergeSpace(LocalFileSystem(), local_directory(), memory_bytes)
        blobs = (blob for _, blob in chain([first], found))
        yield from in_batches(merge_keys(spec, first[0], blobs, space))


def _rewrite(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    found = list(blobs_of(batches))
    if found:
        blobs = [blob for _, blob in found]
        outcome = rewrite_group(LocalFileSystem(), blobs, attempt_id(), local_directory())
        if outcome is not None:
            yield rows([(found[0][0], packed(outcome))])
