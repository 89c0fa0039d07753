"""One cleaning round, from the offsets to the new segments (Kafka: Cleaner.doClean, cleanSegments, cleanInto).

1. Fix the range, the groups of segments and the horizons (`round.plan_round`).
2. Index the dirty section: which record of each key survives (`key_index`).
3. For every group, in the order of the log: decide on batches, filter records (`record_filter`), write the rest to a
   `.cleaned` segment (`output`) and fsync it.
4. When every group is complete, swap them in, lowest offsets first (`seglog.log.swap`).

All bytes are read and checked before step 4, so a round that meets a corrupt batch leaves the log unchanged. A dry run
is steps 1 to 3 with the output counted instead of written. A run can go on with the plan and the map of a dry run.

Step 3 copies groups in one of two ways, with the same output (`RoundCopy`):

- Chunk by chunk: one group after the other. While one chunk is written, threads filter others.
- Group by group: one thread takes each group from its first byte to its fsync, several side by side. They wait for
  nothing but transactions: a group that meets a transactional batch takes over the tracker of the group before it once
  that one is copied (`GroupTracker`).

Group by group is faster if the groups share out evenly among the threads. With transactions everywhere the groups
would wait for each other, so the round goes chunk by chunk if the index has met a transaction.

The other modules, in the order in which to read them: `round` has the options and the plan. `chunks` reads segments,
checks them and decompresses; `opened_payloads` keeps what was decompressed. `offset_map` and `key_index` are step 2,
`record_filter`, `legacy_filter` and `output` step 3. `manager` chooses the next log for a cleaner that runs for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Generic

from seglog import layout
from seglog.cleaner.key_index import OffsetIndexing, Step, TransactionTracker, build_offset_map
from seglog.cleaner.output import (
    CleanedOutput,
    CleanerStats,
    CleaningResult,
    GroupOutput,
    NullOutput,
    OutputT,
    SegmentSummary,
)
from seglog.cleaner.record_filter import FilteredChunk, RecordFilter, held_by
from seglog.cleaner.round import CleanerOptions, CleaningRound, RoundPlan, plan_round, rolled_segments
from seglog.clock import Clock
from seglog.errors import IncompleteError, RefusedError
from seglog.kernels import filter_slots
from seglog.log.indexes import AbortedTransaction
from seglog.log.log import Log
from seglog.log.segment import LogSegment
from seglog.log.swap import Replacement
from seglog.model import TopicPartition
from seglog.ordered_pool import Account, in_order
from seglog.storage.filesystem import FileSystem
from seglog.storage.room import CLEANING_SLACK_BYTES, require_room_to_clean

_EVEN = 1.1  # groups are copied side by side if no thread's load exceeds this multiple of the mean
_UNFLUSHED = 8  # groups whose files may be open and waiting for the disk

COUNTING, COPYING = "counting the output", "copying"
# Called when a step of a round begins, with the partition, the step's name, and the least bytes that it will read.
Begin = Callable[[TopicPartition, str, int], None]


def ignore_step(topic_partition: TopicPartition, step: str, size: int) -> None:
    """Ignores progress."""


def clean_log(
    log: Log, options: CleanerOptions, clock: Clock, checkpoint: int | None = None, begin: Begin = ignore_step
) -> CleaningResult:
    """Plans and runs one round over `log`. `checkpoint` is the partition's entry in cleaner-offset-checkpoint."""
    return apply_plan(log, plan_round(log, options, clock, checkpoint), clock, begin)


@dataclass(frozen=True)
class ForeseenRound:
    """A dry run's outcome: the plan, its index, the counts of indexing, and the result that a run will have."""

    plan: RoundPlan
    indexing: OffsetIndexing
    indexed: CleanerStats
    result: CleaningResult


