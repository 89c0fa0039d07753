"""Settling an interrupted append to several partitions (`staged_append`), with the lock held.

It is part of opening a log directory for writing, whoever opens it: what another program appended in half must not be
followed by other records. So the engine has a door to it, and it needs no PySpark.

1. If a stream's batch is recorded as appended, only the journal is left to remove.
2. Compare the log of each partition, from the append's start on, with the staged batches, byte for byte.
3. If nothing else follows them, cut every partition back to where the append began.
4. If another writer has written after a part of it, everything stays. A stream's batch is completed at the end of the
   logs, because its stream would send it again. A job's rows may not be wanted any more, so they are reported.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from seglog.errors import CorruptCheckpointError, IncompleteError, RefusedError, SeglogError
from seglog.log.directory import LogDirectory
from seglog.log.log import Log
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem
from seglog_ask.spark.staged_batches import Held, append_placed, held, placed_chunks
from seglog_ask.spark.staged_journal import (
    AppendJournal,
    Placement,
    StreamBatch,
    journal_path,
    last_batch,
    read_journal,
    record_batch,
    remove_journal,
    write_journal,
)

_logger = logging.getLogger("seglog.spark.staged_settling")


OpenDirectory = Callable[[], AbstractContextManager[LogDirectory]]


def settle_append(fs: FileSystem, log_directory: Path, open_directory: OpenDirectory) -> None:
    """Settles the interrupted append in a log directory, if there is one. `open_directory` opens it for writing.

    Raises RefusedError, with the logs and the journal as they were, if it cannot be settled; CorruptCheckpointError for
    a damaged journal; the errors of opening and truncating logs.
    """
    journal = read_journal(fs, log_directory)
    if journal is None:
        return
    stream = journal.stream
    if stream is None or last_batch(fs, log_directory, stream.query) != stream:
        with open_directory() as directory:
            _settle_logs(directory, journal)
    finish_append(fs, log_directory, journal)


def settle_if_possible(fs: FileSystem, log_directory: Path, open_directory: OpenDirectory) -> None:
    """Settles an interrupted append for a writer with other work: a failure is logged, and left to the next append."""
    try:
        settle_append(fs, log_directory, open_directory)
    except (SeglogError, OSError) as error:
        _logger.warning("%s: an append that was cut short is not settled: %s", log_directory, error)


def finish_append(fs: FileSystem, log_directory: Path, journal: AppendJournal) -> None:
    """Ends an append whose result is on stable storage, and removes its staged files."""
    remove_journal(fs, log_directory)
    _remove_staged(fs, journal.staging_path(log_directory), journal.file_names.__contains__)


def discard_staged(fs: FileSystem, log_directory: Path, staging: Path) -> None:
    """Removes the staged files of a write that has ended, except those that an unfinished append still needs."""
    kept: frozenset[str] = frozenset()
    with contextlib.suppress(CorruptCheckpointError, RefusedError):  # such a journal settles nothing
        journal = read_journal(fs, log_directory)
        if journal is not None and journal.staging == staging.name:
            kept = journal.file_names
    _remove_staged(fs, staging, lambda name: name not in kept)


def _remove_staged(fs: FileSystem, staging: Path, chosen: Callable[[str], bool]) -> None:
    """Removes staged files, and the staging directory if it is empty.

    The rows are safe in the logs, so a file that cannot be removed, or that a late task puts back, is only logged.
    """
    try:
        status = fs.status(staging, follow=False)
        if status is None or not status.is_directory:
            return
        for name in filter(chosen, fs.list(staging)):
            fs.remove(staging / name)
        if not fs.list(staging):
            fs.remove_directory(staging)
    except OSError as error:
        _logger.warning("%s: cannot be removed (%s); remove it by hand", staging, error)


def _settle_logs(directory: LogDirectory, journal: AppendJournal) -> None:
    staging = journal.staging_path(directory.path)
    logs = {
        placement.topic_partition: directory.log(placement.topic_partition)
        for placement in journal.placements
        if directory.fs.status(directory.path / str(placement.topic_partition)) is not None
    }
    found = {
        placement.topic_partition: _held(directory, logs[placement.topic_partition], staging, placement)
        for placement in journal.placements
        if placement.topic_partition in logs
    }
    if not journal.forward and not any(one.size and one.followed for one in found.values()):
        for placement in journal.placements:
            if placement.topic_partition in found and found[placement.topic_partition].size:
                _take_back(logs[placement.topic_partition], placement)
        return
    if journal.stream is None:
        raise _someone_wrote(directory, journal, found)
    _complete(directory, journal, journal.stream, found)


def _held(directory: LogDirectory, log: Log, staging: Path, placement: Placement) -> Held:
    if log.log_start_offset > placement.start:
        raise _unknown(directory, log, placement, f"records below offset {log.log_start_offset} were deleted since")
    try:
        found = held(log, staging, placement)
    except FileNotFoundError as error:
        raise _unknown(directory, log, placement, f"{error.filename} is gone") from error
    except IncompleteError as error:
        raise _unknown(directory, log, placement, str(error)) from error
    if found.followed and directory.cleaner_offsets.get(placement.topic_partition, 0) > placement.start:
        raise _unknown(directory, log, placement, "the log was cleaned since")
    return found


def _take_back(log: Log, placement: Placement) -> None:
    _logger.warning(
        "%s: offsets %d to %d are taken back, as the append that wrote them was cut short",
        log.directory,
        placement.start,
        log.log_end_offset - 1,
    )
    log.truncate_to(placement.start)


def _complete(
    directory: LogDirectory, journal: AppendJournal, stream: StreamBatch, found: dict[TopicPartition, Held]
) -> None:
    """Appends the missing part of a stream's batch."""
    placements, staging = [], journal.staging_path(directory.path)
    for placement in journal.placements:
        log = directory.log(placement.topic_partition, create=True)
        present = found[placement.topic_partition].size if placement.topic_partition in found else 0
        rest = replace(placement, start=log.log_end_offset, epoch=log.leader_epoch, skipped=placement.skipped + present)
        _check_rest(directory, log, staging, rest)
        placements.append(rest)
    write_journal(directory.fs, directory.path, replace(journal, placements=tuple(placements), forward=True))
    for placement in placements:
        append_placed(directory.log(placement.topic_partition), staging, placement)
    record_batch(directory.fs, directory.path, stream)
    _logger.warning("%s: batch %d of stream %s, which was cut short, is completed", directory.path, stream.number,
                    stream.query)  # fmt: skip


