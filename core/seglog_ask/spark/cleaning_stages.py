"""The three stages that clean one partition by many tasks, as plain functions without Spark (Kafka: Cleaner.doClean).

1. `index_group`, one task per group of segments: an offset map over the group's dirty records finds the newest one of
   each key; keys go to reducers by hash. All records before the first dirty offset go there too.
2. `merge_keys`, one task per reducer: finds the newest record of each key over all groups, and the clean records whose
   key is dirty (`key_merge`). The answers go back to the groups as ordinals. Reducer 0 also carries the open
   transactions from group to group.
3. `rewrite_group`, one task per group: turns ordinals into the bit sets that the single-node cleaner's copy reads, and
   that same copy (`cleaner.record_filter`, `cleaner.output`) writes the group to a staging directory of the attempt.

`rewrite_round` is the alternative: one task for the whole round.

The files are those of `clean_log`: the same rule decides which record survives, and the same code writes it. A task may
run twice, or twice at the same time: each attempt has its own directory, and the driver uses one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.cleaner.chunks import check_chunk, read_chunks
from seglog.cleaner.cleaner import (
    check_complete,
    cleaned_segments,
    copy_group,
    count_without_key,
    filter_of,
    index_round,
)
from seglog.cleaner.key_index import OffsetIndexing, TransactionTracker, track_batches
from seglog.cleaner.offset_map import OffsetMap
from seglog.cleaner.output import CleanerStats, GroupOutput, RoundCounts
from seglog.cleaner.record_filter import RecordFilter
from seglog.cleaner.round import CleanerOptions, CleaningRound
from seglog.clock import SystemClock
from seglog.errors import IncompleteError, SeglogError
from seglog.format.decoder import control_batches
from seglog.kernels import filter_slots
from seglog.log.segments import collect_aborted
from seglog.scan.segment_scan import Chunk
from seglog.storage.files import remove_tree
from seglog.storage.filesystem import FileSystem
from seglog_ask.spark.cleaning_round import RoundSpec, StagedGroup, TaskOutcome, check_unchanged
from seglog_ask.spark.key_merge import KeyMerge, MergeSpace
from seglog_ask.spark.keys import (
    CLEAN,
    ENTRIES,
    SURVIVORS,
    Bytes,
    CleanKeys,
    DirtyKeys,
    by_reducer,
    object_blob,
    opened,
)
from seglog_stores.formats.log_manifest import ManifestSegment

_NO_DISK = Path()  # without a delivery

Message = tuple[int, bytes]  # target (a reducer, or a group), blob


@dataclass(frozen=True, slots=True)
class GroupIndex:
    """The facts about a group that stage 1 collects besides its keys.

    `aborted` are base offsets of batches that were not mapped. `observed` and `committed` are the producers with an
    open transaction at the group's end, as `TransactionTracker` keeps them, assuming none was open at its start. A
    marker was read for the producers in `ended_aborted` and `ended_committed`.
    """

    number: int
    dirty_records: int
    clean_records: int
    without_key: int
    aborted: tuple[int, ...]
    observed: frozenset[int]
    committed: frozenset[int]
    ended_aborted: frozenset[int]
    ended_committed: frozenset[int]
    counts: RoundCounts


@dataclass(frozen=True, slots=True)
class GroupStart:
    """A group's index, and the transactions open before the group: what stage 3 starts from."""

    index: GroupIndex
    observed: frozenset[int]
    committed: frozenset[int]