def foresee_round(log: Log, plan: RoundPlan, clock: Clock, begin: Begin = ignore_step) -> ForeseenRound:
    """Does what `apply_plan` does, but counts the output instead of writing it. Raises CorruptionError as it does."""
    segments = rolled_segments(log) if plan.options.roll else log.segments
    round_ = CleaningRound(plan, log.fs, segments.snapshot(), clock)
    stats = CleanerStats(clock)
    with _threads(plan) as pool:
        indexing = index_round(round_, stats, pool, partial(begin, plan.topic_partition))
        indexed = stats.resumed()
        begin(plan.topic_partition, COUNTING, plan.source_bytes)
        summaries = _counted(round_, indexing, stats, pool)
    stats.all_done()
    return ForeseenRound(plan, indexing, indexed, CleaningResult.of(plan, stats, summaries, dry_run=True))


def apply_plan(
    log: Log, plan: RoundPlan, clock: Clock, begin: Begin = ignore_step, foreseen: ForeseenRound | None = None
) -> CleaningResult:
    """Carries out a plan over `log`, which must be writable. The result's `end_offset` is the next first dirty offset.

    With `foreseen`, the round uses that dry run's index. Raises RefusedError if the log has changed since it was
    planned or the disk has no room for the output, CorruptRecordError or InvalidRecordError for bytes that must not be
    rewritten. In each case the log is unchanged except for a planned roll. The caller writes the checkpoint.
    """
    roll_as_planned(log, plan)
    round_ = CleaningRound(plan, log.fs, log.segments.snapshot(), clock)
    with _threads(plan) as pool:
        if foreseen is None:
            stats = CleanerStats(clock)
            indexing = index_round(round_, stats, pool, partial(begin, plan.topic_partition))
            if not has_ample_room(log.fs, plan):
                # room is scarce: only the exact size of the output tells whether it is enough
                begin(plan.topic_partition, COUNTING, plan.source_bytes)
                summaries = _counted(round_, indexing, CleanerStats(clock), pool)
                require_room_to_clean(log.fs, plan.directory, sum(summary.size for summary in summaries))
        else:
            stats, indexing = foreseen.indexed.resumed(), foreseen.indexing
            require_room_to_clean(log.fs, plan.directory, foreseen.result.bytes_written)
        begin(plan.topic_partition, COPYING, plan.source_bytes)
        return _run(log, round_, indexing, stats, pool)


def roll_as_planned(log: Log, plan: RoundPlan) -> None:
    """Rolls the active segment if the plan says so. Raises RefusedError if the log has changed since the plan."""
    end, bases = log.log_end_offset, [segment.base_offset for segment in log.segments]
    rolls = plan.options.roll and log.segments.active.size > 0
    sizes = {segment.base_offset: segment.size for segment in log.segments}
    planned = tuple(sizes.get(base, -1) for base in plan.source_bases)
    if (*bases, *([end] if rolls else [])) != plan.bases or planned != plan.sizes:
        raise RefusedError(f"{log.directory}: the log has changed since the round was planned; plan it again")
    if rolls:
        log.roll()


@contextmanager
def _threads(plan: RoundPlan) -> Iterator[Executor | None]:
    """Yields a pool of `plan.options.jobs` threads, or None for a single one, or if a single chunk is all there is."""
    if plan.options.jobs == 1 or plan.source_bytes <= plan.options.chunk_bytes:
        yield None
        return
    with ThreadPoolExecutor(plan.options.jobs, thread_name_prefix="seglog-cleaner") as pool:
        yield pool


def has_ample_room(fs: FileSystem, plan: RoundPlan) -> bool:
    """True if the output fits on the disk, however large it turns out to be."""
    return fs.free_bytes(plan.directory) >= 2 * plan.source_bytes + CLEANING_SLACK_BYTES


def index_round(
    round_: CleaningRound, stats: CleanerStats, pool: Executor | None, step: Step | None = None
) -> OffsetIndexing:
    """Runs step 2. Calls `step` at the start of each pass over the log."""
    indexing = build_offset_map(round_, stats, pool, step or (lambda _, __: None))
    stats.index_passes, stats.map_entries = indexing.passes, indexing.entries
    stats.most_map_entries = indexing.most_entries
    stats.index_done()
    return indexing


