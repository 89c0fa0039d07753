"""Opening one log: to read it as it is now, or to change it only where that loses nothing.

A log that was not closed properly is recovered when it is opened for writing, and recovery cuts it at the first damage
(Kafka: LogLoader.recoverLog). Cleaning and retention must not do that on the side: they ask first what opening would
cut, and refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import CorruptRecordError, IncompleteError, SeglogError
from seglog.format.filenames import (
    LOG_START_OFFSET_CHECKPOINT,
    parse_topic_partition,
    segment_file_name,
    topic_partition_of,
)
from seglog.log.checkpoints import OffsetCheckpoint
from seglog.log.directory import ConfigOf, LogDirectory
from seglog.log.loader import LoadOptions, RecoveryReport, plan_recovery
from seglog.log.log import Log
from seglog.log.read_loader import Place
from seglog.log.viewed_directory import ViewingFileSystem
from seglog.scan.listing import list_partition, require_directory, require_partition
from seglog.storage import links
from seglog.storage.filesystem import FileSystem


@contextmanager
def opened_for_reading(directory: Path, *, fs: FileSystem, clock: Clock, config_of: ConfigOf) -> Iterator[Log]:
    """The log in `directory` as it is now, whatever a broker does meanwhile. Of the log directory around it only the
    checkpoint of log starts is read, unless somebody asks how the log was closed.

    NotALogError when it is missing, or is no partition: by name or by what is in it.
    """
    directory = links.resolve(directory)
    require_directory(fs, directory)
    require_partition(fs, directory)
    topic_partition, views = topic_partition_of(directory), ViewingFileSystem(fs, directory.parent)

    def options_of() -> LoadOptions:
        with LogDirectory.open(directory.parent, fs=views, clock=clock, config_of=config_of) as around:
            return around.load_options(directory)

    starts = OffsetCheckpoint(fs, directory.parent / LOG_START_OFFSET_CHECKPOINT, tolerant=True).offsets
    start = starts.get(topic_partition, 0)
    if start and parse_topic_partition(directory.name) is None:
        start = options_of().log_start_offset  # a broker's entry speaks of the live partition, not of this one
    log = None
    try:
        log = Log.open_for_reading(Place(views, directory, clock, start, options_of), config_of(topic_partition.topic))
        yield log
    finally:
        if log is not None:
            log.close()
        views.close()


def open_undamaged(directory: LogDirectory, partition: Path) -> Log:
    """The log in `partition`, a sub-directory of `directory`, opened as that was.

    CorruptRecordError when opening it for writing would cut off anything; then nothing was changed. IncompleteError
    where a file may not be read, or vanished.
    """
    try:
        options = replace(directory.load_options(partition), writable=True)
        if not options.clean_shutdown or _may_start_beyond_its_end(directory, partition, options):
            refuse_losses(plan_recovery(directory.fs, partition, directory.clock, options))
        return directory.log_in(partition)
    except SeglogError:
        raise  # also a link that is not followed, which is a PermissionError too
    except (PermissionError, FileNotFoundError) as error:
        raise IncompleteError(f"{error.filename or partition}: {error.strerror or error}") from error


def _may_start_beyond_its_end(directory: LogDirectory, partition: Path, options: LoadOptions) -> bool:
    """Whether the log start in the checkpoint lies in or beyond the last segment: a log that ends below its start is
    dropped whole, after a clean stop too."""
    segments = list_partition(directory.fs, partition).segments
    return bool(segments) and options.log_start_offset > segments[-1].base_offset


def refuse_losses(report: RecoveryReport) -> None:
    """CorruptRecordError when the recovery would cut anything off, or put less in the place of a log."""
    if not report.truncated_bytes:
        return
    for replaced in report.replaced:
        raise CorruptRecordError(
            replaced.path,
            f"{replaced.path.name}.swap would take its place, and holds less ({replaced.reason}): {replaced.size} bytes"
            " would be lost if no cleaning has made it. `seglog recover` finishes the swap as a broker does, and keeps"
            " what it replaces",
        )
    cut = next(iter(report.truncated_segments), None)
    base = cut.base_offset if cut is not None else report.deleted_segments[0]
    reason = (cut.reason if cut is not None else "") or "the segment lies after damage"
    if cut is None and report.log_end_offset == report.log_start_offset:
        reason = f"the log ends below its start {report.log_start_offset}, as log-start-offset-checkpoint has it"
    raise CorruptRecordError(
        report.directory / segment_file_name(base),
        f"{reason}; opening the log would cut {report.truncated_bytes} bytes: `seglog verify` shows the damage,"
        " `seglog verify --repair` loses the least, `seglog recover` does what a broker does",
        None if cut is None else cut.valid_bytes,
        None if cut is None else cut.next_offset,
    )