class _MarkerTracker(TransactionTracker):
    """A tracker that also remembers the producers whose markers it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.ended_aborted: set[int] = set()
        self.ended_committed: set[int] = set()

    def on_marker(self, producer_id: int, last_offset: int, aborted: bool) -> bool:
        (self.ended_aborted if aborted else self.ended_committed).add(producer_id)
        return super().on_marker(producer_id, last_offset, aborted)


# --- stage 1 --------------------------------------------------------------------------------------------------


def index_group(fs: FileSystem, spec: RoundSpec, number: int, reducers: int) -> Iterator[Message]:
    """Yields the keys of a group by reducer, then its `GroupIndex` for reducer 0; in case of an error, that instead."""
    try:
        yield from _indexed(spec.files(fs), spec, number, reducers)
    except SeglogError as error:
        yield 0, object_blob(error)


def _indexed(fs: FileSystem, spec: RoundSpec, number: int, reducers: int) -> Iterator[Message]:
    round_, plan = spec.round(fs), spec.plan
    exchange = spec.hash_seeds, spec.hash_mask, reducers
    tracker = _MarkerTracker()
    tracker.add_aborted(collect_aborted(round_.segments, 0, plan.log_start_offset, plan.first_uncleanable_offset))
    dirty, clean = DirtyKeys(plan.options, plan.first_mapped_offset), CleanKeys(plan.first_mapped_offset)
    aborted: list[int] = []
    counts = RoundCounts()
    for segment in round_.groups[0]:
        for chunk in read_chunks(segment, 0, plan.end_of(segment), plan.options):
            check_chunk(chunk)
            is_dirty = chunk.batches["last_offset"] >= plan.first_mapped_offset
            skipped = _aborted_batches(chunk, is_dirty, tracker, aborted) | ~is_dirty
            control = control_batches(chunk.batches)
            for keys in clean.add(chunk, control, is_dirty):
                yield from by_reducer(CLEAN, number, keys, *exchange)
            if is_dirty.any():
                counts.map_bytes_read += chunk.size
                for keys in dirty.add(chunk, skipped | control):
                    _count_map(counts, len(keys))
                    yield from by_reducer(ENTRIES, number, keys, *exchange)
        check_unchanged(fs, segment.path, spec.sources[segment.base_offset])
    for kind, keys in ((CLEAN, clean.rest()), (ENTRIES, dirty.rest())):
        if kind == ENTRIES:
            _count_map(counts, len(keys))
        yield from by_reducer(kind, number, keys, *exchange)
    counts.map_records_read = dirty.records
    index = GroupIndex(
        number,
        dirty.records,
        clean.records,
        dirty.without_key,
        tuple(aborted),
        frozenset(tracker.observed),
        frozenset(tracker.committed),
        frozenset(tracker.ended_aborted),
        frozenset(tracker.ended_committed),
        counts,
    )
    yield 0, object_blob(index)


def _count_map(counts: RoundCounts, entries: int) -> None:
    """Counts the entries of a map that are sent."""
    counts.map_entries += entries
    counts.most_map_entries = max(counts.most_map_entries, entries)


def _aborted_batches(chunk: Chunk, dirty: np.ndarray, tracker: TransactionTracker, aborted: list[int]) -> np.ndarray:
    """Returns a mask of the dirty data batches of aborted transactions, and adds their base offsets to `aborted`."""
    found = np.zeros(len(chunk.batches), dtype=bool)
    for i, discard in track_batches(chunk, tracker):
        if discard and dirty[i] and not chunk.batches[i]["attributes"] & layout.CONTROL_MASK:
            found[i] = True
            aborted.append(int(chunk.batches[i]["base_offset"]))
    return found


# --- stage 2 --------------------------------------------------------------------------------------------------


def merge_keys(spec: RoundSpec, reducer: int, blobs: Iterable[Bytes], space: MergeSpace) -> Iterator[Message]:
    """Yields the ordinals that survive, and those superseded, by group; from reducer 0 also every group's state."""
    indexes: dict[int, GroupIndex] = {}
    with closing(KeyMerge(spec, space)) as merge:
        for data in blobs:
            found = opened(data)
            if isinstance(found, SeglogError):
                yield 0, object_blob(found)
            elif isinstance(found, GroupIndex):
                indexes[found.number] = found
            else:
                merge.add(found)
        yield from merge.answers()
    if reducer == 0 and len(indexes) == spec.group_count:
        observed: frozenset[int] = frozenset()
        committed: frozenset[int] = frozenset()
        for number in range(spec.group_count):
            index = indexes[number]
            yield number, object_blob(GroupStart(index, observed, committed))
            observed = (observed - index.ended_aborted) | index.observed
            committed = (committed - index.ended_committed) | index.committed


# --- stage 3 --------------------------------------------------------------------------------------------------


def rewrite_group(
    fs: FileSystem, blobs: Iterable[Bytes], attempt: int, disk: Path = _NO_DISK
) -> TaskOutcome | SeglogError | None:
    """Writes a group to its own staging directory; with a delivery, to one on `disk`, and delivers it from there.

    One of the blobs is the group's `RoundSpec`. Returns None if stage 1 failed elsewhere, which another task reports.
    """
    state: GroupStart | None = None
    spec: RoundSpec | None = None
    survivors: list[np.ndarray] = []
    superseded: list[np.ndarray] = []
    failure: SeglogError | None = None
    for data in blobs:
        found = opened(data)
        if isinstance(found, SeglogError):
            failure = found
        elif isinstance(found, RoundSpec):
            spec = found
        elif isinstance(found, GroupStart):
            state = found
        else:
            (survivors if found.kind == SURVIVORS else superseded).append(found.ordinals)
    if failure is not None or state is None or spec is None:
        return failure
    try:
        with spec.opened(fs, disk) as (files, own):
            return _rewritten(files, own, state, survivors, superseded, attempt)
    except SeglogError as error:
        return error


