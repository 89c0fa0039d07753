"""`Log`: one partition (Kafka: UnifiedLog, LocalLog). A façade that owns the offsets and the segment list.

The work is done in these modules, in the order in which to read them:

- `segment` is a `.log` with its indexes. `segments` is the list of them, and `LogView`, one state of it for readers.
- `loader` opens a log for writing and recovers it, `read_loader` opens it for reading.
- `append` takes records or batches, `validator` checks them, `writer` writes them, rolls, and truncates.
- `producer_state` and `checkpoints.LeaderEpochCache` hold what a log derives from its batches.
- `reader` reads by offset and goes on from there, `lookup` finds an offset by timestamp.
- `swap` replaces segments, for cleaning, and retires the oldest, for retention.
- `directory` opens the logs of a log directory, and settles an append to several of them that was cut short.

A lock lets one thread at a time change a log; readers never wait for it: they work on `view`, which every change
replaces as a whole when it is done.

Invariant: log start ≤ last stable offset ≤ high watermark ≤ log end. This is the only replica, so batches appended as
leader count as replicated: the high watermark follows the log end, unless batches were appended as a follower.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np

from seglog.arguments import integer
from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.errors import OffsetOutOfRangeError, RefusedError
from seglog.format.columns import Records
from seglog.format.filenames import topic_partition_of
from seglog.log import swap
from seglog.log.append import Appender, AppendInfo, ProducerIdentity, encode_end_txn_marker
from seglog.log.arrow_door import ArrowDoor
from seglog.log.checkpoints import LeaderEpochCache
from seglog.log.loader import LoadedLog, LoadOptions, RecoveryReport, load_log
from seglog.log.lookup import TimestampOffset, find_offset
from seglog.log.producer_state import ProducerStateManager
from seglog.log.read_loader import LogPlace, ReadableLog, load_for_reading
from seglog.log.read_order import Disorder
from seglog.log.reader import FetchResult, LogReader, unreadable_end
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments, LogView, last_leader_epoch
from seglog.log.unreadable import Unreadable
from seglog.log.validator import AppendOrigin
from seglog.log.writer import Truncation
from seglog.model import Compression, Isolation, Record, member
from seglog.storage.filesystem import FileSystem


class Log(ArrowDoor):
    """One partition, open for reading or (with `writable`) for everything.

    Created by `Log.open`; for a writable one the caller holds the log directory's lock. `recovery` is the report of the
    opening. The properties return single offsets, `view` all of one moment.
    """

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        loaded: LoadedLog | ReadableLog,
        clock: Clock,
    ) -> None:
        self.directory, self.config = directory, config
        self.topic_partition = topic_partition_of(directory)
        self.fs, self.clock, self.writable = loaded.fs, clock, isinstance(loaded, LoadedLog)
        self.segments: LogSegments = loaded.segments
        self._loaded = loaded
        self._recovery_point: int | None = loaded.recovery_point if self.writable else None  # None: not known yet
        self._lock = threading.RLock()
        self.directory_changed = False  # the loader has synced its renames and new files
        self._closed = False
        self._failure: Exception | None = None
        self.release: Callable[[BaseException | None], object] | None = None  # see `seglog.open_log`
        self._last_batch_epoch: int | None = None
        self._last_flush_ms = clock.now_ms() if self.writable else 0  # opening counts, as in Kafka
        self.publish(loaded.log_start_offset, loaded.log_end_offset, loaded.log_end_offset)

    @classmethod
    def open(cls, directory: Path, config: LogConfig, *, fs: FileSystem, clock: Clock, options: LoadOptions) -> Log:
        """Opens the partition in `directory` for writing; without `options.clean_shutdown` it is recovered.

        Raises NotALogError, CorruptionError.
        """
        loaded = load_log(fs, directory, clock, replace(options, index_interval_bytes=config.index_interval_bytes))
        loaded.leader_epochs.create_file()
        return cls(directory, config, loaded, clock)

    @classmethod
    def open_for_reading(cls, place: LogPlace, config: LogConfig) -> Log:
        """Opens a partition for reading; changes nothing on disk. Raises NotALogError.

        State that only writers need is computed when it is first used.
        """
        return cls(place.directory, config, load_for_reading(place), place.clock)

    def __repr__(self) -> str:
        how = "closed" if self._closed else "for writing" if self.writable else "for reading"
        return f"<Log {self.directory}: offsets {self.log_start_offset} to {self.log_end_offset}, {how}>"

    # --- offsets ------------------------------------------------------------------------------------------

    @cached_property
    def _reader(self) -> LogReader:
        return LogReader(self)

    @property
    def view(self) -> LogView:
        """Offsets and segments of one moment, for readers. Raises RefusedError if the log is closed."""
        if self._closed:
            raise RefusedError(f"{self.directory}: the log is closed")
        return self._view

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read."""
        return self._view.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset that the next record gets."""
        return self._view.log_end_offset

    @property
    def high_watermark(self) -> int:
        """First offset that is not replicated."""
        return self._view.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """First offset of the earliest open transaction, at most the high watermark."""
        return self._view.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """First offset that is not known to be on stable storage."""
        return self._loaded.recovery_point if self._recovery_point is None else self._recovery_point

    @cached_property
    def producers(self) -> ProducerStateManager:
        """The producers at the log end."""
        return self._loaded.producers

    @cached_property
    def leader_epochs(self) -> LeaderEpochCache:
        """The start offsets of the leader epochs."""
        return self._loaded.leader_epochs

    @property
    def recovery(self) -> RecoveryReport:
        """What opening the log did; for a log open for reading, what a starting broker would settle first."""
        return self._loaded.report

    @property
    def settled(self) -> bool:
        """True if a log open for reading shows what a starting broker would make of the files, not the files."""
        return isinstance(self._loaded, ReadableLog) and self._loaded.settled

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that an append without one continues: the highest of the checkpoint and the last batch, or
        0. May read the end of the log.
        """
        if self._last_batch_epoch is None:
            self._last_batch_epoch = last_leader_epoch(self.segments)
        return max(0, self.leader_epochs.highest_epoch, self._last_batch_epoch)

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark, kept within [log start, log end]; returns it."""
        with self._lock:
            self.publish(self.log_start_offset, self.log_end_offset, integer("offset", offset))
            return self.high_watermark

    # --- appending ----------------------------------------------------------------------------------------

    @cached_property
    def _appender(self) -> Appender:
        return Appender(self)

    def append(
        self,
        records: Iterable[Record] | Records,
        *,
        codec: Compression | str | None = None,
        producer: ProducerIdentity | None = None,
        leader_epoch: int | None = None,
        batch_records: int | None = None,
        batch_bytes: int | None = None,
        pool: Executor | None = None,
    ) -> AppendInfo:
        """Appends records, or columns, in batches of at most `batch_records` and `batch_bytes` (default 16 KiB).

        `codec` applies if `compression.type` is `producer`; `pool` compresses in parallel. Records without timestamp
        get the current time; a `leader_epoch` of None continues the log's last one (also below). Raises an AppendError,
        InvalidRecordError, or CorruptRecordError (the log's end is damage) before anything is written, OSError as the
        file system does; after a failure in the middle, `log_end_offset` tells where to continue.
        """
        with self._changing():
            return self._appender.append_records(
                records,
                codec=None if codec is None else member(Compression, codec, "codec"),
                producer=producer,
                leader_epoch=self.leader_epoch if leader_epoch is None else leader_epoch,
                batch_records=batch_records,
                batch_bytes=batch_bytes,
                pool=pool,
            )

    def append_batches(
        self,
        data: bytes | bytearray | memoryview | np.ndarray,
        *,
        origin: AppendOrigin | str = AppendOrigin.CLIENT,
        leader_epoch: int | None = None,
    ) -> AppendInfo:
        """Appends encoded batches as a leader does: validated, numbered, stamped (Kafka: appendAsLeader).

        A call takes one v2 batch or wrapper, or any number of uncompressed messages of magic 0 and 1, which become one
        v2 batch. Raises AppendError, CorruptRecordError or InvalidRecordError; then nothing was written.
        """
        with self._changing():
            epoch = self.leader_epoch if leader_epoch is None else leader_epoch
            return self._appender.append_as_leader(data, member(AppendOrigin, origin, "origin"), epoch)

    def append_as_follower(self, data: bytes | bytearray | memoryview | np.ndarray, leader_epoch: int) -> AppendInfo:
        """Appends batches with their own offsets, as a replica does (Kafka: appendAsFollower).

        Gaps are kept. The high watermark stays; `update_high_watermark` moves it.
        """
        with self._changing():
            return self._appender.append_as_follower(data, leader_epoch)

    def append_end_txn_marker(
        self,
        producer: ProducerIdentity,
        commit: bool,
        *,
        coordinator_epoch: int = 0,
        leader_epoch: int | None = None,
        timestamp: int | None = None,
    ) -> AppendInfo:
        """Ends the producer's transaction with a COMMIT or ABORT marker (Kafka: EndTransactionMarker).

        `producer.producer_epoch` is the marker's: the data's epoch, or one more under transaction protocol 2.
        """
        stamp = self.clock.now_ms() if timestamp is None else timestamp
        data = encode_end_txn_marker(producer, commit, coordinator_epoch, stamp)
        return self.append_batches(data, origin=AppendOrigin.COORDINATOR, leader_epoch=leader_epoch)

    def roll(self) -> LogSegment:
        """Begins a new segment at the log end, unless the active one is empty (Kafka: UnifiedLog.roll)."""
        with self._changing():
            return self._appender.roll()

    # --- durability ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Returns when everything appended so far is on stable storage; the recovery point is the log end then."""
        with self._changing():
            self.flush_below(self.log_end_offset)

    def flush_if_due(self, now_ms: int) -> bool:
        """Flushes if `flush.messages` or `flush.ms` ask for it; returns whether everything is flushed now."""
        unflushed = self.log_end_offset - self.recovery_point
        waited_ms = now_ms - self._last_flush_ms
        if unflushed > 0 and (unflushed >= self.config.flush_messages or waited_ms >= self.config.flush_ms):
            self.flush_below(self.log_end_offset)
        return self.recovery_point >= self.log_end_offset

    def flush_below(self, offset: int) -> None:
        if offset > self.recovery_point:
            for segment in self.segments.between(min(self.recovery_point, offset), offset):
                segment.flush()
            if self.directory_changed:
                self.fs.sync_directory(self.directory)
                self.directory_changed = False
            self._recovery_point = offset
            self._last_flush_ms = self.clock.now_ms()

    def close(self) -> None:
        """Flushes and closes as a broker does: last time entry, trimmed indexes, a snapshot at the log end.

        A log of `seglog.open_log` also gives back the lock of its log directory.
        """
        if self.release is not None:
            self.__exit__()
            return
        with self._lock:
            if self._closed:
                return
            try:
                if self.writable:
                    if self._failure is not None:
                        raise RefusedError(f"{self.directory}: not closed cleanly, because of: {self._failure}")
                    self.segments.active.on_become_inactive()
                    self.flush_below(self.log_end_offset)
                    self.producers.take_snapshot()
            finally:
                self._closed = True
                for segment in self.segments:
                    segment.close_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object = None, error: BaseException | None = None, _trace: object = None) -> None:
        release, self.release = self.release, None
        if release is None:
            self.close()
        else:
            release(error)

    # --- changing segments --------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Drops every batch that holds `offset` or comes after it; the log end is `offset` then (Kafka: truncateTo).

        At or above the log end it drops no batch, only an epoch that begins at the log end: its leader wrote nothing.
        Below the log start it drops everything, and the log starts at `offset`.
        """
        offset = integer("offset", offset)
        with self._changing():
            if offset < 0:
                raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)
            if offset >= self.log_end_offset:
                self.leader_epochs.truncate_from_end(self.log_end_offset)
            else:
                self._truncated(self._appender.writer.truncate_to(offset))

    def truncate_fully(self, offset: int) -> None:
        """Drops everything; the log is empty and starts at `offset` (Kafka: truncateFullyAndStartAt)."""
        with self._changing():
            self._truncated(self._appender.writer.truncate_fully(offset))

    def _truncated(self, done: Truncation) -> None:
        self._recovery_point = min(self.recovery_point, done.offset)
        self._last_batch_epoch = None
        self.directory_changed = True
        self.publish(done.log_start_offset, done.offset, min(self.high_watermark, done.offset))
        self._remove(done.pending_removal)

    def replace_segments(self, replacements: Sequence[swap.Replacement], **how: bool) -> None:
        """Replaces old segments by `.cleaned` ones, ascending; a crash leaves the old or the new ones of each
        replacement (specification §12.7). `how` are the choices of `swap.replace_segments`.
        """
        with self._changing():
            for run in swap.runs_of_neighbours(self.segments, replacements):
                pending = swap.replace_segments(self.segments, run, self.producers, **how)
                self.publish(self.log_start_offset, self.log_end_offset, self.high_watermark)
                self._remove(pending)

    def retire_oldest(self, segments: Sequence[LogSegment], reasons: Sequence[str]) -> list[Path]:
        """Takes out the oldest segments, logs each one's reason, and moves the log start up.

        Returns their files, renamed to `.deleted`, for the caller to remove later. If the active segment is among them
        the log rolls first, so that its end stays. Raises RefusedError unless `segments` are the oldest.
        """
        with self._changing():
            if not segments:
                return []
            oldest = self.segments.snapshot()[: len(segments)]
            if [segment.base_offset for segment in oldest] != [segment.base_offset for segment in segments]:
                raise RefusedError(f"{self.directory}: only the oldest segments can be deleted")
            if len(segments) == len(self.segments):
                self._appender.writer.roll_to(self.log_end_offset)
            pending = swap.retire_oldest(self.segments, segments, self.producers, reasons)
            self._move_log_start(max(self.log_start_offset, self.segments.first.base_offset))
            return pending

    def increment_log_start_offset(self, offset: int) -> None:
        """Moves the log start up to `offset`, never down (Kafka: DeleteRecords).

        Raises OffsetOutOfRangeError above the high watermark.
        """
        offset = integer("offset", offset)
        with self._changing():
            if offset > self.high_watermark:
                raise OffsetOutOfRangeError(offset, self.log_start_offset, self.high_watermark)
            if offset > self.log_start_offset:
                self._move_log_start(offset)

    def _move_log_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.leader_epochs.truncate_from_start(offset)
            self.producers.on_log_start_offset(offset)
            self._recovery_point = max(self.recovery_point, offset)  # offsets below the start need no recovery
        self.publish(offset, self.log_end_offset, self.high_watermark)

    def _remove(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self.fs.remove(path)

    # --- reading ------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation | str | None = Isolation.READ_UNCOMMITTED,
        *,
        min_one_message: bool = True,
    ) -> FetchResult:
        """Returns up to `max_bytes` from `offset` on, of one segment; with `min_one_message` at least one whole batch.

        Reads up to the high watermark, with READ_COMMITTED ("read_committed") to the last stable offset, with None to
        the log end. Raises OffsetOutOfRangeError, CorruptRecordError if damage may hold `offset`, ValueError for
        another isolation and for less than 0 bytes.
        """
        return self._reader.read(offset, max_bytes, isolation, min_one_message)

    def records(
        self,
        offset: int | None = None,
        isolation: Isolation | str | None = Isolation.READ_UNCOMMITTED,
        *,
        max_bytes: int = 1 << 20,
    ) -> Iterator[Record]:
        """Yields the records from `offset` (default: log start) to the end of the log as it is readable now."""
        return chain.from_iterable(self.columns(offset, isolation, max_bytes=max_bytes))

    def columns(
        self,
        offset: int | None = None,
        isolation: Isolation | str | None = Isolation.READ_UNCOMMITTED,
        *,
        max_bytes: int = 1 << 20,
    ) -> Iterator[Records]:
        """Yields records as columns: one `Records` for each run of batches of about `max_bytes`.

        Each offset comes once, in the order of the files; `disorders` names the places where offsets do not ascend.
        Raises CorruptRecordError and InvalidRecordError when it reaches damage, also at the log's end (but not for an
        incomplete batch or zeros there: `unreadable_end`). Raises ValueError at once for another isolation and for less
        than 0 bytes.
        """
        return self._reader.columns(offset, isolation, max_bytes)

    @property
    def disorders(self) -> tuple[Disorder, ...]:
        """The places, one a segment, where the offsets read from this log so far do not ascend."""
        return tuple(self._reader.disorders.values())

    @property
    def unreadable_end(self) -> Unreadable | None:
        """The bytes after the log end in the last file, if the log was not closed: an incomplete batch, or damage."""
        return unreadable_end(self.view)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Returns the first record at `timestamp` (epoch milliseconds) or later, or None; for -1 the log end, for -2
        the log start, for -3 the record with the largest timestamp.
        """
        found = find_offset(self.view, integer("timestamp", timestamp))
        if found is None or found.timestamp >= 0:
            return found
        epoch = self.leader_epochs.epoch_for_offset(found.offset)
        return found if epoch is None else replace(found, leader_epoch=epoch)

    # --- shared -------------------------------------------------------------------------------------------

    def publish(self, start: int, end: int, high_watermark: int) -> None:
        """Makes a change visible to readers, as its last step."""
        watermark = max(start, min(high_watermark, end))
        stable = partial(self._stable_offset, start, watermark)
        if self.writable:
            stable = partial(int, stable())  # computed now, because the producers change later
        segments = self.segments.snapshot()
        size, trailing = (segments[-1].size, segments[-1].trailing_bytes) if segments else (0, 0)
        self._view = LogView(segments, start, end, watermark, stable, size, trailing)

    def _stable_offset(self, start: int, watermark: int) -> int:
        self.producers.on_high_watermark(watermark)
        unstable = self.producers.first_unstable_offset
        return watermark if unstable is None else max(start, min(unstable, watermark))

    def fail(self, error: Exception) -> None:
        """Refuses further changes until the log is opened again, because memory and disk may differ."""
        self._failure = error

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Holds the lock for a change; after a failed one (OSError) no more changes are possible."""
        with self._lock:
            if self._closed or not self.writable:
                state = "closed" if self._closed else "open for reading only"
                raise RefusedError(f"{self.directory}: the log is {state}")
            if self._failure is not None:
                raise RefusedError(f"{self.directory}: open the log again, after this failure: {self._failure}")
            try:
                yield
            except OSError as error:
                self.fail(error)
                raise
