"""Functions that show what else a log directory tells: figures of all its logs, transactions, the cluster,
settings."""

from __future__ import annotations

from typing import Unpack

from seglog.api.calling import public
from seglog.arguments import flag, instance
from seglog.configuration.precedence import ResolvedConfig
from seglog.configuration.settings import topic_of
from seglog.look.inspect.metadata_image import Difference, MetadataImage, differences, read_metadata_image
from seglog.look.report.figures import Report
from seglog.operations.report import ReportRequest
from seglog.operations.report import report as gathered
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    ReadArguments,
    Sources,
    looked_at,
    optional_duration,
    optional_integer,
    optional_path,
    paths_of,
    settings_of,
    warn,
    workspace_of,
)
from seglog.scan.listing import log_directory_of, refuse_file, require_partition, resolve_path, resolve_paths
from seglog.scan.view import PartitionView
from seglog.verification.transaction_coordinators import DEFAULT_MAX_TIMEOUT_MS, view_transactions
from seglog.verification.transactions import Transaction


@public
def transactions(
    partition: Location, *, max_timeout_ms: int | str | None = None, **common: Unpack[ReadArguments]
) -> list[Transaction]:
    """Returns the transactions of a partition: ended ones in the order of their markers, then open ones by offset.

    `hanging` is True for one that nobody will end; it holds readers of committed data back. `max_timeout_ms` is the
    brokers' transaction.max.timeout.ms (default: 15 minutes), used where __transaction_state is not in the log
    directory. Raises NotALogError, OSError.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         producer = seglog.ProducerIdentity(7, 0, 0, transactional=True)
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)], producer=producer)
    ...         marker = log.append_end_txn_marker(producer, True, timestamp=2000)
    ...     (found,) = seglog.transactions(directory + "/t-0")
    ...     found.state.value, found.first_offset, found.duration_ms
    ('committed', 0, 1000)
    """
    limit = optional_duration("max_timeout_ms", max_timeout_ms, 0)
    work, (path,) = looked_at(common, [partition])
    require_partition(work.fs, path)
    limit = DEFAULT_MAX_TIMEOUT_MS if limit is None else limit
    return list(view_transactions(work.fs, PartitionView(work.fs, path), work.clock.now_ms(), limit))


@public
def metadata(path: Location, *, at_offset: int | None = None, **common: Unpack[ReadArguments]) -> MetadataImage:
    """Returns the cluster that a metadata log describes; `tree()` has it as dictionaries.

    `path` is `__cluster_metadata-0` or the log directory that holds it. `at_offset` shows the cluster after the record
    with that offset. What cannot be read is named in `problems`. Raises NotALogError, OSError.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     os.mkdir(directory + "/__cluster_metadata-0")
    ...     open(directory + "/__cluster_metadata-0/00000000000000000000.log", "x").close()
    ...     image = seglog.metadata(directory)
    ...     image.records, image.tree().get("topics", {})
    (0, {})
    """
    last = optional_integer("at_offset", at_offset, 0)
    work, (shown,) = looked_at(common, [path])
    return read_metadata_image(work.fs, shown, end=None if last is None else last + 1)


@public
def metadata_differences(
    left: MetadataImage, right: MetadataImage, **common: Unpack[CommonArguments]
) -> list[Difference]:
    """Returns the facts that differ between two images of `metadata`, up to the offset that both have.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     os.mkdir(directory + "/__cluster_metadata-0")
    ...     open(directory + "/__cluster_metadata-0/00000000000000000000.log", "x").close()
    ...     seglog.metadata_differences(seglog.metadata(directory), seglog.metadata(directory))
    []
    """
    work = workspace_of(common)
    images = [instance("images", image, MetadataImage, "what metadata gives") for image in (left, right)]
    end = min(image.end_offset for image in images)
    one, other = (
        image if image.end_offset == end else read_metadata_image(work.fs, image.source, end=end) for image in images
    )
    return differences(one, other)


@public
def report(
    *paths: Location,
    verify: bool = False,
    metadata_directory: Location | None = None,
    **common: Unpack[ReadArguments],
) -> Report:
    """Returns the figures of `seglog report`: what needs a hand, bytes, growth, compaction, retention, leftovers.

    Paths are partitions or log directories, of several brokers too. No log file is opened unless `verify` is true, and
    then all data is read. `records()` yields the JSON lines of the command. `metadata_directory` is the log directory
    with the cluster's metadata, if it is another one. Raises NotALogError, ConfigError, OSError.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     found = seglog.report(directory)
    ...     [(one.partition, one.bytes) for one in found.partitions], found.concerns
    ([('t-0', 73)], ())
    """
    sources = Sources(metadata_directory=optional_path("metadata_directory", metadata_directory))
    request = ReportRequest(verify=flag("verify", verify))
    work, shown = looked_at(common, paths)
    targets = resolve_paths(work.fs, shown)
    return gathered(
        work.fs, targets, lambda directory: settings_of(work, directory, sources), work.clock, request, tell=warn
    )


@public
def settings(
    path: Location, *, metadata_directory: Location | None = None, **common: Unpack[CommonArguments]
) -> ResolvedConfig:
    """Returns the configuration values that apply to a partition's topic, or to a log directory, and their sources.

    `settings` maps Kafka's keys to values with their `text` and `origin`. `metadata_directory` is the log directory
    with the cluster's metadata, if it is another one. Raises NotALogError, ConfigError.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True):
    ...         pass
    ...     found = seglog.settings(directory + "/t-0", config={"retention.ms": "7d"}).settings["retention.ms"]
    ...     found.text, found.origin
    ('7d', '--set')
    """
    sources = Sources(metadata_directory=optional_path("metadata_directory", metadata_directory))
    (location,) = paths_of([path])
    work = workspace_of(common, [location])
    target = resolve_path(work.fs, location)
    refuse_file(target)
    return settings_of(work, log_directory_of(target), sources).resolve(topic_of(target))