def _rewritten(
    fs: FileSystem,
    spec: RoundSpec,
    state: GroupStart,
    survivors: list[np.ndarray],
    superseded: list[np.ndarray],
    attempt: int,
) -> TaskOutcome:
    index = state.index
    round_ = spec.round(fs)
    # an empty map: the bit sets decide for dirty and for clean records
    offset_map = OffsetMap(CleanerOptions(dedupe_buffer_bytes=1 << 12))
    offset_map.survivors = _bits(survivors, index.dirty_records)
    indexing = OffsetIndexing(
        offset_map, aborted=list(index.aborted), superseded=_bits(superseded, index.clean_records)
    )
    tracker = TransactionTracker()
    tracker.observed, tracker.committed = set(state.observed), set(state.committed)
    stats = CleanerStats(SystemClock())
    filter_ = RecordFilter(round_, indexing, stats, tracker=tracker)
    staged = _write_groups(fs, spec, round_, filter_, stats, index.number, attempt)
    if int(filter_.ordinals[filter_slots.DIRTY_ORDINAL]) != index.dirty_records:
        raise IncompleteError(
            f"{round_.groups[0][0].path}: the log changed while it was cleaned ({index.dirty_records} records were"
            f" indexed, {int(filter_.ordinals[0])} copied); nothing was changed"
        )
    stats.counters[filter_slots.RECORDS_WITHOUT_KEY] += index.without_key
    stats.counters[filter_slots.RECORDS_SUPERSEDED] -= index.without_key
    stats.add(index.counts)
    return TaskOutcome(staged, stats.counts())


def _bits(ordinals: list[np.ndarray], count: int) -> np.ndarray:
    """Returns a bit for each of `count` records, set for these ordinals."""
    chosen = np.zeros(count + 1, dtype=bool)
    for part in ordinals:
        chosen[part] = True
    return np.concatenate((np.packbits(chosen, bitorder="little"), np.zeros(8, dtype=np.uint8)))


def _write_groups(
    fs: FileSystem,
    spec: RoundSpec,
    round_: CleaningRound,
    filter_: RecordFilter,
    stats: CleanerStats,
    first: int,
    attempt: int,
) -> tuple[StagedGroup, ...]:
    """Stages (and with a delivery, delivers) the round's groups, numbered from `first`; checks the sources again."""
    staged: list[StagedGroup] = []
    for number, group in enumerate(round_.groups, start=first):
        directory = Path(spec.staging) / f"{number}-{attempt}"
        fs.make_directory(directory)
        output = GroupOutput(cleaned_segments(round_, directory), group[0].base_offset, spec.plan.bounds)
        copy_group(round_, group, filter_, output, stats, None)
        with stats.phase("fsync"):
            output.finish(group[-1].modified_ms, None)
        for part in output.parts:
            part.segment.close_files()
        delivered: tuple[ManifestSegment, ...] = ()
        if spec.delivery is not None:
            delivered = spec.delivery.put(fs, spec.plan.topic_partition, directory, output.summaries)
            remove_tree(fs, directory)
        staged.append(StagedGroup(number, str(directory), tuple(output.summaries), delivered))
    for group in round_.groups:
        for segment in group:
            check_unchanged(fs, segment.path, spec.sources[segment.base_offset])
    return tuple(staged)


# --- one task for the whole round -----------------------------------------------------------------------------


def rewrite_round(fs: FileSystem, spec: RoundSpec, attempt: int, disk: Path = _NO_DISK) -> TaskOutcome | SeglogError:
    """Runs the whole round in this task: the single-node cleaner up to the swap. `disk` is as in `rewrite_group`."""
    try:
        with spec.opened(fs, disk) as (files, own):
            round_ = own.round(files)
            stats = CleanerStats(SystemClock())
            indexing = index_round(round_, stats, None)
            filter_ = filter_of(round_, indexing, stats, None)
            staged = _write_groups(files, own, round_, filter_, stats, 0, attempt)
            check_complete(round_, indexing, int(filter_.ordinals[0]))
            count_without_key(indexing, stats)
            return TaskOutcome(staged, stats.counts())
    except SeglogError as error:
        return error
