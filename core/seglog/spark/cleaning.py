"""`clean` on Spark: many directories, a task each; a giant one over all tasks (Kafka: LogCleaner).

1. The driver takes each log directory's lock, opens the logs and fixes their rounds, as `seglog clean` does.
2. Rounds that fit a task run side by side, the largest first: the single-node cleaner, up to the swap. A giant one is
   a job of its own: the three stages of `cleaning_stages`, with the exact keys exchanged as blobs.
3. The driver checks and swaps (`cleaning_swap`) and writes the checkpoint.

Tasks only read, and write to a staging directory of their attempt: retries, speculation and lost executors harm
nothing. The files are those of `seglog clean`, byte for byte. All executors must see the directories under the same
paths: `local[*]`, or a shared file system.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seglog.cleaner.manager import check_checkpoints, log_to_clean
from seglog.cleaner.options import CleanerOptions
from seglog.cleaner.requested import Cleaned, CleaningFailure, Outcome, Skipped, policy_problem
from seglog.cleaner.round import CleaningRound, prepare_round
from seglog.cleaner.strategy import StrategyKind
from seglog.clock import Clock
from seglog.errors import NotALogError, RefusedError, SeglogError, UnsupportedError
from seglog.format.filenames import parse_partition_directory
from seglog.log.directory import LogDirectory
from seglog.log.listing import Target, TargetKind, list_log_directory, list_partition, log_directory_of
from seglog.log.log import Log
from seglog.log.opening import open_undamaged
from seglog.log.retaining import TopicConfigs
from seglog.spark.cleaning_merge import ENTRY_BYTES, MEMORY_BYTES, MergeSpace
from seglog.spark.cleaning_spec import RoundSpec, TaskOutcome, packed
from seglog.spark.cleaning_stages import index_group, merge_keys, rewrite_group, rewrite_round
from seglog.spark.cleaning_swap import check_space, finish_round, make_staging, remove_staging
from seglog.spark.tasks import (
    ROW,
    Watch,
    attempt_id,
    blobs_of,
    collected,
    cores_of,
    in_batches,
    local_directory,
    rows,
    settle,
    try_tasks,
)
from seglog.storage.filesystem import FileSystem, LocalFileSystem

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Plan = Literal["auto", "directory", "shuffle"]

# Below this one core is done within some seconds, and a job of three stages gains nothing.
GIANT_BYTES = 2 << 30
# About 5 million records of 200 bytes, 500 MiB of keys and table in a reducer (core/SPARK.md).
BYTES_PER_REDUCER = 1 << 30
# Of a log with many offsets and few bytes, compressed well or with gaps: no more reducers than one for so much.
_LEAST_BYTES_PER_REDUCER = 16 << 20
_ENTRY_ESTIMATE = ENTRY_BYTES + 2 * 16  # with a key of 16 bytes
_SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class Placement:
    """Which plan a round gets: `auto` goes by `giant_bytes`; `reducers` 0 goes by the bytes and offsets to clean.

    A reducer holds keys and table in `reducer_memory_bytes`; what is more goes to Spark's local directory.
    """

    plan: Plan = "auto"
    giant_bytes: int = GIANT_BYTES
    reducers: int = 0
    reducer_memory_bytes: int = MEMORY_BYTES

    def is_giant(self, spec: RoundSpec, all_bytes: int, cores: int) -> bool:
        """Whether a round is split over tasks: it could be, and would otherwise keep one core busy after the others."""
        options = spec.options
        possible = options.strategy.kind is StrategyKind.OFFSET and not options.expire and bool(spec.groups)
        if self.plan == "shuffle" or self.plan == "directory":
            if self.plan == "shuffle" and not possible:
                raise UnsupportedError(
                    f"{spec.directory}: a round with another strategy than offset, or with --expire, runs in one task"
                )
            return self.plan == "shuffle"
        straggler = spec.source_bytes > self.giant_bytes and spec.source_bytes * cores > all_bytes
        return possible and len(spec.groups) > 1 and straggler

    def reducers_for(self, spec: RoundSpec, cores: int) -> int:
        """How many reducers share the keys of a round: so many that each should hold its own in memory."""
        by_bytes = -(-spec.source_bytes // BYTES_PER_REDUCER)
        entries = spec.first_uncleanable_offset - spec.first_dirty_offset
        by_entries = entries * _ENTRY_ESTIMATE // self.reducer_memory_bytes
        return self.reducers or max(cores, by_bytes, min(by_entries, spec.source_bytes // _LEAST_BYTES_PER_REDUCER))


@dataclass(frozen=True, slots=True)
class _Work:
    directory: LogDirectory
    log: Log
    spec: RoundSpec
    active_bytes: int


def clean(
    spark: SparkSession,
    targets: Sequence[Target],
    topics_of: Callable[[Path], TopicConfigs],
    clock: Clock,
    options: CleanerOptions,
    *,
    placement: Placement | None = None,
    fs: FileSystem | None = None,
    watch: Watch | None = None,
) -> Iterator[Outcome]:
    """Cleans what `targets` name, by the rules of `cleaner.requested.clean`, with one round a log.

    Raises before anything is changed as that does. An error within one partition is its `CleaningFailure`.
    """
    files = fs or LocalFileSystem()
    topics: dict[Path, TopicConfigs] = {}
    wanted: dict[Path, tuple[list[Path], bool]] = {}
    for target in targets:
        _want(files, target, topics, topics_of, wanted)
    with ExitStack() as stack:
        work: list[_Work] = []
        for log_directory, (named, whole) in wanted.items():
            config_of = topics[log_directory]
            directory = stack.enter_context(
                LogDirectory.open(
                    log_directory,
                    fs=files,
                    clock=clock,
                    config_of=lambda topic, config_of=config_of: config_of.resolve(topic).log,  # type: ignore[misc]
                    writable=True,
                )
            )
            for found in _chosen(directory, named, whole, topics[log_directory], clock, options):
                if isinstance(found, _Work):
                    work.append(found)
                    stack.callback(remove_staging, files, found.spec)
                else:
                    yield found
        yield from _run(spark, work, clock, placement or Placement(), watch)


def _want(
    fs: FileSystem,
    target: Target,
    topics: dict[Path, TopicConfigs],
    topics_of: Callable[[Path], TopicConfigs],
    wanted: dict[Path, tuple[list[Path], bool]],
) -> None:
    """Notes a target by its log directory, after the checks that come before anything is opened."""
    if target.kind is TargetKind.FILE:
        raise NotALogError(target.path, "a partition or a log directory can be cleaned, not a file")
    log_directory = log_directory_of(target)
    if log_directory not in topics:
        check_checkpoints(fs, log_directory)
        topics[log_directory] = topics_of(log_directory)
    named, whole = wanted.get(log_directory, ([], False))
    path = log_directory / target.path.resolve().name
    if target.kind is TargetKind.PARTITION and path not in named:
        name = parse_partition_directory(path.name)
        topic = path.name if name is None else name.topic_partition.topic
        problem = policy_problem(topics[log_directory].resolve(topic), topic)
        if problem:
            raise RefusedError(f"{path}: {problem}; nothing was changed")
        if list_partition(fs, path).format != "kafka":
            raise UnsupportedError(f"{path}: a log of Kafka 0.7 has no keys to clean by")
        named.append(path)
    wanted[log_directory] = (named, whole or target.kind is TargetKind.LOG_DIRECTORY)


def _chosen(
    directory: LogDirectory,
    named: list[Path],
    whole: bool,
    topics: TopicConfigs,
    clock: Clock,
    options: CleanerOptions,
) -> Iterator[_Work | Outcome]:
    for path in named:
        yield _prepared(directory, path, clock, options, named=True)
    for found in list_log_directory(directory.fs, directory.path).live if whole else ():
        if found.path in named:
            continue
        topic = found.topic_partition.topic
        problem = policy_problem(topics.resolve(topic), topic)
        yield Skipped(found.path, problem) if problem else _prepared(directory, found.path, clock, options, named=False)


def _prepared(
    directory: LogDirectory, path: Path, clock: Clock, options: CleanerOptions, *, named: bool
) -> _Work | Outcome:
    """A round, fixed; or why there is none."""
    try:
        log = open_undamaged(directory, path)
        checkpoint = directory.cleaner_offsets.get(log.topic_partition)
        if not named:
            found = log_to_clean(log, checkpoint, clock.now_ms())
            if not found.eligible:
                return Skipped(path, found.why)
        if options.roll and log.segments.active.size:
            log.roll()
        round_: CleaningRound = prepare_round(log, options, clock, checkpoint)
        spec = RoundSpec.of(round_, make_staging(directory.fs, path), os.urandom(_SEED_BYTES))
        check_space(directory.fs, spec)
        return _Work(directory, log, spec, 0 if options.roll else log.segments.active.size)
    except SeglogError as error:
        return CleaningFailure(path, error)


def _run(
    spark: SparkSession, work: list[_Work], clock: Clock, placement: Placement, watch: Watch | None
) -> Iterator[Outcome]:
    cores, all_bytes = cores_of(spark), sum(one.spec.source_bytes for one in work)
    giants = [one for one in work if placement.is_giant(one.spec, all_bytes, cores)]
    others = [one for one in work if one not in giants]
    others.sort(key=lambda one: -one.spec.source_bytes)
    for one, outcome in zip(others, try_tasks(spark, [one.spec for one in others], _whole, watch), strict=True):
        yield _finished(one, [outcome], clock)
    for one in giants:
        try:
            reducers = placement.reducers_for(one.spec, cores)
            outcomes = shuffled(spark, one.spec, reducers, watch, placement.reducer_memory_bytes)
        except SeglogError as error:
            yield CleaningFailure(one.log.directory, error)
            continue
        yield _finished(one, outcomes, clock)


def _whole(spec: RoundSpec) -> TaskOutcome:
    return rewrite_round(LocalFileSystem(), spec, attempt_id())


def _finished(work: _Work, outcomes: list[TaskOutcome], clock: Clock) -> Outcome:
    try:
        result = finish_round(work.log, work.spec, outcomes, clock)
        if parse_partition_directory(work.log.directory.name) is not None:
            work.directory.write_cleaner_offset(work.log.topic_partition, result.end_offset)
    except SeglogError as error:
        return CleaningFailure(work.log.directory, error)
    return Cleaned(work.directory.path, result, work.active_bytes)


# --- the giant ------------------------------------------------------------------------------------------------


def shuffled(
    spark: SparkSession,
    spec: RoundSpec,
    reducers: int,
    watch: Watch | None = None,
    reducer_memory_bytes: int = MEMORY_BYTES,
) -> list[TaskOutcome]:
    """The three stages of one round as one Spark job; what `finish_round` takes."""
    from pyspark.sql.functions import col

    groups = len(spec.groups)
    if not groups:
        return []
    keys: DataFrame = spark.range(0, groups, 1, groups).mapInArrow(partial(_index, spec, reducers), ROW)
    merged = keys.repartitionById(reducers, col("target")).mapInArrow(partial(_merge, spec, reducer_memory_bytes), ROW)
    rewritten = merged.repartitionById(groups, col("target")).mapInArrow(partial(_rewrite, spec), ROW)
    return list(collected(rewritten, watch).values())


def _index(spec: RoundSpec, reducers: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from in_batches(index_group(LocalFileSystem(), spec, number, reducers))


def _merge(spec: RoundSpec, memory_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    found = blobs_of(batches)
    first = next(found, None)
    if first is not None:
        space = MergeSpace(LocalFileSystem(), local_directory(), memory_bytes)
        blobs = (blob for _, blob in chain([first], found))
        yield from in_batches(merge_keys(spec, first[0], blobs, space))


def _rewrite(spec: RoundSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    found = list(blobs_of(batches))
    if found:
        outcome = rewrite_group(LocalFileSystem(), spec, [blob for _, blob in found], attempt_id())
        if outcome is not None:
            yield rows([(found[0][0], packed(outcome))])
