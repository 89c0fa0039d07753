"""Appending staged batches to several partitions of a log directory: all of them, or none.

1. The directory's lock is taken; whoever else appends has it for moments only, so it is waited for. An append that was
   cut short is settled (`unfinished_append`).
2. A stream's batch that was appended before is not appended again.
3. A journal says where each partition's batches go. It is on stable storage, as the staged files are.
4. The batches are appended as a replica appends them: segments, indexes, epochs, snapshots and checkpoints are those
   of any other append. The logs are closed.
5. A stream's batch is recorded. The journal goes: from here on the append is done.

Whatever fails before step 5, a crash as well as an error, leaves the journal, and settling it takes the append back.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import LockedError, OffsetsOutOfOrderError, RefusedError
from seglog.log.append_journal import (
    AppendJournal,
    Placement,
    StagedFile,
    StreamBatch,
    last_batch,
    record_batch,
    write_journal,
)
from seglog.log.directory import ConfigOf, LogDirectory
from seglog.log.log import Log
from seglog.log.staged_batches import append_placed, check_staged
from seglog.log.unfinished_append import finish_append, is_unfinished, settle_append, settle_if_possible
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import DirectoryLock

_logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05


class StagedAppend:
    """Appends to one log directory, which is there; `config_of` gives a topic's configuration.

    `lock_wait_ms` is how long another writer is waited for. `take_lock` false: the caller holds the lock.
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
        """Records appended; 0 for a stream's batch that was appended before.

        `staging` is the directory of the files, beside the log directory; they stay there if this raises and cannot
        take back what it did. Raises LockedError, RefusedError, OffsetsOutOfOrderError, IncompleteError and what
        opening and appending raise.
        """
        held = [file for file in files if file.records]
        if not held:
            return 0
        with self._locked():
            settle_append(self._fs, self._path, self._opened)
            if stream is not None and self._was_appended(stream):
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
        """Takes an append back, of which `journal` is None unless all of it was appended."""
        try:
            if journal is not None and journal.stream is None and not is_unfinished(self._fs, self._path):
                # removed, but not for good if the machine stops now: what it says must be true then as well
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

    def _was_appended(self, stream: StreamBatch) -> bool:
        known = last_batch(self._fs, self._path, stream.query)
        if known is None or known.number < stream.number:
            return False
        if known.number == stream.number and (known.entry == stream.entry or not (known.entry and stream.entry)):
            return True
        raise RefusedError(
            f"{self._path}: stream {stream.query} has appended its batches up to {known.number}, and brings another"
            f" batch {stream.number}: its checkpoint was set back or copied. Give the stream a new checkpoint, and"
            " starting offsets that it has not read"
        )

    def _append(self, staging: Path, files: Sequence[StagedFile], stream: StreamBatch | None) -> AppendJournal:
        with self._opened() as directory:
            logs = {name: directory.log(name, create=True) for name in _names(files)}
            placements = tuple(self._placed(log, staging, _of(name, files)) for name, log in logs.items())
            self._fs.sync_directory(staging)
            self._fs.sync_directory(staging.parent)
            journal = AppendJournal(staging.name, placements, stream)
            write_journal(self._fs, self._path, journal)
            for placement in placements:
                append_placed(logs[placement.topic_partition], staging, placement)
        return journal

    def _placed(self, log: Log, staging: Path, files: tuple[StagedFile, ...]) -> Placement:
        end = log.log_end_offset
        for file in files:
            check_staged(self._fs, staging, file)
            if file.first_offset is None:
                continue
            if file.first_offset < log.log_end_offset:
                raise OffsetsOutOfOrderError(
                    f"{log.directory}: rows begin at offset {file.first_offset}, and the log ends at"
                    f" {log.log_end_offset}"
                )
            if file.first_offset < end:
                raise OffsetsOutOfOrderError(
                    f"{log.directory}: one task has rows up to offset {end - 1}, another from {file.first_offset} on;"
                    " two tasks with one partition must not overlap"
                )
            end = file.last_offset + 1
        return Placement(log.topic_partition, log.log_end_offset, log.leader_epoch, files)


def _names(files: Iterable[StagedFile]) -> list[TopicPartition]:
    return sorted({file.topic_partition for file in files})


def _of(name: TopicPartition, files: Iterable[StagedFile]) -> tuple[StagedFile, ...]:
    """The partition's files by offset, or in the order of the tasks."""
    chosen = [file for file in files if file.topic_partition == name]
    return tuple(sorted(chosen, key=lambda file: -1 if file.first_offset is None else file.first_offset))
