"""Runs the cleaner as a service over one log directory, without a broker (Kafka: LogCleaner).

A pass:

1. Look, without a lock and without changing anything, whether a log is due for cleaning or retention. If none is, rest.
2. Take the directory's lock and open its compacted logs. A log whose opening would cut off damage becomes uncleanable.
3. Cleaner threads take the filthiest log, clean it, write its checkpoint, and ask again until nothing is eligible. They
   share the dedupe buffer and the throttle.
4. Apply retention to the compacted logs: always the log start, and size and time if the policy is compact,delete.
5. Close, release the lock, and rest for `log.cleaner.backoff.ms`.

Between passes the lock is free, so that `seglog append` or `repair` can work on the directory. If a broker
starts and takes it, the service waits. A stop takes effect at the next read or write of a round or of opening a log:
the round's unfinished output is removed, the checkpoint stays, and the next pass begins the round again. Only short
steps cannot be stopped: the renames of a swap, and an fsync, most of whose data is already with the disk (`output`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from seglog.cleaner.cleaner import clean_log
from seglog.cleaner.dirtiness import LogToClean
from seglog.cleaner.manager import CleanerManager, Uncleanable, fingerprint_of
from seglog.cleaner.output import CleaningResult
from seglog.cleaner.round import OFFSET, CleanerOptions, Strategy
from seglog.clock import Clock
from seglog.configuration.keys import COMPACT, DELETE, CleanerConfig, LogConfig
from seglog.configuration.precedence import ResolvedConfig
from seglog.configuration.settings import DirectorySettings
from seglog.errors import ConfigError, CorruptionError, SeglogError
from seglog.kafka_version import SPOKEN_FOR, KafkaVersion
from seglog.log.checkpoints import check_checkpoints
from seglog.log.directory import LogDirectory
from seglog.log.log import Log
from seglog.log.opening import open_undamaged
from seglog.log.retention import RetentionPlan, apply_retention, plan_retention, remove_deleted
from seglog.model import TopicPartition
from seglog.operations.retain import stated_retention
from seglog.scan.listing import list_log_directory
from seglog.storage.filesystem import FileSystem
from seglog.storage.metered_files import CleaningStoppedError, Gate, GatedFileSystem, Throttle

_logger = logging.getLogger(__name__)

_SLICE_SECONDS = 0.2
_UNLIMITED = 1e300  # log.cleaner.io.max.bytes.per.second is the largest double unless set


class Listener(Protocol):
    """Receives events, on any thread."""

    def cleaned(self, result: CleaningResult, thread: int) -> None: ...

    def retained(self, plan: RetentionPlan) -> None: ...

    def uncleanable(self, found: Uncleanable) -> None: ...

    def problem(self, sentence: str) -> None: ...

    def passed(self, outcome: PassOutcome) -> None: ...


@dataclass(slots=True)
class PassOutcome:
    """The outcome of a pass. `logs` tells how dirty each open compacted log is after it."""

    results: list[CleaningResult] = field(default_factory=list)
    retained: list[RetentionPlan] = field(default_factory=list)
    logs: list[LogToClean] = field(default_factory=list)
    error: SeglogError | None = None  # the error that ended the pass early
    ended_ms: int = 0


class CleanerService:
    """Cleans the compacted logs of `log_directory` again and again until `stop` is set.

    `topics` returns the configuration and is called before every pass. `config` holds the broker-level cleaner keys;
    its threads share the dedupe buffer equally.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_directory: Path,
        topics: Callable[[], DirectorySettings],
        config: CleanerConfig,
        clock: Clock,
        listener: Listener,
        *,
        strategy: Strategy = OFFSET,
        kafka: KafkaVersion = SPOKEN_FOR,
    ) -> None:
        if config.threads < 1:
            raise ConfigError(f"log.cleaner.threads is {config.threads}: the service needs at least one thread")
        self.log_directory, self.config, self.clock, self.listener = log_directory, config, clock, listener
        self.stop = threading.Event()
        self.uncleanable: dict[TopicPartition, Uncleanable] = {}
        self._topics = topics
        rate = config.io_max_bytes_per_second
        throttle = Throttle(rate, clock, stopped=self.stop.is_set) if rate < _UNLIMITED else None
        self._gate = Gate(throttle, self.stop.is_set)
        self._fs: FileSystem = GatedFileSystem(fs, self._gate)
        self._plain_fs = fs
        self.failure: SeglogError | None = None  # the error that ended the last pass early
        self._options = CleanerOptions(
            dedupe_buffer_bytes=config.dedupe_buffer_size // config.threads,
            load_factor=config.io_buffer_load_factor,
            strategy=strategy,
            kafka=kafka,
        )
        self._failed_threads: list[BaseException] = []
        self._deleted: list[tuple[int, list[Path]]] = []  # `.deleted` files, and when to remove them
        self._noted: set[tuple[str, str]] = set()  # reported: topics, and why they are left alone

    def run(self, passes: int | None = None) -> None:
        """Runs passes until `stop` is set, or that many. Operating system errors and unexpected errors end it."""
        done = 0
        while not self.stop.is_set():
            outcome = self.run_pass()
            self.failure = outcome.error
            self.listener.passed(outcome)
            done += 1
            if passes is not None and done >= passes:
                return
            self._rest()

    def _rest(self) -> None:
        left = self.config.backoff_ms / 1000
        while left > 0 and not self.stop.is_set():
            self.clock.sleep(min(left, _SLICE_SECONDS))
            left -= _SLICE_SECONDS

    def run_pass(self) -> PassOutcome:
        """Runs one pass. An error in a partition makes that partition uncleanable. A held lock only ends the pass."""
        outcome = PassOutcome()
        self._remove_due()
        try:
            topics = self._topics()
            check_checkpoints(self._plain_fs, self.log_directory)
            if self._something_is_due(topics, outcome):
                self._work(topics, outcome)
        except CleaningStoppedError:
            _logger.info("%s: stopped while its logs were opened", self.log_directory)
        except SeglogError as error:
            outcome.error = error
            self.listener.problem(str(error))
        outcome.ended_ms = self.clock.now_ms()
        return outcome

    # --- step 1

    def _something_is_due(self, topics: DirectorySettings, outcome: PassOutcome) -> bool:
        """Returns True if cleaning or retention is due. Opens the compacted logs only for reading."""
        directory = self._directory(topics, writable=False)
        try:
            with self._gate.opening():
                logs = self._open(directory, topics)
                outcome.logs = self._manager(directory, logs).candidates()
                retained = [plan_retention(log, self.clock.now_ms(), _watermark(directory, log)) for log in logs]
                return any(found.eligible for found in outcome.logs) or any(not plan.empty for plan in retained)
        finally:
            directory.close()

    # --- steps 2 to 5

    def _work(self, topics: DirectorySettings, outcome: PassOutcome) -> None:
        directory = self._directory(topics, writable=True)
        clean = False
        try:
            with self._gate.opening():
                manager = self._manager(directory, self._open(directory, topics))
            self._clean_in_threads(manager, outcome)
            if not self.stop.is_set():
                self._retain(directory, manager, outcome)
                outcome.logs = manager.candidates()
            clean = True
        finally:
            directory.close(clean)
        if self._failed_threads:
            raise self._failed_threads[0]

    def _directory(self, topics: DirectorySettings, *, writable: bool) -> LogDirectory:
        return LogDirectory.open(
            self.log_directory,
            fs=self._fs,
            clock=self.clock,
            config_of=lambda topic: self._config_of(topics.resolve(topic), topic),
            writable=writable,
        )

    def _config_of(self, resolved: ResolvedConfig, topic: str) -> LogConfig:
        """Returns a topic's configuration, without retention if that contradicts the cluster."""
        config, refusal = stated_retention(resolved), resolved.refusal(DELETE)
        if not refusal:
            return config
        self._tell_refusal(topic, "retention", refusal)
        return replace(config, cleanup_policy=config.cleanup_policy - {DELETE})

    def _tell_refusal(self, topic: str, what: str, refusal: str) -> None:
        """Reports a refusal once, not in every pass."""
        if (topic, refusal) not in self._noted:
            self._noted.add((topic, refusal))
            self.listener.problem(f"{topic}: no {what}: {refusal}")

    def _open(self, directory: LogDirectory, topics: DirectorySettings) -> list[Log]:
        """Opens the logs that are known to be compacted. A damaged one becomes uncleanable."""
        logs = []
        for found in list_log_directory(self._plain_fs, self.log_directory).live:
            resolved = topics.resolve(found.topic_partition.topic)
            if not (resolved.policy_known and resolved.log.compact) or self._still_uncleanable(found.topic_partition):
                continue
            refusal = resolved.refusal(COMPACT)
            if refusal:
                self._tell_refusal(found.topic_partition.topic, "cleaning", refusal)
                continue
            try:
                logs.append(open_undamaged(directory, found.path))
            except CorruptionError as error:
                self._unopened(found.topic_partition, error)
        return logs

    def _still_uncleanable(self, topic_partition: TopicPartition) -> bool:
        found = self.uncleanable.get(topic_partition)
        if found is None or found.fingerprint is None:
            return False
        return fingerprint_of(self._plain_fs, self.log_directory / str(topic_partition)) == found.fingerprint

    def _unopened(self, topic_partition: TopicPartition, error: CorruptionError) -> None:
        path = self.log_directory / str(topic_partition)
        fingerprint = fingerprint_of(self._plain_fs, path)
        size = sum(entry[1] for entry in fingerprint if entry[0].endswith(".log"))
        uncleanable = Uncleanable(topic_partition, str(error), fingerprint, size)
        self.uncleanable[topic_partition] = uncleanable
        self.listener.uncleanable(uncleanable)

    def _manager(self, directory: LogDirectory, logs: list[Log]) -> CleanerManager:
        return CleanerManager(directory, logs, self.clock, self.uncleanable)

    # --- step 3

    def _clean_in_threads(self, manager: CleanerManager, outcome: PassOutcome) -> None:
        """Runs the cleaner threads to their end. An exception in this thread (a signal) stops them first."""
        threads = [
            threading.Thread(target=self._thread, args=(number, manager, outcome), name=f"seglog-cleaner-{number}")
            for number in range(self.config.threads)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            self.stop.set()
            for thread in threads:
                thread.join()
            raise

    def _thread(self, number: int, manager: CleanerManager, outcome: PassOutcome) -> None:
        try:
            while not self.stop.is_set():
                with self._gate.opening():
                    taken = manager.take_filthiest()
                if taken is None:
                    return
                self._clean(number, manager, *taken, outcome)
        except CleaningStoppedError:
            return  # between rounds, while looking for the filthiest log
        except BaseException as error:  # noqa: BLE001 (handed to the thread that waits)
            self._failed_threads.append(error)
            self.stop.set()

    def _clean(self, number: int, manager: CleanerManager, log: Log, found: LogToClean, outcome: PassOutcome) -> None:
        key = found.topic_partition
        try:
            with self._gate.cleaning():
                result = clean_log(log, self._options, self.clock, found.first_dirty_offset)
        except CleaningStoppedError:
            manager.release(key)
        except (SeglogError, OSError) as error:
            self.listener.uncleanable(manager.failed(key, error))
        else:
            manager.done(found, result.end_offset)
            outcome.results.append(result)
            self.listener.cleaned(result, number)

    # --- step 4

    def _retain(self, directory: LogDirectory, manager: CleanerManager, outcome: PassOutcome) -> None:
        for topic_partition in manager.topic_partitions:
            log = None if self.stop.is_set() else manager.take(topic_partition)
            if log is None:
                continue
            try:
                plan = plan_retention(log, self.clock.now_ms(), _watermark(directory, log))
                if not plan.empty:
                    due_ms = self.clock.now_ms() + log.config.file_delete_delay_ms
                    self._deleted.append((due_ms, apply_retention(log, plan)))
                    outcome.retained.append(plan)
                    self.listener.retained(plan)
            except (SeglogError, OSError) as error:
                self.listener.uncleanable(manager.failed(topic_partition, error))
            else:
                manager.release(topic_partition)

    def _remove_due(self) -> None:
        """Removes `.deleted` files whose delay is over. Opening a log removes those of an earlier service."""
        now_ms = self.clock.now_ms()
        for due_ms, paths in self._deleted:
            if due_ms <= now_ms:
                with contextlib.suppress(FileNotFoundError):  # a broker that has started removes them too
                    remove_deleted(self._plain_fs, paths)
        self._deleted = [(due_ms, paths) for due_ms, paths in self._deleted if due_ms > now_ms]


def _watermark(directory: LogDirectory, log: Log) -> int | None:
    """Returns the high watermark that a broker left, or None."""
    return directory.high_watermarks.get(log.topic_partition)
