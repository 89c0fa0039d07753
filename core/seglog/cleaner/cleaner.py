"""One cleaning round, from the offsets to the new segments (Kafka: Cleaner.doClean, Cleaner.cleanSegments).

1. Fix the range, the groups of segments and the horizons (`round.plan_round`).
2. Index the dirty section: which record of each key survives (`indexing`).
3. For every group: decide on batches, filter records, write what is left to a `.cleaned` segment (`copying`,
   `record_filter`, `output`), in the order of the log; fsync it.
4. When every group is complete: swap them, lowest offsets first (`seglog.log.swap`).

All bytes are read and checked before step 4, so a round that meets a corrupt batch leaves the log as it was. A dry run
is steps 1 to 3 with the output counted instead of written, and a run can go on with the plan and the map of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from seglog.cleaner.copying import RoundCopy
from seglog.cleaner.indexing import OffsetIndexing, Step, build_offset_map
from seglog.cleaner.options import CleanerOptions
from seglog.cleaner.output import CleanedOutput, NullOutput, SegmentSummary
from seglog.cleaner.round import CleaningRound, RoundPlan, plan_round, rolled_segments
from seglog.cleaner.stats import CleanerStats, CleaningResult
from seglog.clock import Clock
from seglog.errors import RefusedError
from seglog.log.log import Log
from seglog.log.swap import Replacement
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem
from seglog.storage.room import freeing

_SPACE_SLACK_BYTES = 16 << 20

COUNTING, COPYING = "counting the output", "copying"
# Told when a step of a round begins: the partition, what is done, the bytes that it will read at least.
Begin = Callable[[TopicPartition, str, int], None]


def untold(topic_partition: TopicPartition, step: str, size: int) -> None:
    """Ignores progress."""


@dataclass(frozen=True)
class ForeseenRound:
    """A plan worked out to the byte: the map it was worked out with, what indexing counted, and what a run will do."""

    plan: RoundPlan
    indexing: OffsetIndexing
    indexed: CleanerStats
    result: CleaningResult


def foresee_round(log: Log, plan: RoundPlan, clock: Clock, begin: Begin = untold) -> ForeseenRound:
    """What `apply_plan` would do, with its output counted instead of written. CorruptionError as `apply_plan`."""
    segments = rolled_segments(log) if plan.options.roll else log.segments
    round_ = CleaningRound(plan, log.fs, segments.snapshot(), clock)
    stats = CleanerStats(clock)
    with _threads(plan.options) as pool:
        indexing = index_round(round_, stats, pool, partial(begin, plan.topic_partition))
        indexed = stats.resumed()
        begin(plan.topic_partition, COUNTING, plan.source_bytes)
        summaries = _counted(round_, indexing, stats, pool)
    stats.all_done()
    return ForeseenRound(plan, indexing, indexed, CleaningResult.of(plan, stats, summaries, dry_run=True))


def apply_plan(
    log: Log, plan: RoundPlan, clock: Clock, begin: Begin = untold, foreseen: ForeseenRound | None = None
) -> CleaningResult:
    """Carries a plan out over `log`, which must be writable; the result's `end_offset` is the next first dirty offset.

    A plan that was worked out is carried out with the map of `foreseen`. Raises RefusedError when the log is another
    one than was planned for, or its output has no room on disk; CorruptRecordError or InvalidRecordError for bytes
    that must not be rewritten: in each case the log is as it was, apart from the roll that was planned. The checkpoint
    is the caller's to write.
    """
    roll_as_planned(log, plan)
    round_ = CleaningRound(plan, log.fs, log.segments.snapshot(), clock)
    with _threads(plan.options) as pool:
        if foreseen is None:
            stats = CleanerStats(clock)
            indexing = index_round(round_, stats, pool, partial(begin, plan.topic_partition))
            if not has_ample_room(log.fs, plan):
                # little room: only the exact size of the output tells whether it is enough
                begin(plan.topic_partition, COUNTING, plan.source_bytes)
                summaries = _counted(round_, indexing, CleanerStats(clock), pool)
                check_room(log.fs, plan, sum(summary.size for summary in summaries))
        else:
            stats, indexing = foreseen.indexed.resumed(), foreseen.indexing
            check_room(log.fs, plan, foreseen.result.bytes_written)
        begin(plan.topic_partition, COPYING, plan.source_bytes)
        return _run(log, round_, indexing, stats, pool)


def roll_as_planned(log: Log, plan: RoundPlan) -> None:
    """Rolls the active segment if the plan wants it. RefusedError when the log is another one than was planned for."""
    end, bases = log.log_end_offset, [segment.base_offset for segment in log.segments]
    rolls = plan.options.roll and log.segments.active.size > 0
    sizes = {segment.base_offset: segment.size for segment in log.segments}
    planned = tuple(sizes.get(base, -1) for base in plan.source_bases)
    if (*bases, *([end] if rolls else [])) != plan.bases or planned != plan.sizes:
        raise RefusedError(f"{log.directory}: the log has changed since the round was planned; plan it again")
    if rolls:
        log.roll()


def clean_log(
    log: Log, options: CleanerOptions, clock: Clock, checkpoint: int | None = None, begin: Begin = untold
) -> CleaningResult:
    """One round over `log`, planned and carried out. `checkpoint` is the partition's in cleaner-offset-checkpoint."""
    return apply_plan(log, plan_round(log, options, clock, checkpoint), clock, begin)


