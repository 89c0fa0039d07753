"""One cleaning round, from the offsets to the new segments (Kafka: Cleaner.doClean, Cleaner.cleanSegments).

1. Fix the range, the groups of segments and the horizons (`round.prepare_round`).
2. Index the dirty section: which record of each key survives (`indexing`).
3. For every group: decide on batches, filter records, write what is left to a `.cleaned` segment (`copying`,
   `record_filter`, `output`), in the order of the log; fsync it.
4. When every group is complete: swap group after group, lowest offsets first (`seglog.log.swap`).

All bytes are read and checked before step 4, so a round that meets a corrupt batch leaves the log as it was. A plan is
steps 1 to 3 with the output counted instead of written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from seglog.cleaner.copying import RoundCopy
from seglog.cleaner.indexing import OffsetIndexing, build_offset_map
from seglog.cleaner.options import CleanerOptions
from seglog.cleaner.output import CleanedOutput, GroupOutput, NullOutput, SegmentSummary
from seglog.cleaner.plan import CleaningPlan, CleaningResult
from seglog.cleaner.round import CleaningRound, prepare_round, require_rollable
from seglog.cleaner.stats import CleanerStats
from seglog.clock import Clock
from seglog.errors import RefusedError
from seglog.log.log import Log
from seglog.model import TopicPartition

_SPACE_SLACK_BYTES = 16 << 20

INDEXING, COUNTING, COPYING = "indexing", "counting the output", "copying"
# Told when a step of a round begins: the partition, what is done, the bytes that it will read at least.
Begin = Callable[[TopicPartition, str, int], None]


def untold(topic_partition: TopicPartition, step: str, size: int) -> None:
    """Nobody wants to know."""


def plan_round(
    log: Log, options: CleanerOptions, clock: Clock, checkpoint: int | None = None, begin: Begin = untold
) -> CleaningPlan:
    """What `clean_log` would do now, worked out to the byte; nothing is changed.

    `checkpoint` is the partition's offset in cleaner-offset-checkpoint. CorruptionError as `clean_log`.
    """
    round_ = prepare_round(log, options, clock, checkpoint)
    stats = CleanerStats(clock)
    with _threads(options) as pool:
        begin(log.topic_partition, INDEXING, round_.dirty_bytes)
        indexing = index_round(round_, stats, pool)
        begin(log.topic_partition, COUNTING, round_.source_bytes)
        summaries = _counted(round_, indexing, stats, pool)
    stats.all_done()
    return CleaningPlan(round_, indexing, CleaningResult.of(round_, indexing, stats, summaries, dry_run=True))


def apply_plan(log: Log, plan: CleaningPlan, clock: Clock) -> CleaningResult:
    """Writes what the plan predicts, with the map it has built. RefusedError when the log has changed since."""
    round_ = plan.round
    if round_.options.roll and log.segments.active.size:
        log.roll()
    if [s.base_offset for s in log.segments] != [s.base_offset for s in round_.segments]:
        raise RefusedError(f"{log.directory}: the log has changed since the plan was made")
    if tuple(segment.size for segment in log.segments)[: len(round_.sizes)] != round_.sizes:
        raise RefusedError(f"{log.directory}: the log has changed since the plan was made")
    check_room(round_, plan.result.bytes_written)
    stats = CleanerStats(clock)
    stats.map_bytes_read, stats.map_records_read = plan.result.stats.map_bytes_read, plan.result.stats.map_records_read
    with _threads(round_.options) as pool:
        return _run(log, round_, plan.indexing, stats, pool)


def clean_log(
    log: Log, options: CleanerOptions, clock: Clock, checkpoint: int | None = None, begin: Begin = untold
) -> CleaningResult:
    """One round over `log`, which must be writable; the result's `end_offset` is the next first dirty offset.

    Raises CorruptRecordError or InvalidRecordError for bytes that must not be rewritten, RefusedError when the output
    has no room on disk: in each case the log is as it was. The checkpoint is the caller's to write.
    """
    if options.roll and log.segments.active.size:
        require_rollable(log)
        log.roll()
    round_ = prepare_round(log, options, clock, checkpoint)
    stats = CleanerStats(clock)
    with _threads(options) as pool:
        begin(log.topic_partition, INDEXING, round_.dirty_bytes)
        indexing = index_round(round_, stats, pool)
        if not has_ample_room(round_):
            # little room: only the exact size of the output tells whether it is enough
            begin(log.topic_partition, COUNTING, round_.source_bytes)
            summaries = _counted(round_, indexing, CleanerStats(clock), pool)
            check_room(round_, sum(summary.size for summary in summaries))
        begin(log.topic_partition, COPYING, round_.source_bytes)
        return _run(log, round_, indexing, stats, pool)


@contextmanager
def _threads(options: CleanerOptions) -> Iterator[Executor | None]:
    """A pool of `options.jobs` threads, or none for a single one."""
    if options.jobs == 1:
        yield None
        return
    with ThreadPoolExecutor(options.jobs, thread_name_prefix="seglog-cleaner") as pool:
        yield pool


def has_ample_room(round_: CleaningRound) -> bool:
    """Whether the output fits on the disk whatever it turns out to be."""
    return round_.fs.free_bytes(round_.directory) >= 2 * round_.source_bytes + _SPACE_SLACK_BYTES


def check_room(round_: CleaningRound, needed: int) -> None:
    """RefusedError unless `needed` bytes are free."""
    free = round_.fs.free_bytes(round_.directory)
    if free < needed:
        raise RefusedError(
            f"{round_.directory}: cleaning writes {needed} bytes before it can free any, and {free} are free;"
            " nothing was changed"
        )


def index_round(round_: CleaningRound, stats: CleanerStats, pool: Executor | None) -> OffsetIndexing:
    """Step 2."""
    indexing = build_offset_map(round_, stats, pool)
    stats.index_done()
    return indexing


def _counted(
    round_: CleaningRound, indexing: OffsetIndexing, stats: CleanerStats, pool: Executor | None
) -> list[SegmentSummary]:
    """Runs all groups into nowhere."""
    interval = round_.bounds.index_interval_bytes
    copy = RoundCopy(round_, indexing, stats, pool, lambda base_offset: NullOutput(base_offset, interval))
    return [summary for _, summaries in copy.run() for summary in summaries]


def _run(
    log: Log, round_: CleaningRound, indexing: OffsetIndexing, stats: CleanerStats, pool: Executor | None
) -> CleaningResult:
    """Steps 3 and 4. Whatever goes wrong before the first swap, the `.cleaned` files are removed again."""
    copy = RoundCopy(round_, indexing, stats, pool, cleaned_segments(round_, round_.directory))
    try:
        copied = copy.run()
        with stats.phase("fsync"):
            for output in copy.outputs:
                output.wait()
    except BaseException:
        for part in _parts(copy.outputs):
            part.discard()
        raise
    with stats.phase("swap"):
        for (output, _), group in zip(copied, round_.groups, strict=True):
            log.replace_segments([part.segment for part in output.parts], group)
    stats.all_done()
    summaries = [summary for _, found in copied for summary in found]
    return CleaningResult.of(round_, indexing, stats, summaries, dry_run=False)


def cleaned_segments(round_: CleaningRound, directory: Path) -> Callable[[int], CleanedOutput]:
    """Begins a `.cleaned` segment in `directory` at a base offset."""
    return lambda base_offset: CleanedOutput(round_.fs, directory, base_offset, round_.bounds.index_interval_bytes)


def _parts(outputs: Iterable[GroupOutput[CleanedOutput]]) -> Iterator[CleanedOutput]:
    return (part for output in outputs for part in output.parts)
