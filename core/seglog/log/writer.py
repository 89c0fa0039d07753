"""The end of a log: its active segment's remaining room, writing to it, rolling to the next, and truncating.

Kafka: LocalLog, UnifiedLog.roll, UnifiedLog.truncateTo, LogSegment.shouldRoll, RollParams.

1. `room` returns how many batches fit before one of them must begin a new segment (`batches_before_roll`). A roll is
   decided per batch, for a whole run of batches at once, and on append only; there is no timer.
2. `write_run` updates producers, leader epochs, the segment's files and aborted transactions, and last the view of
   readers.
3. `roll_to` gives the old segment its last time entry and trimmed indexes, and takes a snapshot of the producers at the
   new base offset. It flushes everything below, so that recovery starts here, and creates the new segment's files.

Truncating to an offset:

1. Delete the segments that begin after the offset, the last one first: a crash in between leaves a shorter log, never a
   hole.
2. Cut the segment that holds the offset before the batch that contains it: the whole batch goes.
3. Cut the leader epochs. Load the producers' newest snapshot at or below the offset, and replay from there.

The log end offset then is the given offset, although the last batch may end before it; the next load goes back to that
end.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from seglog import layout
from seglog.arguments import within
from seglog.clock import Clock
from seglog.errors import RefusedError, SeglogError
from seglog.log.checkpoints import LeaderEpochCache
from seglog.log.outline import LogFacts
from seglog.log.producer_state import CompletedTransaction, ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments, LogView, rebuild_producer_state
from seglog.log.swap import retire_segments, retire_snapshots
from seglog.storage.filesystem import FileSystem


class WritableLog(LogFacts, Protocol):
    """The interface of a log (`seglog.log.log.Log`) to the append path: its parts, its offsets, publishing a change."""

    directory_changed: bool

    @property
    def directory(self) -> Path: ...
    @property
    def fs(self) -> FileSystem: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def view(self) -> LogView: ...
    @property
    def segments(self) -> LogSegments: ...
    @property
    def producers(self) -> ProducerStateManager: ...
    @property
    def leader_epochs(self) -> LeaderEpochCache: ...
    @property
    def recovery_point(self) -> int: ...
    def publish(self, start: int, end: int, high_watermark: int) -> None: ...
    def flush_below(self, offset: int) -> None: ...
    def flush_if_due(self, now_ms: int) -> bool: ...
    def fail(self, error: Exception) -> None: ...


class _Tried(Exception):
    """Ends a trial."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """What a truncation did. `pending_removal` are the `.deleted` files, for the caller to remove."""

    offset: int
    log_start_offset: int
    pending_removal: tuple[Path, ...]


class SegmentWriter:
    """Changes the end of one log; the caller holds the log's lock."""

    def __init__(self, log: WritableLog) -> None:
        self._log = log
        self._first_timestamp: int | None = None
        self._jitter_ms = self._drawn_jitter()

    # --- appending and rolling

    def room(self, batches: np.ndarray, now_ms: int) -> int:
        """Returns how many of `batches` (layout.BATCH) the active segment takes before it must roll."""
        log, config = self._log, self._log.config
        active = log.segments.active
        if self._first_timestamp is None and active.size:
            self._first_timestamp = active.first_batch_timestamp()
        room = min(
            config.segment_index_bytes // layout.OFFSET_INDEX_ENTRY.itemsize - active.offset_index.entries,
            config.segment_index_bytes // layout.TIME_INDEX_ENTRY.itemsize - 1 - active.time_index.entries,
        )
        first_timestamp = -1 if self._first_timestamp is None else self._first_timestamp
        age_ms = config.segment_ms
        if config.compact and config.max_compaction_lag_ms > 0:
            age_ms = min(age_ms, config.max_compaction_lag_ms)
        state = RollState(
            active.base_offset,
            active.size,
            first_timestamp,
            active.created_ms,
            room,
            config.segment_bytes,
            age_ms - self._jitter_ms,
        )
        return batches_before_roll(state, batches, now_ms)

    def write_run(self, data: np.ndarray, batches: np.ndarray, position: int, replicated: bool) -> None:
        """Writes batches to the active segment, updates the log's state, and finally shows them to readers.

        `position` is that of `data[0]` in the coordinates of `batches`. With `replicated` the high watermark follows.
        """
        log = self._log
        segment = log.segments.active
        # Kafka stores the last stable offset at the end of the append, which may lie after a transaction that the same
        # producer began meanwhile and aborts later: readers up to there would not learn of that one.
        completed: list[tuple[CompletedTransaction, int]] = []
        # producers first: a batch that contradicts an open transaction is refused before any change
        with log.producers.unchanged_on_error(batches):
            log.producers.replay(data, batches, position, segment.path, lambda *ended: completed.append(ended))
        log.leader_epochs.assign_appended(batches)
        try:
            segment.append(batches, data)
            for transaction, last_stable_offset in completed:
                segment.append_aborted(transaction, last_stable_offset)
        except SeglogError as error:
            log.fail(error)
            raise
        end = int(batches["last_offset"][-1]) + 1
        log.publish(log.log_start_offset, end, end if replicated else log.high_watermark)

    def check_producers(self, data: np.ndarray, batches: np.ndarray) -> None:
        """Raises the errors that `write_run` would raise for producers and their transactions, before a roll for these
        batches; `data[0]` has position 0.
        """
        producers = self._log.producers
        with contextlib.suppress(_Tried), producers.unchanged_on_error(batches):
            producers.replay(data, batches, 0, self._log.segments.active.path)
            raise _Tried

    def roll_to(self, base_offset: int) -> LogSegment:
        """Begins a segment at `base_offset` and flushes everything below it.

        Raises RefusedError if one begins there.
        """
        log = self._log
        active = log.segments.active
        if base_offset < active.base_offset or (base_offset == active.base_offset and active.size):
            raise RefusedError(f"{log.directory}: the active segment begins at offset {active.base_offset} already")
        if base_offset == active.base_offset:
            log.flush_below(base_offset)
            return active
        active.on_become_inactive()
        # before the next segment exists: a power cut must not leave it after a shortened predecessor
        log.flush_below(base_offset)
        active.close_files()  # a log may have more segments than a process file descriptors
        log.producers.end_offset = base_offset
        log.producers.take_snapshot()
        created = self._created(base_offset)
        log.directory_changed = True
        log.segments.add(created)
        self._forget_segment()
        log.publish(log.log_start_offset, log.log_end_offset, log.high_watermark)
        return created

    # --- truncating

    def truncate_to(self, offset: int) -> Truncation:
        """Drops everything at and after `offset`; below the first segment everything, and the log starts at `offset`.

        The caller lowers recovery point and high watermark, and publishes the new end. Raises CorruptRecordError, with
        nothing changed, if damage hides where to cut.
        """
        log = self._log
        if log.segments.first.base_offset > offset:
            return self.truncate_fully(offset)
        last = log.segments.floor(offset)
        assert last is not None
        last.require_cut(offset)  # before anything goes
        pending = self._retire([segment for segment in log.segments if segment.base_offset > offset])
        active = log.segments.active
        active.truncate_to(offset)
        active.flush()
        if not active.size:
            active.created_ms = log.clock.now_ms()  # its age starts again
        log.leader_epochs.truncate_from_end(offset)
        return self._truncated(offset, min(offset, log.log_start_offset), pending)

    def truncate_fully(self, offset: int) -> Truncation:
        """Drops the whole log; an empty segment at `offset` remains. Raises ValueError for an invalid offset."""
        offset = within("offset", offset, 0, layout.INT64_MAX)
        log = self._log
        pending = self._retire(list(log.segments))
        created = self._created(offset)
        log.fs.sync_directory(log.directory)
        log.segments.add(created)
        log.leader_epochs.clear_and_flush()
        log.producers.truncate_fully_and_start_at(offset)
        return self._truncated(offset, offset, pending)

    def _retire(self, gone: list[LogSegment]) -> list[Path]:
        log = self._log
        pending = retire_segments(gone, "newest")
        pending += retire_snapshots(log.fs, log.producers, [segment.base_offset for segment in gone])
        for segment in gone:
            log.segments.remove(segment.base_offset)
        return pending

    def _truncated(self, offset: int, log_start_offset: int, pending: list[Path]) -> Truncation:
        log, now_ms = self._log, self._log.clock.now_ms()
        rebuild_producer_state(
            log.producers, log.segments, log_start_offset, offset, now_ms, reload_from_clean_shutdown=False
        )
        self._forget_segment()
        return Truncation(offset, log_start_offset, tuple(pending))

    # --- the active segment

    def _created(self, base_offset: int) -> LogSegment:
        log = self._log
        return LogSegment(
            log.fs,
            log.directory,
            base_offset,
            index_interval_bytes=log.config.index_interval_bytes,
            created_ms=log.clock.now_ms(),
        ).create()

    def _forget_segment(self) -> None:
        """Forgets the active segment's state, because another one became active or it was cut."""
        self._first_timestamp, self._jitter_ms = None, self._drawn_jitter()

    def _drawn_jitter(self) -> int:
        most = min(self._log.config.segment_jitter_ms, self._log.config.segment_ms)
        return random.randrange(most) if most > 0 else 0


