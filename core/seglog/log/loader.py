"""Opening a partition directory: leftovers, segments, recovery, offsets, producers (Kafka: LogLoader).

1. Settle the leftovers of a crash (`swap.settle_leftovers`).
2. Load the segments. Remove indexes without a log. Recover a segment without its offset index, or whose transaction
   index contradicts it (unless step 3 does so). Create a missing time index empty (it is not rebuilt).
3. After an unclean stop, recover every segment from the recovery point on. The first one that loses bytes ends the log:
   all later segments are deleted. A broker that recovers such a segment in step 2 keeps them, with a hole.
4. Drop a log that ends below its log start. Without any segment, create one at the log start.
5. Cut the leader epochs to the log, drop stray snapshots, bring the producers up to the end.

A segment whose offsets overflow is split, and the step starts again.

If a broker would refuse to start after a clean stop (zeros after the last batch), or would write after a torn tail, the
log ends before those bytes here, and the first append cuts them off. Where they are damage, which may hide good
batches, appending is refused (`Log.append`).

With `writable=False` the loader works on an overlay that keeps every change in memory: steps 1, 4 and 5 show what a
broker would see, nothing is recovered, and nothing on disk is touched. `read_loader` does so if names and sizes do not
determine what a reader sees. `plan_recovery` runs the real recovery on such an overlay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from seglog.clock import Clock
from seglog.errors import (
    CorruptIndexError,
    CorruptionError,
    CorruptRecordError,
    SegmentOffsetOverflowError,
)
from seglog.format.filenames import FileKind, FileState, parse_file_name, segment_file_name
from seglog.layout import INT64_MAX
from seglog.log.checkpoints import LeaderEpochCache
from seglog.log.producer_state import DEFAULT_EXPIRATION_MS, ProducerStateManager, SnapshotRefusedError
from seglog.log.recovered_segment import RecoveredSegment
from seglog.log.segment import DEFAULT_INDEX_INTERVAL_BYTES, LogSegment, OffsetNotAscendingError
from seglog.log.segments import LogSegments, OffsetIndexRefusedError, rebuild_producer_state
from seglog.log.swap import (
    ReplacedLog,
    is_overflowed,
    retire_segments,
    retire_snapshots,
    settle_leftovers,
    split_overflowed,
)
from seglog.scan.listing import INDEX_KINDS, require_batches, require_directory
from seglog.scan.view import reread
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import OverlayFileSystem, RoomTaken
from seglog.units import count_is, count_text

T = TypeVar("T")
RecoveryProgress = Callable[[LogSegment, int, int], None]

_logger = logging.getLogger(__name__)


class TransactionIndexRefusedError(OSError):
    """A broker cannot write the transaction index of the segment; only where its behaviour is predicted."""

    def __init__(self, base_offset: int) -> None:
        super().__init__("an aborted transaction cannot be written to the transaction index")
        self.base_offset = base_offset


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to open a log. `recovery_point` and `log_start_offset` come from the log directory's checkpoints.

    `progress` is called before each segment is recovered, with its number (from 1) and their count. `keeps_holes`:
    step 2 recovers what a broker recovers there and keeps the later segments, to predict a broker's behaviour. So are
    `unwritable_snapshots`, the offsets whose producer snapshot a broker cannot write: in a recovery it takes that for
    damage, else the load raises SnapshotRefusedError. It does the same where it must write to one of the
    `unwritable_transactions`, transaction indexes by base offset (TransactionIndexRefusedError), or where it replays
    producers from a segment with one of the `unreadable_indexes`, offset indexes (OffsetIndexRefusedError).
    """

    clean_shutdown: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    writable: bool = True
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES
    producer_expiration_ms: int = DEFAULT_EXPIRATION_MS
    progress: RecoveryProgress | None = None
    keeps_holes: bool = False
    unwritable_snapshots: frozenset[int] = frozenset()
    unwritable_transactions: frozenset[int] = frozenset()
    unreadable_indexes: frozenset[int] = frozenset()


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log did, or would do.

    `recovered` lists every recovered segment, also those that lost nothing; `deleted_segments` the base offsets of the
    deleted segments, `deleted_bytes` their size; `replaced` the logs replaced by `.swap` files that do not hold all of
    their data. `gone` are the first and last offset that the partition once had, if it had no `.log` file (only after
    `recover`). `run` is the folder with the lost data, if it was kept. `events` are sentences for an operator;
    `obstacles` name what still stops a broker (`log.checkpoints`; only after `recover`). `room` is the disk space that
    the writes would take, for plans and trials. `unwritten_snapshots` are those of `LoadOptions.unwritable_snapshots`
    that made recovery empty a segment, `unwritten_transactions` the same of transaction indexes.
    """

    directory: Path
    clean_shutdown: bool
    recovered: list[RecoveredSegment] = field(default_factory=list)
    deleted_segments: list[int] = field(default_factory=list)
    deleted_bytes: int = 0
    replaced: list[ReplacedLog] = field(default_factory=list)
    removed_files: list[Path] = field(default_factory=list)
    renamed_files: list[tuple[Path, Path]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    log_start_offset: int = 0
    log_end_offset: int = 0
    recovery_point: int = 0
    gone: tuple[int, int] | None = None
    run: Path | None = None
    room: RoomTaken | None = field(default=None, compare=False)
    unwritten_snapshots: list[int] = field(default_factory=list)
    unwritten_transactions: list[int] = field(default_factory=list)

    def __repr__(self) -> str:
        did = f"{count_text(len(self.recovered), 'segment')} recovered, {count_text(self.truncated_bytes, 'byte')} lost"
        offsets = f"offsets {self.log_start_offset} to {self.log_end_offset}"
        return f"<RecoveryReport {self.directory}: {did}, {offsets}>"

    @property
    def truncated_bytes(self) -> int:
        """The bytes lost: cut tails, deleted segments, and logs replaced by less data."""
        cut = sum(segment.lost_bytes for segment in self.recovered)
        return cut + self.deleted_bytes + sum(each.size for each in self.replaced)

    @property
    def preallocated_bytes(self) -> int:
        """The zeros cut off that a broker had allocated (`log.preallocate`); no data is lost with them."""
        return sum(segment.truncated_bytes for segment in self.recovered if segment.preallocated)

    @property
    def truncated_segments(self) -> list[RecoveredSegment]:
        """The segments that lost bytes."""
        return [segment for segment in self.recovered if segment.lost_bytes > 0]

    @property
    def changes(self) -> bool:
        """True if any data or file name changed; rebuilt indexes and new snapshots do not count."""
        return bool(self.truncated_bytes or self.removed_files or self.renamed_files)


@dataclass(slots=True)
class LoadedLog:
    """The result of `load_log`, for `Log`. `fs` is the overlay if the log was opened only for reading."""

    fs: FileSystem
    segments: LogSegments
    producers: ProducerStateManager
    leader_epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    report: RecoveryReport


def load_log(fs: FileSystem, directory: Path, clock: Clock, options: LoadOptions) -> LoadedLog:
    """Opens the partition in `directory` (steps above). Raises NotALogError if the directory is missing."""
    require_directory(fs, directory)
    require_batches(fs, directory)
    if options.writable:
        return _Loader(fs, directory, clock, options).load()
    return reread(fs, directory, lambda: _Loader(OverlayFileSystem(fs), directory, clock, options).load())


def plan_recovery(fs: FileSystem, directory: Path, clock: Clock, options: LoadOptions) -> RecoveryReport:
    """Returns the report of the recovery that `load_log` would run with these options; changes nothing on disk."""
    overlay = OverlayFileSystem(fs)
    loaded = load_log(overlay, directory, clock, options)
    loaded.segments.close()
    overlay.close_files()
    loaded.report.room = overlay.room
    return loaded.report


def refuse_losses(report: RecoveryReport) -> None:
    """Raises CorruptRecordError if a recovery would cut off data, or replace a log by less data."""
    if not report.truncated_bytes:
        return
    for replaced in report.replaced:
        raise CorruptRecordError(
            replaced.path,
            f"{replaced.path.name}.swap would replace it, and holds less ({replaced.reason}):"
            f" {count_text(replaced.size, 'byte')}"
            " would be lost unless a cleaning made it. `seglog recover` finishes the swap as a broker does, and keeps"
            " the replaced file",
        )
    cut = next(iter(report.truncated_segments), None)
    base = cut.base_offset if cut is not None else report.deleted_segments[0]
    reason = (cut.reason if cut is not None else "") or "the segment lies after damage"
    if cut is None and report.log_end_offset == report.log_start_offset:
        reason = f"the log ends below its start {report.log_start_offset} in log-start-offset-checkpoint"
    raise CorruptRecordError(
        report.directory / segment_file_name(base),
        f"{reason}; opening the log would cut {count_text(report.truncated_bytes, 'byte')}: `seglog"
        " verify` shows the damage,"
        " `seglog repair` loses the least, `seglog recover` does what a broker does",
        None if cut is None else cut.valid_bytes,
        None if cut is None else cut.next_offset,
    )


class _Loader:
    def __init__(self, fs: FileSystem, directory: Path, clock: Clock, options: LoadOptions) -> None:
        self._fs, self._directory, self._clock, self._options = fs, directory, clock, options
        self._segments = LogSegments()
        self._epochs = LeaderEpochCache(fs, directory, tolerant=not options.writable)
        self._report = RecoveryReport(directory, options.clean_shutdown)
        self._recovers_from: int | None = None
        self._last_base = -1
        self._snapshots: list[int] | None = None  # after the last recovered segment; None: list again
        if self._epochs.damage is not None:
            self._report.events.append(str(self._epochs.damage))

    @property
    def _recovers(self) -> bool:
        return self._options.writable and not self._options.clean_shutdown

    def load(self) -> LoadedLog:
        settled = settle_leftovers(self._fs, self._directory)
        self._report.removed_files += settled.removed
        self._report.renamed_files += settled.renamed
        self._report.replaced += settled.replaced
        self._report.events += map(str, settled.replaced)
        self._splitting(self._load_segments)
        if self._recovers:
            self._splitting(self._recover_segments)
        end = self._drop_log_below_start()
        survived = end is not None
        if end is None:
            end = self._options.log_start_offset
            self._segments.add(self._segment(end).create())
            self._fs.sync_directory(self._directory)
        clean = self._options.clean_shutdown and survived
        start = max(self._options.log_start_offset, self._segments.first.base_offset)
        recovery_point = end if clean else max(min(self._options.recovery_point, end), start)
        producers = self._finish(start, end)
        report = self._report
        report.log_start_offset, report.log_end_offset, report.recovery_point = start, end, recovery_point
        return LoadedLog(self._fs, self._segments, producers, self._epochs, start, end, recovery_point, report)

    def _finish(self, start: int, end: int) -> ProducerStateManager:
        """Step 5."""
        self._epochs.truncate_from_end(end)
        self._epochs.truncate_from_start(self._options.log_start_offset)
        producers = self._producers()
        producers.remove_stray_snapshots(self._segments.base_offsets)
        rebuild_producer_state(
            producers,
            self._segments,
            start,
            end,
            self._clock.now_ms(),
            reload_from_clean_shutdown=self._options.clean_shutdown and self._options.writable,
            unreadable_indexes=self._options.unreadable_indexes,
        )
        self._fs.sync_directory(self._directory)
        return producers

    # --- segments -------------------------------------------------------------------------------------------

    def _load_segments(self) -> None:
        self._segments.close()
        self._segments.clear()
        entries = self._fs.entries(self._directory)
        names = {name: parse_file_name(name) for name, found in entries if not found.is_directory}
        logs = {
            parsed.offset for name, parsed in names.items() if parsed is not None and name.endswith(FileKind.LOG.value)
        }
        self._last_base = max(logs, default=-1)
        self._recovers_from = None  # the base offset of the first segment that step 3 will recover
        if logs and self._recovers and not self._options.keeps_holes:
            below = (base for base in logs if base <= self._options.recovery_point)
            self._recovers_from = max(below, default=min(logs))
        for name, parsed in names.items():
            is_log = name.endswith(FileKind.LOG.value)
            if parsed is None:
                if is_log:
                    if self._options.writable:
                        reason = "the name is not an offset, and a broker stops on it"
                        raise CorruptionError(self._directory / name, reason)
                    self._report.events.append(f"{self._directory / name}: the name is not an offset")
            elif parsed.kind in INDEX_KINDS and parsed.state is FileState.LIVE and parsed.offset not in logs:
                self._report.events.append(f"{self._directory / name}: an index without its log, removed")
                self._remove_all([self._directory / name])
            elif is_log:
                self._segments.add(self._load_segment(parsed.offset))

    def _load_segment(self, base_offset: int) -> LogSegment:
        segment = self._segment(base_offset)
        if self._recovers_from is not None and base_offset >= self._recovers_from:
            return segment  # step 3 rebuilds its indexes, and deletes what follows damage before it cuts
        try:
            segment.transaction_index.sanity_check()
        except CorruptIndexError as error:
            self._report.events.append(str(error))
            if self._options.writable:
                self._recover_segment(segment)
                return segment
        if not self._options.writable:
            return segment
        if not segment.offset_index.exists():
            self._report.events.append(f"{segment.offset_index.path}: missing, so the segment is recovered")
            self._recover_segment(segment)
        elif not segment.time_index.exists():
            self._report.events.append(f"{segment.time_index.path}: missing, created empty")
            segment.time_index.create()
            segment.time_index.close_file()
        return segment

    def _splitting(self, step: Callable[[], T]) -> T:
        """Runs `step`, again after each split of a segment whose offsets overflow."""
        while True:
            try:
                return step()
            except SegmentOffsetOverflowError as error:
                segment = self._segments.get(error.base_offset) or self._segment(error.base_offset)
                if not is_overflowed(segment):
                    raise  # a batch lies below the base, which no split repairs
                new, deleted = split_overflowed(self._segments, segment)
                bases = ", ".join(str(part.base_offset) for part in new)
                self._report.events.append(f"{error}; split into segments at {bases}")
                self._remove_all(deleted)

    # --- recovery -------------------------------------------------------------------------------------------

    def _recover_segments(self) -> None:
        """Step 3."""
        self._snapshots = None
        pending = list(self._segments.from_floor(self._options.recovery_point))
        if self._options.recovery_point == INT64_MAX:
            pending = []  # Kafka asks for the segments from there up to this number, which are none
        for path in (path for segment in pending for path in segment.files):
            self._fs.open(path, "r+").close()  # a file that may not be written is an error before any change
        for segment in list(self._segments)[: len(self._segments) - len(pending)]:
            self._fs.open(segment.path, "r").close()  # a broker opens all, so one that it cannot read is an error
        for i, segment in enumerate(pending):
            if self._options.progress is not None:
                self._options.progress(segment, i + 1, len(pending))
            recovered = self._recover_or_empty(segment, pending[i + 1 :])
            if recovered.truncated_bytes > 0:
                return

    def _recover_or_empty(self, segment: LogSegment, later: Sequence[LogSegment]) -> RecoveredSegment:
        size = segment.size
        try:
            return self._recover_segment(segment, later)
        except OffsetNotAscendingError as error:
            reason, said = error.reason, str(error)
        except OffsetIndexRefusedError as error:
            reason = said = f"{error!s} ({error.base_offset:020d}.index)"
        except SnapshotRefusedError as error:
            self._report.unwritten_snapshots.append(error.offset)
            reason = said = str(error)
        except TransactionIndexRefusedError as error:
            self._report.unwritten_transactions.append(error.base_offset)
            reason = said = str(error)
        self._delete_segments([each for each in later if self._segments.get(each.base_offset) is not None])
        segment.truncate_to(segment.base_offset)
        emptied = RecoveredSegment(segment.base_offset, 0, size, segment.base_offset, 0, reason)
        self._report.events.append(f"{said}; the segment is emptied")
        self._report.recovered.append(emptied)
        return emptied

    def _recover_segment(self, segment: LogSegment, later: Sequence[LogSegment] = ()) -> RecoveredSegment:
        # do not list a directory of thousands of segments again for each of them
        producers = self._producers(self._snapshots)
        self._snapshots = producers.snapshots
        rebuild_producer_state(
            producers,
            self._segments,
            self._options.log_start_offset,
            segment.base_offset,
            self._clock.now_ms(),
            reload_from_clean_shutdown=False,
            unreadable_indexes=self._options.unreadable_indexes,
        )
        # what lies after the damage goes before the cut, so that a crash in between leaves no unnoticed hole
        before_cut, is_last = partial(self._delete_segments, list(later)), segment.base_offset == self._last_base
        recovered = segment.recover(producers, self._epochs, before_cut, ends_log=is_last)
        if segment.base_offset in self._options.unwritable_transactions and segment.transaction_index.entries:
            raise TransactionIndexRefusedError(segment.base_offset)
        segment.close_files()  # there may be more segments than a process may open files
        producers.take_snapshot()
        self._report.recovered.append(recovered)
        if recovered.truncated_bytes:
            why = "no record was in these preallocated zeros" if recovered.preallocated else recovered.reason
            self._report.events.append(
                f"{segment.path}: position {recovered.valid_bytes}: {why};"
                f" {count_text(recovered.truncated_bytes, 'byte')} cut off"
            )
        return recovered

    def _delete_segments(self, segments: list[LogSegment]) -> None:
        if not segments:
            return
        self._report.deleted_segments += [segment.base_offset for segment in segments]
        self._report.deleted_bytes += sum(segment.size for segment in segments)
        deleted = retire_segments(segments, "newest")
        bases = [segment.base_offset for segment in segments]
        deleted += retire_snapshots(self._fs, self._producers(), bases)
        self._snapshots = None
        for base_offset in bases:
            self._segments.remove(base_offset)
        self._report.events.append(f"segments {bases} lie after the damage and are deleted")
        self._remove_all(deleted)

    def _drop_log_below_start(self) -> int | None:
        """Step 4: returns the log end offset, or None if no segment is left."""
        if not self._segments:
            return None
        active = self._segments.active
        end, valid_bytes = active.read_next_offset()
        if end >= self._options.log_start_offset:
            active.trailing_bytes, active.size = active.size - valid_bytes, valid_bytes
            if active.trailing_bytes:
                self._report.events.append(
                    f"{active.path}: position {valid_bytes}:"
                    f" {count_is(active.trailing_bytes, 'byte')} not a whole batch"
                )
            return end
        start = self._options.log_start_offset
        self._report.events.append(f"{self._directory}: the log ends at {end}, below its start {start}: dropped")
        self._delete_segments(list(self._segments))
        self._epochs.clear_and_flush()
        self._producers().truncate_fully_and_start_at(start)
        return None

    # --- helpers --------------------------------------------------------------------------------------------

    def _producers(self, snapshots: list[int] | None = None) -> ProducerStateManager:
        return ProducerStateManager(
            self._fs,
            self._directory,
            snapshots=snapshots,
            expiration_ms=self._options.producer_expiration_ms,
            strict=self._options.writable,
            unwritable=self._options.unwritable_snapshots,
        )

    def _segment(self, base_offset: int) -> LogSegment:
        return LogSegment(
            self._fs,
            self._directory,
            base_offset,
            index_interval_bytes=self._options.index_interval_bytes,
            created_ms=self._clock.now_ms(),
        )

    def _remove_all(self, paths: list[Path]) -> None:
        for path in paths:
            self._fs.remove(path)
        self._report.removed_files += paths
