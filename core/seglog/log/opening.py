"""Opening one log: to read it as it is now, or to change it only where that loses nothing.

A log that was not closed properly is recovered when it is opened for writing, and recovery cuts it at the first damage
(Kafka: LogLoader.recoverLog). Cleaning and retention must not do that on the side: they ask first what opening would
cut, and refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import CorruptRecordError, IncompleteError, RefusedError, SeglogError
from seglog.format.filenames import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    parse_topic_partition,
    segment_file_name,
    topic_partition_of,
)
from seglog.log.checkpoints import OffsetCheckpoint
from seglog.log.directory import ConfigOf, LogDirectory
from seglog.log.loader import LoadOptions, RecoveryReport, plan_recovery
from seglog.log.log import Log
from seglog.log.read_loader import Place, ViewingFileSystem
from seglog.scan.listing import OFFSET_CHECKPOINTS, list_partition, require_directory, require_partition
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import BLOCK_BYTES, blocks
from seglog.storage.room import freeing

_AMPLE_BYTES = 64 << 20
_UNCLEAN = "it was not closed properly, recovering it"


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


def open_undamaged(directory: LogDirectory, partition: Path, way_out: str = "") -> Log:
    """The log in `partition`, a sub-directory of `directory`, opened as that was.

    CorruptRecordError when opening it for writing would cut off anything, RefusedError where the disk has no room for
    what it writes (with `way_out`, as `require_room`); then nothing was changed. IncompleteError where a file may not
    be read, or vanished.
    """
    try:
        options = replace(directory.load_options(partition), writable=True)
        if not options.clean_shutdown or _may_start_beyond_its_end(directory, partition, options):
            report = plan_recovery(directory.fs, partition, directory.clock, options)
            refuse_losses(report)
            if directory.writable:
                require_room(directory, report, way_out)
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


def room_to_close(directory: LogDirectory) -> int:
    """Bytes that closing a log directory may write: its checkpoints and the marker, one after the other made anew
    beside the old one."""
    names = (*OFFSET_CHECKPOINTS, CLEAN_SHUTDOWN_FILE)
    statuses = [directory.fs.status(directory.path / name) for name in names]
    largest = max(status.size if status is not None else 0 for status in statuses)
    return statuses.count(None) * BLOCK_BYTES + blocks(largest + BLOCK_BYTES)


def has_ample_room(directory: LogDirectory, partitions: Sequence[Path], recover_from: int | None = None) -> bool:
    """Whether the disk surely has room to recover these partitions, so that nobody need work out how much they take.

    With `recover_from` they are to be recovered from that offset on, whatever checkpoints say.
    """
    wanted = _AMPLE_BYTES
    for partition in partitions:
        options = directory.load_options(partition, recover_from=recover_from)
        segments = list_partition(directory.fs, partition).segments
        if not options.clean_shutdown:
            floor = max((s.base_offset for s in segments if s.base_offset <= options.recovery_point), default=0)
            wanted += sum(segment.size for segment in segments if segment.base_offset >= floor) // 2
    return directory.fs.free_bytes(directory.path) >= wanted


def require_room(directory: LogDirectory, report: RecoveryReport, way_out: str = "", work: str = _UNCLEAN) -> None:
    """RefusedError where the disk of a log directory has no room for what a planned recovery writes.

    `way_out` is what an operator can do about it: `retain --free`, unless given; `work` is what takes the room.
    """
    written = 0 if report.room is None else report.room.written
    if not written:
        return
    needed, free = written + room_to_close(directory), directory.fs.free_bytes(directory.path)
    if free < needed:
        raise RefusedError(
            f"{report.directory}: {work} takes up to {needed} bytes of disk space, and {free} are free; nothing was"
            f" changed. {way_out or freeing(directory.path, needed)}"
        )


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