@dataclass(frozen=True, slots=True)
class RollState:
    """What decides a roll: the active segment, and the configuration's limits. Sizes in bytes, ages in milliseconds.

    `first_timestamp` is the max timestamp of the segment's first batch, negative if it has none; `created_ms` is when
    it was opened; `index_room` counts the entries that both indexes still take (the time index reserves one).
    `age_ms` is segment.ms less this segment's jitter; in a compacted topic at most max.compaction.lag.ms.
    """

    base_offset: int
    size: int
    first_timestamp: int
    created_ms: int
    index_room: int
    segment_bytes: int
    age_ms: int


def batches_before_roll(state: RollState, batches: np.ndarray, now_ms: int) -> int:
    """Returns how many of `batches` (layout.BATCH, in order) the segment takes before one of them must roll it: one
    beyond its size or age, the room of its indexes, or its offsets (specification §8). 0 means: roll before the first.
    """
    # every batch adds at most one entry to an index, so within `index_room` no index fills up
    run = batches[: max(state.index_room, 0)]
    if not len(run):
        return 0
    first_timestamp = state.first_timestamp if state.size > 0 else int(run["max_timestamp"][0])
    if first_timestamp >= 0:
        stops = run["max_timestamp"] - first_timestamp > state.age_ms
    else:
        stops = np.full(len(run), now_ms - state.created_ms > state.age_ms)
    stops[0] &= state.size > 0  # an empty segment has no age
    stops |= state.size + np.cumsum(run["size"], dtype=np.int64) > state.segment_bytes
    relative = run["last_offset"] - state.base_offset
    stops |= (relative < 0) | (relative > layout.INT32_MAX)
    return int(np.argmax(stops)) if stops.any() else len(run)
