"""The public functions: open one partition's log, and look logs over.

Everything here takes paths as text or `Path` and uses the machine's own files and clock; who needs other ones
(tests, services) uses `Log.open` and `LogDirectory.open`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.clock import Clock, SystemClock
from seglog.configuration.keys import LogConfig
from seglog.locations import parse_location

if TYPE_CHECKING:
    from seglog.evidence.findings import Finding
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
    from seglog.storage.filesystem import LocalFileSystem

    settings = config if isinstance(config, LogConfig) else LogConfig.from_mapping(config or {})
    owner, log = open_partition(
        parse_location(path),
        fs=LocalFileSystem(),
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


def verify(*paths: str | Path, level: str = "semantic", clock: Clock | None = None) -> Iterator[Finding]:
    """What is wrong with the segments, partitions or log directories at `paths`; nothing is changed.

    `level` is header, crc, record, index or semantic; each includes the ones before it. Looking goes on past
    damage. Raises NotALogError when there is no log at a path, ValueError for another level.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     print([found.code for found in seglog.verify(directory + "/t-0", level="crc")])
    ...     with open(directory + "/t-0/00000000000000000000.log", "r+b") as file:
    ...         position = file.seek(70)
    ...         written = file.write(b"X")
    ...     print([found.code for found in seglog.verify(directory + "/t-0", level="record")])
    []
    ['CRC_MISMATCH']
    """
    from seglog.scan.listing import resolve_paths
    from seglog.storage.filesystem import LocalFileSystem
    from seglog.verification.batches import Level
    from seglog.verification.verify import Verification, VerifyOptions

    if level.upper() not in Level.__members__:
        names = ", ".join(known.lower() for known in Level.__members__)
        raise ValueError(f"{level!r} is not a level; there are {names}")
    fs = LocalFileSystem()
    targets = resolve_paths(fs, [parse_location(path) for path in paths])
    options = VerifyOptions(level=Level[level.upper()])
    yield from Verification(fs, targets, options, clock or SystemClock())