def _check_rest(directory: LogDirectory, log: Log, staging: Path, rest: Placement) -> None:
    """Raises RefusedError if the missing batches have offsets of their own that others have taken."""
    try:
        first = next(placed_chunks(directory.fs, staging, rest), None)
    except FileNotFoundError as error:
        raise _unknown(directory, log, rest, f"{error.filename} is gone") from error
    if first is not None and first.first_offset < rest.start:
        raise _unknown(directory, log, rest, f"its rows go on at offset {first.first_offset}, which others have taken")


def _someone_wrote(directory: LogDirectory, journal: AppendJournal, found: dict[TopicPartition, Held]) -> RefusedError:
    places = ", ".join(
        f"{placement.topic_partition} from offset {placement.start} on"
        for placement in journal.placements
        if placement.topic_partition in found
        and found[placement.topic_partition].size
        and found[placement.topic_partition].followed
    )
    return RefusedError(
        f"{directory.path}: a write was interrupted here, and another writer has written after it ({places}); nothing"
        f" was changed. Remove {journal_path(directory.path)} to keep everything; a job that runs again writes its rows"
        " once more"
    )


def _unknown(directory: LogDirectory, log: Log, placement: Placement, why: str) -> RefusedError:
    return RefusedError(
        f"{log.directory}: a write was interrupted here at offset {placement.start}, and its records cannot be told"
        f" from others: {why}; nothing was changed. Remove {journal_path(directory.path)} to keep everything; a job"
        " or stream that runs again writes its rows once more"
    )
