"""The copy of a round: every group's surviving batches into its output (Kafka: Cleaner.cleanSegments, cleanInto).

One of two ways, whose outputs are the same:

- chunk by chunk: one group after the other; while one chunk is written, others are filtered under threads;
- group by group: each group by one thread from its first byte to its fsync, several side by side, with nothing to wait
  for but transactions. A group that meets a transactional batch takes over the tracker of the group before it, when
  that one has been copied (`GroupTracker`).

The second is faster, where groups share out evenly among the threads. With transactions everywhere they would wait for
each other, so where the index has met one the first is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Generic, TypeAlias

from seglog import layout
from seglog.cleaner.indexing import OffsetIndexing
from seglog.cleaner.output import GroupOutput, OutputT, SegmentSummary
from seglog.cleaner.record_filter import FilteredChunk, RecordFilter, held_by
from seglog.cleaner.round import CleaningRound
from seglog.cleaner.stats import CleanerStats
from seglog.cleaner.transactions import TransactionTracker
from seglog.errors import IncompleteError
from seglog.kernels import filter_slots
from seglog.log.indexes import AbortedTransaction
from seglog.log.segment import LogSegment
from seglog.ordered_pool import Account, in_order

_EVEN = 1.1  # the longest load of a thread, in shares of the mean, with which groups are copied side by side
_UNFLUSHED = 8  # groups whose files may wait for the disk, and stay open

# Each group's output and the account of its segments.
_Copied: TypeAlias = list[tuple[GroupOutput[OutputT], list[SegmentSummary]]]


def _wait_for_few(copied: _Copied[OutputT]) -> None:
    """Returns when no more than _UNFLUSHED groups are not on stable storage."""
    if len(copied) > _UNFLUSHED:
        copied[-1 - _UNFLUSHED][0].wait()


class RoundCopy(Generic[OutputT]):
    """Copies all groups of a round. `make` begins a segment at a base offset, as `GroupOutput` wants it.

    `outputs` are those begun so far, in no order: what has to be discarded when the copy fails. `all_begun` is called
    once, beside the work, when each of several groups has begun its first segment.
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

    def run(self) -> _Copied[OutputT]:
        """Each group's output and the account of its segments, in the order of the groups."""
        tied = self._indexing.has_transactions or self._round.options.expire
        copy = self._chunk_by_chunk if tied or not self._groups_share_evenly() else self._group_by_group
        # a thread of its own for fsync: the others have better things to do than to wait for the disk
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
        """Whether threads that take one group after the other end at about the same time."""
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

    # --- chunk by chunk ------------------------------------------------------------------------------------

    def _chunk_by_chunk(self, flusher: Executor) -> _Copied[OutputT]:
        filter_ = filter_of(self._round, self._indexing, self._stats, self._pool)
        copied: _Copied[OutputT] = []
        for group in self._round.groups:
            output = self._begin(group, flusher)
            copy_group(self._round, group, filter_, output, self._stats, self._pool)
            with self._stats.phase("fsync"):
                copied.append((output, output.finish(group[-1].modified_ms, flusher)))
                _wait_for_few(copied)
        check_complete(self._round, self._indexing, int(filter_.ordinals[0]))
        return copied

    # --- group by group ------------------------------------------------------------------------------------

    def _group_by_group(self, flusher: Executor) -> _Copied[OutputT]:
        groups = self._round.groups
        trackers: list[GroupTracker] = []
        for _ in groups:
            trackers.append(GroupTracker(trackers[-1] if trackers else None))
        options = self._round.options
        own_bytes = min(options.chunk_bytes, options.most_chunk_bytes)
        plan = replace(self._round.plan, options=replace(options, jobs=1, chunk_bytes=own_bytes))
        alone = replace(self._round, plan=plan)
        copied: _Copied[OutputT] = []
        records = 0

        def take(group: _CopiedGroup[OutputT]) -> None:
            nonlocal records
            self._stats.add(group.stats)
            copied.append((group.output, group.summaries))
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
            first = self._indexing.ordinals_at(group[0].base_offset)
            filter_.ordinals[:] = first
            output = self._begin(group, flusher)
            copy_group(round_, group, filter_, output, stats, None, account)
            with stats.phase("fsync"):
                summaries = output.finish(group[-1].modified_ms, flusher)
            return _CopiedGroup(output, summaries, int(filter_.ordinals[0]) - first[0], stats)


@dataclass(frozen=True, slots=True)
class _CopiedGroup(Generic[OutputT]):
    """A group's output, the account of its segments, how many dirty records were met, and what was counted."""

    output: GroupOutput[OutputT]
    summaries: list[SegmentSummary]
    dirty_records: int
    stats: CleanerStats


class GroupTracker(TransactionTracker):
    """The tracker of one group of several that are copied side by side.

    It begins where that of the group before ended, for which it waits at the first transactional batch. `with` spans
    the group's copy; that of an earlier group must have begun earlier, or the wait has no end.
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
        """Waits for the groups before, back to the last one that met a transaction, and goes on from its state."""
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
    """Filters a group into its output. Without a pool what is large counts in `account`."""

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
    """Before anything is replaced: the copy must have met the very records that the index had seen."""
    indexed = indexing.offset_map.next_ordinal
    if copied != indexed:
        raise IncompleteError(
            f"{round_.plan.directory}: the log changed while it was cleaned ({indexed} records were indexed,"
            f" {copied} copied); nothing was changed"
        )


def count_without_key(indexing: OffsetIndexing, stats: CleanerStats) -> None:
    """Gives records without a key, which the index had counted, their name."""
    without_key = indexing.offset_map.without_key
    stats.counters[filter_slots.RECORDS_WITHOUT_KEY] += without_key
    stats.counters[filter_slots.RECORDS_SUPERSEDED] -= without_key


def filter_of(
    round_: CleaningRound, indexing: OffsetIndexing, stats: CleanerStats, pool: Executor | None
) -> RecordFilter:
    """The filter of a round whose index is complete."""
    if not round_.options.expire:
        return RecordFilter(round_, indexing, stats)
    remaining = _remaining_transactional(round_, indexing, pool)
    return RecordFilter(round_, indexing, stats, tracker=TransactionTracker(remaining.__contains__))


def _remaining_transactional(round_: CleaningRound, indexing: OffsetIndexing, pool: Executor | None) -> set[int]:
    """Base offsets of the transactional data batches that the round writes.

    Kafka keeps a marker as long as it reads a batch of its transaction, so that it takes one more round to go. To
    expire it in this one, a filter without output tells first which batches will be left.
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
