"""Opening one partition for writing: as it is, or only if that loses nothing.

Opening a log for writing recovers it if it was not closed properly, and recovery cuts it at the first damage (Kafka:
LogLoader.recoverLog). Cleaning and retention must not do that in passing: they first ask what opening would cut, and
refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import IncompleteError, NotALogError, SeglogError
from seglog.format.filenames import parse_topic_partition
from seglog.log.directory import ConfigOf, LogDirectory, require_room_to_recover
from seglog.log.loader import plan_recovery, refuse_losses
from seglog.log.log import Log
from seglog.remote_path import why_absent
from seglog.scan.listing import list_partition, require_partition, require_room_for_partition
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import partition_path

_AMPLE_BYTES = 64 << 20


def open_partition(
    directory: Path,
    *,
    fs: FileSystem,
    clock: Clock,
    config_of: ConfigOf,
    writable: bool,
    create: bool = False,
) -> tuple[LogDirectory, Log]:
    """Opens one partition directory by its path; close the LogDirectory, which holds the lock, when done.

    Raises the errors of `open_directory_of`. With `create` a missing partition is created.
    """
    directory = partition_path(directory)
    owner = open_directory_of(directory, fs=fs, clock=clock, config_of=config_of, writable=writable, create=create)
    try:
        known = parse_topic_partition(directory.name)
        log = owner.log_in(directory) if known is None else owner.log(known, create)
    except BaseException:
        owner.close(clean=owner.clean_shutdown)
        raise
    return owner, log


def open_directory_of(
    directory: Path, *, fs: FileSystem, clock: Clock, config_of: ConfigOf, writable: bool, create: bool = False
) -> LogDirectory:
    """Opens the log directory of one partition, not yet its log.

    Raises NotALogError if the partition is missing, or is not a partition by its name or contents. With `create` it may
    be missing; RefusedError unless it is named TOPIC-NUMBER and its parent exists and is not a partition.
    """
    directory = partition_path(directory)
    if fs.status(directory) is not None:
        require_partition(fs, directory)
    elif create:
        require_room_for_partition(fs, directory)
    else:
        raise NotALogError(directory, why_absent(directory, "no such directory"))
    return LogDirectory.open(directory.parent, fs=fs, clock=clock, config_of=config_of, writable=writable)


def open_undamaged(directory: LogDirectory, partition: Path, way_out: str = "") -> Log:
    """Opens the log in `partition`, a sub-directory of `directory`, for reading or writing like that.

    Raises CorruptRecordError if opening it for writing would cut off data, RefusedError if the disk has no room for
    that (with `way_out`, as `require_room_to_recover`); then nothing was changed. Raises IncompleteError if a file may
    not be read, or has vanished.
    """
    with incomplete_without(partition):
        options = directory.load_options(partition)
        segments = list_partition(directory.fs, partition).segments
        # Loading drops a log that ends below its start, even after a clean shutdown.
        may_end_below_start = bool(segments) and options.log_start_offset > segments[-1].base_offset
        lacks_index = any(segment.offset_index is None for segment in segments)  # such a segment is recovered
        if not options.clean_shutdown or may_end_below_start or lacks_index:
            report = plan_recovery(directory.fs, partition, directory.clock, replace(options, writable=True))
            refuse_losses(report)
            if directory.writable:
                require_room_to_recover(directory, report, way_out)
        return directory.log_by(partition, lambda: options)


@contextmanager
def incomplete_without(partition: Path, why: str = "") -> Iterator[None]:
    """Raises IncompleteError, which the work on other partitions survives, if a file of `partition` may not be opened
    or has vanished. `why` is added to its message.
    """
    try:
        yield
    except SeglogError:
        raise  # also a link that is not followed, which is a PermissionError too
    except (PermissionError, FileNotFoundError) as error:
        raise IncompleteError(f"{error.filename or partition}: {error.strerror or error}{why}") from error


def has_ample_room(directory: LogDirectory, partitions: Sequence[Path]) -> bool:
    """True if the disk certainly has room to recover these partitions, so that the exact need does not matter."""
    wanted = _AMPLE_BYTES
    for partition in partitions:
        options = directory.load_options(partition)
        segments = list_partition(directory.fs, partition).segments
        if not options.clean_shutdown:
            floor = max((s.base_offset for s in segments if s.base_offset <= options.recovery_point), default=0)
            wanted += sum(segment.size for segment in segments if segment.base_offset >= floor) // 2
    return directory.fs.free_bytes(directory.path) >= wanted
