"""Opens one partition's log."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seglog.arguments import acting_as, flag, mapping
from seglog.clock import Clock, SystemClock
from seglog.configuration.keys import LogConfig
from seglog.doors import door
from seglog.locations import parse_location, require_local

if TYPE_CHECKING:
    from seglog.log.directory import ConfigOf
    from seglog.log.loader import LoadOptions
    from seglog.log.log import Log
    from seglog.model import Isolation
    from seglog.storage.filesystem import FileSystem

_logger = logging.getLogger("seglog")


def open_log(
    path: str | Path,
    *,
    writable: bool = False,
    create: bool = False,
    config: LogConfig | Mapping[str, object] | None = None,
    clock: Clock | None = None,
    local: str | Path | None = None,
    tier_keys: Mapping[str, str | Path] | None = None,
    remote_metadata: Sequence[str | Path] | None = None,
) -> Log:
    """Opens the log in the partition directory `path`. Close it with `close()`, or use it as a `with` block.

    Reading changes nothing on disk and takes no lock, so a broker may run. `writable` (implied by `create`, which makes
    a missing directory) takes the log directory's lock, recovers the log after an unclean stop, and closes it as a
    broker does: flushed, with a producer snapshot and checkpoints. `config` is a LogConfig or a mapping from Kafka's
    keys to values. `clock` replaces the current time.

    If a run that changes logs is unfinished in the log directory, reading warns through the logger `seglog`, because
    part of the log may be missing.

    `path` may be in tiered storage or in a snapshot of a backup (`REPOSITORY#SNAPSHOT/orders-0`), for reading only.
    `local` is the log directory with the local part, `tier_keys`
    maps key pair ids to private key files (PEM), and `remote_metadata` names partitions of `__remote_log_metadata`.

    Raises NotALogError if there is no log, LockedError while a broker runs (for writing), CorruptionError if a broker
    would not start, ConfigError for an unknown key.

    >>> import tempfile, seglog
    >>> directory = tempfile.TemporaryDirectory()
    >>> path = directory.name + "/orders-0"
    >>> with seglog.open_log(path, create=True, config={"segment.bytes": "1 MiB"}) as log:
    ...     records = [seglog.Record(b"first", timestamp=1000), seglog.Record(b"second", timestamp=2000)]
    ...     log.append(records).last_offset
    1
    >>> with seglog.open_log(path) as log:
    ...     [record.value for record in log.records()]
    ...     log.offset_for_timestamp(1500).offset
    [b'first', b'second']
    1
    >>> directory.cleanup()
    """
    from seglog.scan.view import unfinished_runs
    from seglog.storage.routing import machine_files

    path = parse_location(path)
    fs: FileSystem = machine_files()
    writable, create = flag("writable", writable), flag("create", create)
    now = SystemClock() if clock is None else acting_as("clock", clock, Clock)
    is_tiered = any(given is not None for given in (local, tier_keys, remote_metadata))
    if isinstance(config, LogConfig):
        settings = config
    else:
        settings = LogConfig.from_mapping(mapping("config", config, "a LogConfig or a mapping from Kafka's keys"))
    if writable or create:
        require_local(path)
        if is_tiered:
            raise ValueError("local, tier_keys and remote_metadata are only for reading")
        return _entered(_opened_for_writing(path, fs, now, settings, create))
    if is_tiered or _may_be_tier(fs, path):
        from seglog.operations.workspace import looked_at

        work, (path,) = looked_at(
            {"fs": fs, "local": local, "tier_keys": tier_keys, "remote_metadata": remote_metadata}, [path]
        )
        fs = work.fs
    else:
        for problem in unfinished_runs(fs, [path]):
            _logger.warning("%s", problem)
    return _entered(opened_for_reading(path, fs=fs, clock=now, config_of=lambda _topic: settings))


def _entered(opening: AbstractContextManager[Log]) -> Log:
    """Opens a log, which closes itself and what was opened with it."""

    def release(error: BaseException | None) -> None:
        opening.__exit__(None if error is None else type(error), error, None if error is None else error.__traceback__)

    log = opening.__enter__()
    log.release, log.make_reader = release, partial(_arrow_reader, weakref.proxy(log))
    return log


def _arrow_reader(
    log: Log, columns: Sequence[str] | None, offset: int | None, isolation: Isolation | str | None
) -> Any:
    """Returns what `Log.to_arrow` returns."""
    return door("arrow reader")(columns, log.topic_partition, log.directory, log.columns(offset, isolation))


@contextlib.contextmanager
def opened_for_reading(directory: Path, *, fs: FileSystem, clock: Clock, config_of: ConfigOf) -> Iterator[Log]:
    """Opens the log in `directory` as it is now, whatever a broker does meanwhile. Reads only the log starts'
    checkpoint of the log directory around it, unless the caller asks how the log was closed.

    Raises NotALogError if it is missing, or is not a partition by its name or contents.
    """
    from seglog.format.filenames import LOG_START_OFFSET_CHECKPOINT, parse_topic_partition, topic_partition_of
    from seglog.log.checkpoints import OffsetCheckpoint
    from seglog.log.directory import LogDirectory
    from seglog.log.log import Log
    from seglog.log.read_loader import LogPlace, ViewingFileSystem
    from seglog.scan.listing import require_directory, require_partition
    from seglog.storage.lock import partition_path

    directory = partition_path(directory)
    require_directory(fs, directory)
    require_partition(fs, directory)
    topic_partition, views = topic_partition_of(directory), ViewingFileSystem(fs, directory.parent)

    def options_of() -> LoadOptions:
        with LogDirectory.open(directory.parent, fs=views, clock=clock, config_of=config_of) as around:
            return around.load_options(directory)

    starts = OffsetCheckpoint(fs, directory.parent / LOG_START_OFFSET_CHECKPOINT, tolerant=True).offsets
    start = starts.get(topic_partition, 0)
    if start and parse_topic_partition(directory.name) is None:
        start = options_of().log_start_offset  # a broker's entry is for the live partition, not for this one
    log = None
    try:
        log = Log.open_for_reading(
            LogPlace(views, directory, clock, start, options_of), config_of(topic_partition.topic)
        )
        yield log
    finally:
        if log is not None:
            log.release = None  # this is the release; a log that nobody closed is released when it is collected
            log.close()
        views.close()


@contextlib.contextmanager
def _opened_for_writing(path: Path, fs: FileSystem, clock: Clock, settings: LogConfig, create: bool) -> Iterator[Log]:
    from seglog.log.opening import open_partition

    owner, log = open_partition(
        path, fs=fs, clock=clock, config_of=lambda _topic: settings, writable=True, create=create
    )
    try:
        try:
            yield log
        finally:
            log.release = None  # as in opened_for_reading
    except OSError:
        # what the file system refused may be half done: the next opening recovers
        owner.close(clean=False)
        raise
    except BaseException:
        owner.close()
        raise
    owner.close()


def _may_be_tier(fs: FileSystem, path: Path) -> bool:
    """True if a directory holds names of tiered storage, or if a path may lead into a snapshot of a backup. Most do
    not, and then of the tiers only their names are imported.
    """
    from seglog.remote_path import SNAPSHOT_MARK

    status = fs.status(path)
    if status is None:
        return SNAPSHOT_MARK in str(path)
    return status.is_directory and any(map(door("name of a tier"), fs.list(path)))
