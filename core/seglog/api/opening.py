"""Opening one partition's log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.clock import Clock, SystemClock
from seglog.configuration.keys import LogConfig
from seglog.locations import parse_location, require_local

if TYPE_CHECKING:
    from seglog.log.log import Log


@contextlib.contextmanager
def open_log(
    path: str | Path,
    *,
    writable: bool = False,
    create: bool = False,
    config: LogConfig | Mapping[str, object] | None = None,
    clock: Clock | None = None,
) -> Iterator[Log]:
    """The log in partition directory `path`, for a `with` block.

    For reading nothing on disk is touched, and a running broker does not mind. `writable` (implied by `create`)
    takes the log directory's lock, recovers after an unclean stop, and closes as a broker does: flushed,
    with a snapshot and checkpoints. `config` is a LogConfig, or Kafka's keys and values.

    Raises NotALogError when nothing is there, LockedError when a broker runs, CorruptionError where a broker
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
    from seglog.log.directory import open_partition
    from seglog.remote.routing import machine_files

    path = parse_location(path)
    if writable or create:
        require_local(path)
    settings = config if isinstance(config, LogConfig) else LogConfig.from_mapping(config or {})
    owner, log = open_partition(
        path,
        fs=machine_files(),
        clock=clock or SystemClock(),
        config_of=lambda _topic: settings,
        writable=writable or create,
        create=create,
    )
    try:
        yield log
    except OSError:
        # what the file system refused may be half done: the next opening recovers
        owner.close(clean=False)
        raise
    except BaseException:
        owner.close()
        raise
    owner.close()
