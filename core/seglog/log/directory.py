"""One log directory: its lock, checkpoints, clean-shutdown marker and partitions (Kafka: LogManager).

Opening a partition for writing:

1. The directory's `.lock` is held (taken by `open`).
2. The log is loaded with its checkpointed offsets, and recovered if there was no clean-shutdown marker.
3. Before the first change to any file of a log the marker is removed, durably: a crash from there on is an unclean stop
   (Kafka: before the first log is opened). Read-only use changes no file.

`open` takes text too, which may be a URL, and a process that names no file system reads both: so this module knows
`storage.routing`, which imports nothing remote before a URL comes up.

Closing:

1. Every open log is flushed, and gets its snapshot and trimmed indexes.
2. The checkpoints get the entries of changed or recovered logs; those of other partitions stay.
3. The marker comes back if it was removed, or if every live partition of the directory was opened, and so recovered.

A directory without any checkpoint, marker or `meta.properties` is not a broker's: each partition in it is judged by its
own files (`segments.shutdown_evidence`), and nothing but `.lock` is written beside them, unless a log start above the
first segment must be kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Self

from seglog.arguments import acting_as, flag, instance
from seglog.clock import Clock, SystemClock
from seglog.configuration.keys import LogConfig
from seglog.configuration.settings import DirectorySettings
from seglog.doors import door
from seglog.errors import RefusedError
from seglog.format import filenames
from seglog.locations import parse_location
from seglog.log.checkpoints import CleanShutdownMarker, OffsetCheckpoint, room_to_close
from seglog.log.loader import LoadOptions, RecoveryProgress, RecoveryReport, plan_recovery
from seglog.log.log import Log
from seglog.log.producer_state import DEFAULT_EXPIRATION_MS
from seglog.log.read_loader import LogPlace, ViewingFileSystem
from seglog.log.segments import shutdown_evidence
from seglog.model import TopicPartition
from seglog.scan.listing import (
    OFFSET_CHECKPOINTS,
    LogDirectoryListing,
    list_log_directory,
    list_partition,
    require_batches,
)
from seglog.scan.view import require_no_run
from seglog.storage import links
from seglog.storage.adapters import InheritingFileSystem, NoticingFileSystem
from seglog.storage.filesystem import TEMPORARY_SUFFIX, FileSystem
from seglog.storage.lock import DirectoryLock
from seglog.storage.overlay import TrialFileSystem
from seglog.storage.room import freeing, require_room
from seglog.storage.routing import machine_files
from seglog.storage.trust import require_trust
from seglog.units import count_text

ConfigOf = Callable[[str], LogConfig]
Offsets = dict[TopicPartition, int | None]

# The checkpoints that seglog itself may leave beside lone partitions; a broker's directory has others too.
_WITHOUT_BROKER = {filenames.CLEANER_OFFSET_CHECKPOINT, filenames.LOG_START_OFFSET_CHECKPOINT}
_REPLACED_FILES = (
    *OFFSET_CHECKPOINTS,
    filenames.CLEAN_SHUTDOWN_FILE,
    filenames.SEGLOG_RUN_FILE,
    filenames.APPEND_JOURNAL_FILE,
    filenames.STREAMS_FILE,
)


class LogDirectory:
    """A directory of partitions, open for reading or, with `writable` and holding its lock, for everything.

    A log open for reading stays as it was when it was opened, whatever a broker does meanwhile. The four dictionaries
    hold the checkpoints as last read or written.
    """

    def __init__(
        self,
        path: Path,
        *,
        fs: FileSystem,
        clock: Clock,
        config_of: ConfigOf,
        writable: bool,
        lock: DirectoryLock | None = None,
        producer_expiration_ms: int | None = None,
    ) -> None:
        # A file that a broker's user cannot open keeps the broker from starting: new files inherit their owner.
        self._views = None if writable else ViewingFileSystem(fs, path)
        self.fs: FileSystem = InheritingFileSystem(fs) if self._views is None else self._views
        self.path, self.clock, self.writable = path, clock, writable
        # a topic may have thousands of partitions, and each asks several times
        self._config_of, self._named = cache(config_of), cache(filenames.partition_named)
        if producer_expiration_ms is None:
            producer_expiration_ms = DEFAULT_EXPIRATION_MS
            if isinstance(config_of, DirectorySettings):
                producer_expiration_ms = config_of.producer_expiration_ms
        self._lock, self._expiration_ms = lock, producer_expiration_ms
        self.listing: LogDirectoryListing = list_log_directory(fs, path)
        self._marker = CleanShutdownMarker(self.fs, path)
        self._checkpoints = {
            name: OffsetCheckpoint(self.fs, path / name, tolerant=not writable) for name in OFFSET_CHECKPOINTS
        }
        self._log_fs = NoticingFileSystem(self.fs, self._before_change) if writable else self.fs
        self._changed: set[Path] = set()  # partition directories
        self._change_guard = threading.Lock()
        self._logs: dict[Path, Log] = {}
        self._closed: set[Path] = set()
        self._noted: dict[str, Offsets] = {name: {} for name in OFFSET_CHECKPOINTS}  # for checkpoints, of closed logs
        self._end_at_open: dict[Path, int] = {}
        self._in_tier: set[Path] = set()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        config_of: ConfigOf | None = None,
        writable: bool = False,
        take_lock: bool = True,
        settle: bool = True,
        producer_expiration_ms: int | None = None,
    ) -> Self:
        """Opens the directory, not yet its logs. `config_of` returns a topic's configuration (default: Kafka's
        defaults). `fs` and `clock` default to the machine's.

        With `writable` it takes the broker's lock (LockedError), unless the caller holds it (`take_lock` false), and
        settles an interrupted append to several partitions if possible (unless `settle` is false). Raises NotALogError,
        and CorruptCheckpointError if a broker would take the directory offline.
        """
        path = path if isinstance(path, Path) else links.resolve(parse_location(path))
        fs = machine_files() if fs is None else acting_as("fs", fs, FileSystem)
        clock = SystemClock() if clock is None else acting_as("clock", clock, Clock)
        writable = flag("writable", writable)
        config_of = config_of or (lambda _: LogConfig())
        lock = None
        if writable and take_lock:
            list_log_directory(fs, path)  # a missing directory is reported before its lock file
            lock = DirectoryLock(path)
            lock.acquire()
        try:
            if writable:
                _refuse_unfinished(fs, path)
                _drop_half_written(fs, path)
            common = partial(
                cls,
                path,
                fs=fs,
                clock=clock,
                config_of=config_of,
                writable=writable,
                producer_expiration_ms=producer_expiration_ms,
            )
            if writable and settle and fs.status(path / filenames.APPEND_JOURNAL_FILE, follow=False):
                door("staged append")(fs, path, common)
            return common(lock=lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def __repr__(self) -> str:
        how = "writing" if self.writable else "reading"
        return f"<LogDirectory {self.path}: {count_text(len(self.listing.live), 'partition')}, for {how}>"

    # --- checkpoints and listing as read

    @property
    def is_broker_directory(self) -> bool:
        """True if checkpoints, marker or `meta.properties` show that a broker (or seglog) keeps the directory."""
        kept = self.listing.checkpoints.keys() - _WITHOUT_BROKER
        return bool(kept) or self._marker.found or self.listing.meta_properties is not None

    @property
    def clean_shutdown(self) -> bool:
        """True if the clean-shutdown marker existed when the directory was opened."""
        return self._marker.found

    @property
    def recovery_points(self) -> dict[TopicPartition, int]:
        """Each partition's first offset not known to be flushed."""
        return self._checkpoints[filenames.RECOVERY_POINT_CHECKPOINT].offsets

    @property
    def log_start_offsets(self) -> dict[TopicPartition, int]:
        """Log start offsets above the first segment's base."""
        return self._checkpoints[filenames.LOG_START_OFFSET_CHECKPOINT].offsets

    @property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """High watermarks as a broker last wrote them."""
        return self._checkpoints[filenames.HIGH_WATERMARK_CHECKPOINT].offsets

    @property
    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """The first dirty offset of each cleaned partition."""
        return self._checkpoints[filenames.CLEANER_OFFSET_CHECKPOINT].offsets

    @property
    def problems(self) -> tuple[str, ...]:
        """The damage of checkpoints that count as empty, as sentences."""
        return tuple(checkpoint.damage for checkpoint in self._checkpoints.values() if checkpoint.damage)

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The live partitions."""
        return tuple(found.topic_partition for found in self.listing.live)

    @property
    def log_files(self) -> FileSystem:
        """The file system for changes to logs: it removes the clean-shutdown marker before the first one."""
        return self._log_fs

    # --- logs

    def log(
        self, topic_partition: TopicPartition, create: bool = False, progress: RecoveryProgress | None = None
    ) -> Log:
        """Returns the partition's log, opened at first use. Raises NotALogError if it is missing, unless `create`."""
        key = instance("topic_partition", topic_partition, TopicPartition, "a seglog.TopicPartition")
        directory = self.path / str(key)
        if flag("create", create) and self.writable and self.fs.status(directory) is None:
            problem = filenames.topic_name_problem(topic_partition.topic)
            if problem is not None:
                raise RefusedError(f"{directory}: {problem}")
            self._log_fs.make_directory(directory)
            self.fs.sync_directory(self.path)
        return self.log_in(directory, progress)

    def log_in(self, directory: Path, progress: RecoveryProgress | None = None, recover_from: int | None = None) -> Log:
        """Returns the log in `directory`, a sub-directory of this one; its name need not be a partition's.

        With `recover_from` it is recovered from that offset on, regardless of marker and checkpoints.
        """
        return self.log_by(directory, partial(self.load_options, directory, progress, recover_from))

    def log_by(self, directory: Path, options_of: Callable[[], LoadOptions]) -> Log:
        """Returns the log in `directory` as `log_in` does, opened by these options (`load_options`)."""
        if directory in self._logs:
            return self._logs[directory]
        if self.writable:
            return self._kept(self._opened_for_writing(directory, self._log_fs, options_of()))
        config = self._config_of(self._named(directory)[0].topic)
        place = LogPlace(self._log_fs, directory, self.clock, self._log_start_of(directory), options_of)
        return self._kept(Log.open_for_reading(place, config))

    @contextmanager
    def try_log(
        self, directory: Path, progress: RecoveryProgress | None = None, recover_from: int | None = None
    ) -> Iterator[Log]:
        """Opens the log as `log_in` would for writing, but with every change in memory; closes it at the end of the
        `with` unless it was kept (`keep`)."""
        trial = TrialFileSystem(self._log_fs)
        options = replace(self.load_options(directory, progress, recover_from), writable=True)
        log = self._opened_for_writing(directory, trial, options)
        log.recovery.room = trial.overlay.room
        try:
            yield log
        finally:
            if self._logs.get(directory) is not log:
                for segment in log.segments:
                    segment.close_files()
                trial.overlay.close_files()
                self.let_go(directory)

    def keep(self, tried: Log, recover_from: int | None = None) -> Log:
        """Returns a tried log as `log_in` does. What the trial changed in indexes and other files derived from the
        batches is written as it is; where it changed a `.log`, the log is opened again, which is safe at every moment.
        """
        trial = tried.fs
        assert isinstance(trial, TrialFileSystem)
        if any(filenames.FileKind.LOG.value in path.suffixes for path in trial.written):
            return self.log_in(tried.directory, recover_from=recover_from)
        for segment in tried.segments:
            segment.close_files()
        trial.keep()
        return self._kept(tried)

    def let_go(self, directory: Path) -> None:
        """Closes what reading holds of a partition whose log is not open; the next look finds it as it is then."""
        if self._views is not None and directory not in self._logs:
            self._views.let_go(directory)

    def _opened_for_writing(self, directory: Path, fs: FileSystem, options: LoadOptions) -> Log:
        topic = self._named(directory)[0].topic
        if topic == filenames.CLUSTER_METADATA_TOPIC:
            raise RefusedError(f"{directory}: the controller's own log is not written by seglog")
        return Log.open(directory, self._config_of(topic), fs=fs, clock=self.clock, options=options)

    def _kept(self, log: Log) -> Log:
        self._logs[log.directory], self._end_at_open[log.directory] = log, log.log_end_offset
        if self.begins_before(log.directory, log.segments.first.base_offset):
            self._in_tier.add(log.directory)
        return log

    def _log_start_of(self, directory: Path) -> int:
        """The log start in the checkpoint. In a broker's directory its entries are for live partitions only."""
        topic_partition, is_known = self._named(directory)
        return self.log_start_offsets.get(topic_partition, 0) if is_known or not self.is_broker_directory else 0

    def _before_change(self, path: Path) -> None:
        """Step 3 of opening."""
        with self._change_guard:
            if not self._changed:
                self._marker.remove()
            self._changed.add(path.parent)

    def load_options(
        self, directory: Path, progress: RecoveryProgress | None = None, recover_from: int | None = None
    ) -> LoadOptions:
        """Returns how to open the log in `directory`: by checkpoints and marker, or by the evidence in its files."""
        require_batches(self.fs, directory)
        topic_partition, is_known = self._named(directory)
        clean, recovery_point = self.clean_shutdown, self.recovery_points.get(topic_partition, 0)
        if not self.is_broker_directory or not is_known:
            clean, recovery_point = shutdown_evidence(self.fs, list_partition(self.fs, directory))
        if recover_from is not None:
            clean, recovery_point = False, recover_from
        return LoadOptions(
            clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=self._log_start_of(directory),
            writable=self.writable,
            index_interval_bytes=self._config_of(topic_partition.topic).index_interval_bytes,
            producer_expiration_ms=self._expiration_ms,
            progress=progress,
        )

    def plan_recovery(
        self, topic_partition: TopicPartition, progress: RecoveryProgress | None = None, recover_from: int | None = None
    ) -> RecoveryReport:
        """Returns what opening the log for writing would do; changes nothing. Raises NotALogError if it is missing."""
        return self.plan_recovery_in(self.path / str(topic_partition), progress, recover_from)

    def plan_recovery_in(
        self, directory: Path, progress: RecoveryProgress | None = None, recover_from: int | None = None
    ) -> RecoveryReport:
        """Returns what opening the log in a sub-directory of any name for writing would do; changes nothing."""
        plan = replace(self.load_options(directory, progress, recover_from), writable=True)
        return plan_recovery(self.fs, directory, self.clock, plan)

    def load_all(self) -> list[Log]:
        """Opens every live partition, in order, as a starting broker does."""
        return [self.log_in(found.path) for found in self.listing.live]

    def is_known(self, directory: Path) -> bool:
        """True if checkpoints and marker apply to this directory: its name is a live partition's."""
        return self._named(directory)[1]

    def begins_before(self, directory: Path, first_base: int) -> bool:
        """True if a clean broker left a log start before the first segment, as for tiered topics."""
        topic_partition, is_known = self._named(directory)
        start = self.log_start_offsets.get(topic_partition)
        return start is not None and start < first_base and self.clean_shutdown and is_known

    # --- checkpoints

    def _note(self, log: Log) -> None:
        """Notes a log's recovery point, log start and high watermark for the checkpoints."""
        if self.is_broker_directory and not self.is_known(log.directory):
            return  # the entry would be the live partition's, or one with a name that no broker gives
        noted, key, start = self._noted, log.topic_partition, log.log_start_offset
        # A right entry stays even if the first segment now begins there: undo brings back what was below. A tiered
        # topic's lower entry is the broker's: the offsets below lie in the tier.
        known = self.log_start_offsets.get(key)
        needed = start > log.segments.first.base_offset or known == start
        is_tiered = log.config.remote_storage_enable or log.directory in self._in_tier
        stays = is_tiered and known is not None and known < start
        if not stays and (needed or (known is not None and self.is_broker_directory)):
            noted[filenames.LOG_START_OFFSET_CHECKPOINT][key] = start if needed else None
        if self.is_broker_directory:
            noted[filenames.RECOVERY_POINT_CHECKPOINT][key] = log.recovery_point
            noted[filenames.HIGH_WATERMARK_CHECKPOINT][key] = self._high_watermark_of(log)
            if self.cleaner_offsets.get(key, 0) > log.log_end_offset:
                noted[filenames.CLEANER_OFFSET_CHECKPOINT][key] = log.segments.active.base_offset

    def _high_watermark_of(self, log: Log) -> int:
        """The broker's own high watermark while the log keeps its length: replicas may still lag."""
        known = self.high_watermarks.get(log.topic_partition)
        if known is None or log.log_end_offset != self._end_at_open.get(log.directory):
            return log.high_watermark
        return max(log.log_start_offset, min(known, log.log_end_offset))

    def write_cleaner_offset(self, topic_partition: TopicPartition, offset: int | None) -> None:
        """Sets the first dirty offset of a partition, or removes it; durable on return."""
        if not self.writable:
            raise RefusedError(f"{self.path}: the log directory is open for reading only")
        self._checkpoints[filenames.CLEANER_OFFSET_CHECKPOINT].update({topic_partition: offset})

    # --- closing

    def close(self, clean: bool = True) -> None:
        """Closes the open logs: with `clean` as in a controlled stop (steps above), else as they are.

        An error while closing leaves the directory unclean and is raised after everything is closed.
        """
        try:
            if self.writable and clean:
                self._close_clean()
        finally:
            for log in [*self._logs.values()]:
                self.close_log(log, clean=False)
            if self._views is not None:
                self._views.close()
            if self._lock is not None:
                self._lock.release()

    def close_log(self, log: Log, clean: bool = True) -> None:
        """Closes one log for good, as `close` does; checkpoints get its entries when the directory closes."""
        del self._logs[log.directory]
        if clean:
            log.close()
            self._closed.add(log.directory)
            if log.directory in self._changed or not self.clean_shutdown:
                self._note(log)
        for segment in log.segments:
            segment.close_files()

    def _close_clean(self) -> None:
        try:
            for log in [*self._logs.values()]:
                self.close_log(log)
        finally:  # each file is written once, because each write repeats the entries of thousands of partitions
            for name, offsets in self._noted.items():
                if offsets:
                    self._checkpoints[name].update(offsets)
        if self.clean_shutdown and not self._changed:
            return
        unopened = {found.path for found in list_log_directory(self.fs, self.path).live} - self._closed
        if unopened & self._changed:
            return  # a log whose opening failed midway is not as a broker would have left it
        if self.is_broker_directory and (self._marker.found or (not unopened and self._closed)):
            self._marker.write()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close(clean=error is None)