def _counted(
    round_: CleaningRound, indexing: OffsetIndexing, stats: CleanerStats, pool: Executor | None
) -> list[SegmentSummary]:
    """Runs step 3 with the output counted instead of written."""
    interval = round_.plan.bounds.index_interval_bytes
    copy = RoundCopy(round_, indexing, stats, pool, lambda base_offset: NullOutput(base_offset, interval))
    return [summary for output in copy.run() for summary in output.summaries]


def _run(
    log: Log, round_: CleaningRound, indexing: OffsetIndexing, stats: CleanerStats, pool: Executor | None
) -> CleaningResult:
    """Runs steps 3 and 4. Removes the `.cleaned` files if anything fails before the first swap."""
    directory = round_.plan.directory
    sync_names = partial(round_.fs.sync_directory, directory)  # now, so that the swap need not wait for it
    copy = RoundCopy(round_, indexing, stats, pool, cleaned_segments(round_, directory), sync_names)
    try:
        copied = copy.run()
        with stats.phase("fsync"):
            for output in copied:
                output.wait()
    except BaseException:
        for output in copy.outputs:
            for part in output.parts:
                part.discard()
        raise
    with stats.phase("swap"):
        groups = zip(copied, round_.groups, strict=True)
        replacements = [Replacement([part.segment for part in output.parts], old) for output, old in groups]
        log.replace_segments(replacements, named=all(len(output.parts) == 1 for output in copied))
    stats.all_done()
    summaries = [summary for output in copied for summary in output.summaries]
    return CleaningResult.of(round_.plan, stats, summaries, dry_run=False)


def cleaned_segments(round_: CleaningRound, directory: Path) -> Callable[[int], CleanedOutput]:
    """Returns a function that begins a `.cleaned` segment in `directory` at a base offset."""
    return lambda base_offset: CleanedOutput(round_.fs, directory, base_offset, round_.plan.bounds.index_interval_bytes)


# --- step 3: copying


def _wait_for_few(copied: list[GroupOutput[OutputT]]) -> None:
    """Waits until at most _UNFLUSHED groups are not on stable storage."""
    if len(copied) > _UNFLUSHED:
        copied[-1 - _UNFLUSHED].wait()