@contextmanager
def _threads(options: CleanerOptions) -> Iterator[Executor | None]:
    """A pool for `options.jobs` threads; none for a single one."""
    if options.jobs == 1:
        yield None
        return
    with ThreadPoolExecutor(options.jobs, thread_name_prefix="seglog-cleaner") as pool:
        yield pool


def has_ample_room(fs: FileSystem, plan: RoundPlan) -> bool:
    """Whether the output fits on the disk whatever it turns out to be."""
    return fs.free_bytes(plan.directory) >= 2 * plan.source_bytes + _SPACE_SLACK_BYTES


def check_room(fs: FileSystem, plan: RoundPlan, needed: int) -> None:
    """RefusedError unless `needed` bytes are free."""
    free = fs.free_bytes(plan.directory)
    if free < needed:
        raise RefusedError(
            f"{plan.directory}: cleaning writes {needed} bytes before it can free any, and {free} are free;"
            f" nothing was changed. {freeing(plan.directory.parent, needed)}"
        )


def index_round(
    round_: CleaningRound, stats: CleanerStats, pool: Executor | None, step: Step | None = None
) -> OffsetIndexing:
    """Step 2. `step` is told of each pass over the log."""
    indexing = build_offset_map(round_, stats, pool, step or (lambda _, __: None))
    stats.index_passes, stats.map_entries = indexing.passes, indexing.entries
    stats.most_map_entries = indexing.most_entries
    stats.index_done()
    return indexing


def _counted(
    round_: CleaningRound, indexing: OffsetIndexing, stats: CleanerStats, pool: Executor | None
) -> list[SegmentSummary]:
    """Runs all groups into nowhere."""
    interval = round_.plan.bounds.index_interval_bytes
    copy = RoundCopy(round_, indexing, stats, pool, lambda base_offset: NullOutput(base_offset, interval))
    return [summary for _, summaries in copy.run() for summary in summaries]


def _run(
    log: Log, round_: CleaningRound, indexing: OffsetIndexing, stats: CleanerStats, pool: Executor | None
) -> CleaningResult:
    """Steps 3 and 4. Whatever goes wrong before the first swap, the `.cleaned` files are removed again."""
    directory = round_.plan.directory
    name_all = partial(round_.fs.sync_directory, directory)  # the swap need not wait for it
    copy = RoundCopy(round_, indexing, stats, pool, cleaned_segments(round_, directory), name_all)
    try:
        copied = copy.run()
        with stats.phase("fsync"):
            for output in copy.outputs:
                output.wait()
    except BaseException:
        for output in copy.outputs:
            for part in output.parts:
                part.discard()
        raise
    with stats.phase("swap"):
        groups = zip(copied, round_.groups, strict=True)
        replacements = [Replacement([part.segment for part in output.parts], old) for (output, _), old in groups]
        log.replace_segments(replacements, named=all(len(output.parts) == 1 for output in copy.outputs))
    stats.all_done()
    summaries = [summary for _, found in copied for summary in found]
    return CleaningResult.of(round_.plan, stats, summaries, dry_run=False)


def cleaned_segments(round_: CleaningRound, directory: Path) -> Callable[[int], CleanedOutput]:
    """Begins a `.cleaned` segment in `directory` at a base offset."""
    return lambda base_offset: CleanedOutput(round_.fs, directory, base_offset, round_.plan.bounds.index_interval_bytes)
