"""Appending staged batches to several partitions of a log directory: all of them, or none.

1. Take the directory's lock, waiting for it: other appends hold it only for moments. Settle an interrupted append
   (`staged_settling`).
2. Skip a stream's batch that was appended before.
3. Write a journal of where each partition's batches go. It is on stable storage, like the staged files.
4. Append the batches as a replica does: segments, indexes, epochs, snapshots and checkpoints are those of any other
   append. Close the logs.
5. Record a stream's batch. Remove the journal: from here on the append is done.

A crash or an error before step 5 leaves the journal, and settling it takes the append back.

`staged_batches` makes and compares the batches, `staged_journal` keeps the journal, `staged_settling` settles an
interrupted append. `staged_objects` appends to partitions in an object store.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import LockedError
from seglog.log.directory import ConfigOf, LogDirectory
from seglog.log.log import Log
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import DirectoryLock
from seglog_ask.spark.staged_batches import append_placed, by_partition, check_staged, placed_at
from seglog_ask.spark.staged_journal import (
    AppendJournal,
    Placement,
    StagedFile,
    StreamBatch,
    journal_path,
    last_batch,
    record_batch,
    was_appended,
    write_journal,
)
from seglog_ask.spark.staged_settling import finish_append, settle_append, settle_if_possible

_logger = logging.getLogger("seglog.spark.staged_append")

_POLL_SECONDS = 0.05


class StagedAppend:
    """Appends to one existing log directory; `config_of` returns a topic's configuration.

    `lock_wait_ms` is how long to wait for another writer. `take_lock` false: the caller holds the lock.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_directory: Path,
        clock: Clock,
        config_of: ConfigOf,
        *,
        lock_wait_ms: int = 0,
        take_lock: bool = True,
    ) -> None:
        self._fs, self._path, self._clock, self._config_of = fs, log_directory, clock, config_of
        self._lock_wait_ms, self._take_lock = lock_wait_ms, take_lock

    def run(self, staging: Path, files: Sequence[StagedFile], stream: StreamBatch | None = None) -> int:
        """Appends the files; returns the records appended, 0 for a stream's batch that was appended before.

        `staging` is the directory of the files, beside the log directory; they stay there if this raises and cannot
        undo its changes. Raises LockedError, RefusedError, OffsetsOutOfOrderError, IncompleteError and the errors of
        opening and appending.
        """
        held = [file for file in files if file.records]
        if not held:
            return 0
        with self._locked():
            settle_append(self._fs, self._path, self._opened)
            if stream is not None and was_appended(self._path, last_batch(self._fs, self._path, stream.query), stream):
                return 0
            journal = None
            try:
                journal = self._append(staging, held, stream)
                if stream is not None:
                    record_batch(self._fs, self._path, stream)
                finish_append(self._fs, self._path, journal)
            except BaseException:
                self._give_up(journal)
                raise
        return sum(file.records for file in held)

    def _give_up(self, journal: AppendJournal | None) -> None:
        """Takes back a failed append; `journal` is None unless all of it was appended."""
        try:
            is_removed = self._fs.status(journal_path(self._path), follow=False) is None
            if journal is not None and journal.stream is None and is_removed:
                # its removal may be undone if the machine stops now, so its contents must stay true
                write_journal(self._fs, self._path, journal)
        except OSError as error:
            _logger.warning("%s: what was appended cannot be taken back: %s", self._path, error)
            return
        settle_if_possible(self._fs, self._path, self._opened)

    def _opened(self) -> LogDirectory:
        return LogDirectory.open(
            self._path,
            fs=self._fs,
            clock=self._clock,
            config_of=self._config_of,
            writable=True,
            take_lock=False,
            settle=False,
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if not self._take_lock:
            yield
            return
        lock, begun = DirectoryLock(self._path), self._clock.monotonic()
        while True:
            try:
                lock.acquire()
                break
            except LockedError:
                if (self._clock.monotonic() - begun) * 1000 >= self._lock_wait_ms:
                    raise
                self._clock.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            lock.release()

    def _append(self, staging: Path, files: Sequence[StagedFile], stream: StreamBatch | None) -> AppendJournal:
        with self._opened() as directory:
            chosen = by_partition(files)
            logs = {name: directory.log(name, create=True) for name in chosen}
            placements = tuple(self._placed(log, staging, chosen[name]) for name, log in logs.items())
            self._fs.sync_directory(staging)
            self._fs.sync_directory(staging.parent)
            journal = AppendJournal(staging.name, placements, stream)
            write_journal(self._fs, self._path, journal)
            for placement in placements:
                append_placed(logs[placement.topic_partition], staging, placement)
        return journal

    def _placed(self, log: Log, staging: Path, files: tuple[StagedFile, ...]) -> Placement:
        for file in files:
            check_staged(self._fs, staging, file)
        return placed_at(log.directory, log.log_end_offset, log.leader_epoch, files)