class RoundCopy(Generic[OutputT]):
    """Copies all groups of a round. `make` begins a segment at a base offset, as for `GroupOutput`.

    `outputs` are those begun so far, in no order; they must be discarded if the copy fails. If there are several
    groups, `all_begun` is called once, on the flushing thread, after each has begun its first segment.
    """

    def __init__(
        self,
        round_: CleaningRound,
        indexing: OffsetIndexing,
        stats: CleanerStats,
        pool: Executor | None,
        make: Callable[[int], OutputT],
        all_begun: Callable[[], None] = lambda: None,
    ) -> None:
        self._round, self._indexing, self._stats, self._pool, self._make = round_, indexing, stats, pool, make
        self._all_begun, self._begun = all_begun, count(1)
        self._last_begun: Future[None] | None = None
        self.outputs: list[GroupOutput[OutputT]] = []

    def run(self) -> list[GroupOutput[OutputT]]:
        """Copies the groups. Returns their finished outputs, in the order of the groups."""
        tied = self._indexing.has_transactions or self._round.options.expire
        copy = self._chunk_by_chunk if tied or not self._groups_share_evenly() else self._group_by_group
        # fsync has its own thread, so that the others need not wait for the disk
        flusher = ThreadPoolExecutor(1, thread_name_prefix="seglog-flush")
        try:
            copied = copy(flusher)
        finally:
            with self._stats.phase("fsync"):
                flusher.shutdown()
        if self._last_begun is not None:
            self._last_begun.result()
        count_without_key(self._indexing, self._stats)
        return copied

    def _groups_share_evenly(self) -> bool:
        """True if threads that take one group after the other would end at about the same time."""
        loads = [0] * self._round.options.jobs
        for group in self._round.groups:
            lightest = loads.index(min(loads))
            loads[lightest] += sum(segment.size for segment in group)
        return len(loads) > 1 and max(loads) <= _EVEN * sum(loads) / len(loads)

    def _begin(self, group: tuple[LogSegment, ...], flusher: Executor) -> GroupOutput[OutputT]:
        output = GroupOutput(self._make, group[0].base_offset, self._round.plan.bounds)
        self.outputs.append(output)
        if next(self._begun) == len(self._round.groups) > 1:
            self._last_begun = flusher.submit(self._all_begun)
        return output

    def _chunk_by_chunk(self, flusher: Executor) -> list[GroupOutput[OutputT]]:
        filter_ = filter_of(self._round, self._indexing, self._stats, self._pool)
        copied: list[GroupOutput[OutputT]] = []
        for group in self._round.groups:
            output = self._begin(group, flusher)
            copy_group(self._round, group, filter_, output, self._stats, self._pool)
            with self._stats.phase("fsync"):
                output.finish(group[-1].modified_ms, flusher)
                copied.append(output)
                _wait_for_few(copied)
        check_complete(self._round, self._indexing, int(filter_.ordinals[filter_slots.DIRTY_ORDINAL]))
        return copied

    def _group_by_group(self, flusher: Executor) -> list[GroupOutput[OutputT]]:
        groups = self._round.groups
        trackers: list[GroupTracker] = []
        for _ in groups:
            trackers.append(GroupTracker(trackers[-1] if trackers else None))
        options = self._round.options
        own_bytes = min(options.chunk_bytes, options.most_chunk_bytes)
        plan = replace(self._round.plan, options=replace(options, jobs=1, chunk_bytes=own_bytes))
        alone = replace(self._round, plan=plan)
        copied: list[GroupOutput[OutputT]] = []
        records = 0

        def take(group: _CopiedGroup[OutputT]) -> None:
            nonlocal records
            self._stats.add(group.stats)
            copied.append(group.output)
            records += group.dirty_records
            _wait_for_few(copied)

        work, items = partial(self._copy_one, alone, flusher), zip(groups, trackers, strict=True)
        in_order(self._pool, options.jobs, work, items, options.chunks_ahead, take)
        check_complete(self._round, self._indexing, records)
        return copied

    def _copy_one(
        self,
        round_: CleaningRound,
        flusher: Executor,
        item: tuple[tuple[LogSegment, ...], GroupTracker],
        account: Account,
    ) -> _CopiedGroup[OutputT]:
        group, tracker = item
        with tracker:
            stats = CleanerStats(round_.clock)
            filter_ = RecordFilter(round_, self._indexing, stats, tracker=tracker)
            filter_.ordinals[:] = self._indexing.ordinals_at(group[0].base_offset)
            first = int(filter_.ordinals[filter_slots.DIRTY_ORDINAL])
            output = self._begin(group, flusher)
            copy_group(round_, group, filter_, output, stats, None, account)
            with stats.phase("fsync"):
                output.finish(group[-1].modified_ms, flusher)
            return _CopiedGroup(output, int(filter_.ordinals[filter_slots.DIRTY_ORDINAL]) - first, stats)


@dataclass(frozen=True, slots=True)
class _CopiedGroup(Generic[OutputT]):
    """A group that was copied by one thread: its output, its number of dirty records, and its counts."""

    output: GroupOutput[OutputT]
    dirty_records: int
    stats: CleanerStats