def require_room_to_recover(
    directory: LogDirectory,
    report: RecoveryReport,
    way_out: str = "",
    work: str = "it was not closed properly, recovering it",
) -> None:
    """Raises RefusedError if the disk of a log directory lacks room for what a planned recovery writes.

    `way_out` is what an operator can do about it (default: `retain --free`); `work` is what takes the room.
    """
    written = 0 if report.room is None else report.room.written
    if not written:
        return
    needed = written + room_to_close(directory.fs, directory.path)
    purpose = f"{work} takes up to {needed} bytes of disk space"
    require_room(directory.fs, Path(report.directory), needed, purpose, way_out or freeing(directory.path, needed))


def _drop_half_written(fs: FileSystem, path: Path) -> None:
    """Removes what a crash left of files that are replaced as a whole; brokers and seglog would overwrite it later."""
    for name in _REPLACED_FILES:
        temporary = path / f"{name}{TEMPORARY_SUFFIX}"
        found = fs.status(temporary, follow=False)
        if found is not None and not found.is_directory:
            fs.remove(temporary)


def _refuse_unfinished(fs: FileSystem, path: Path) -> None:
    marker = path / filenames.SEGLOG_RUN_FILE
    found = fs.status(marker, follow=False)
    if found is not None:
        require_trust(marker, found)
        require_no_run(fs, path)