class GroupTracker(TransactionTracker):
    """The tracker of one of several groups that are copied side by side.

    It starts in the final state of the previous group's tracker, for which it waits at the first transactional batch.
    Use it in a `with` block around the group's copy. An earlier group's copy must have begun earlier, or the wait never
    ends.
    """

    def __init__(self, previous: GroupTracker | None) -> None:
        super().__init__()
        self._previous = previous
        self._announced: list[AbortedTransaction] = []
        self._ended: Future[None] = Future()

    def __enter__(self) -> GroupTracker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        if self._previous is None:
            super().add_aborted(transactions)
        else:
            self._announced += transactions

    def on_batch(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        self._take_over()
        return super().on_batch(producer_id, base_offset, last_offset)

    def on_marker(self, producer_id: int, last_offset: int, aborted: bool) -> bool:
        self._take_over()
        return super().on_marker(producer_id, last_offset, aborted)

    def _take_over(self) -> None:
        """Waits for the previous groups, back to the last one that met a transaction, and takes over its state."""
        announced: list[list[AbortedTransaction]] = []
        tracker: GroupTracker = self
        while tracker._previous is not None:
            announced.append(tracker._announced)
            tracker = tracker._previous
            tracker._ended.result()
        if tracker is not self:
            self._previous = None
            self.take_state(tracker)
        for transactions in reversed(announced):
            super().add_aborted(transactions)


def copy_group(
    round_: CleaningRound,
    group: tuple[LogSegment, ...],
    filter_: RecordFilter,
    output: GroupOutput[OutputT],
    stats: CleanerStats,
    pool: Executor | None,
    account: Account | None = None,
) -> None:
    """Filters a group into its output. Without a pool, large data counts in `account`."""

    def write(filtered: FilteredChunk) -> None:
        _write(filtered, output, stats)
        filter_.give_back(filtered)
        if account is not None:
            account.give(filtered.held_bytes)

    options = round_.options
    tasks, work = filter_.tasks(group, account), filter_.filter_chunk
    in_order(pool, options.jobs, work, tasks, options.chunks_ahead, write, held=held_by, account=account)


def _write(filtered: FilteredChunk, output: GroupOutput[OutputT], stats: CleanerStats) -> None:
    stats.bytes_read += filtered.bytes_read
    stats.bytes_unread += filtered.bytes_unread
    stats.counters += filtered.counters
    with stats.phase("write"):
        for batches, data in filtered.pieces:
            output.append(batches, data)
            stats.bytes_written += len(data)
            stats.batches_written += len(batches)
        output.append_aborted(filtered.aborted)


def check_complete(round_: CleaningRound, indexing: OffsetIndexing, copied: int) -> None:
    """Raises IncompleteError unless the copy met exactly the records that were indexed. Runs before any swap."""
    indexed = indexing.offset_map.next_ordinal
    if copied != indexed:
        raise IncompleteError(
            f"{round_.plan.directory}: the log changed while it was cleaned ({indexed} records were indexed,"
            f" {copied} copied); nothing was changed"
        )


def count_without_key(indexing: OffsetIndexing, stats: CleanerStats) -> None:
    """Moves the records without a key, which the index counted, from the superseded ones to their own counter."""
    without_key = indexing.offset_map.without_key
    stats.counters[filter_slots.RECORDS_WITHOUT_KEY] += without_key
    stats.counters[filter_slots.RECORDS_SUPERSEDED] -= without_key


def filter_of(
    round_: CleaningRound, indexing: OffsetIndexing, stats: CleanerStats, pool: Executor | None
) -> RecordFilter:
    """Returns the record filter of a round whose index is complete."""
    if not round_.options.expire:
        return RecordFilter(round_, indexing, stats)
    remaining = _remaining_transactional(round_, indexing, pool)
    return RecordFilter(round_, indexing, stats, tracker=TransactionTracker(remaining.__contains__))


def _remaining_transactional(round_: CleaningRound, indexing: OffsetIndexing, pool: Executor | None) -> set[int]:
    """Returns the base offsets of the transactional data batches that the round writes.

    Kafka keeps a marker as long as it reads a batch of its transaction, so the marker goes one round later. To expire
    it in the same round, a first filter without output finds the batches that remain.
    """
    scout = CleanerStats(round_.clock)
    filter_ = RecordFilter(round_, indexing, scout, recompress=False)
    remaining: set[int] = set()

    def note(filtered: FilteredChunk) -> None:
        for batches, _ in filtered.pieces:
            kind = batches["attributes"] & (layout.TRANSACTIONAL_MASK | layout.CONTROL_MASK)
            remaining.update(batches["base_offset"][kind == layout.TRANSACTIONAL_MASK].tolist())

    options = round_.options
    for group in round_.groups:
        tasks, work = filter_.tasks(group), filter_.filter_chunk
        in_order(pool, options.jobs, work, tasks, options.chunks_ahead, note, held=held_by)
    return remaining
