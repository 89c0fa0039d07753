"""Functions that show what else a log directory tells: figures of all its logs, transactions, groups, the cluster,
settings, tiered storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Unpack

from seglog.api.calling import public
from seglog.arguments import flag, instance, integer, mapping, several
from seglog.configuration.precedence import ResolvedConfig
from seglog.configuration.settings import topic_of
from seglog.look.inspect.metadata_image import Difference, MetadataImage, differences, read_metadata_image
from seglog.look.report.figures import Report
from seglog.operations import replicas as replicas_of
from seglog.operations.groups import GroupsReport, read_groups
from seglog.operations.replicas import ReplicasReport, ReplicasRequest
from seglog.operations.report import ReportRequest
from seglog.operations.report import report as gathered
from seglog.operations.schemas import registry_contents
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    ReadArguments,
    Sources,
    local_path,
    looked_at,
    optional_duration,
    optional_integer,
    optional_path,
    optional_time,
    path_of,
    paths_of,
    settings_of,
    text_list,
    tier_options,
    warn,
    workspace_of,
)
from seglog.scan.listing import log_directory_of, refuse_file, require_partition, resolve_path, resolve_paths
from seglog.scan.view import PartitionView
from seglog.storage.lock import partition_path
from seglog.tiers.segments import Remark
from seglog.tiers.survey import Surveyed, survey
from seglog.values.schemas import Schema
from seglog.verification.transaction_coordinators import read_coordinators
from seglog.verification.transactions import DEFAULT_MAX_TIMEOUT_MS, Transaction, view_transactions


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
    view = PartitionView(work.fs, path)
    return list(
        view_transactions(
            view,
            work.clock.now_ms(),
            max_timeout_ms=DEFAULT_MAX_TIMEOUT_MS if limit is None else limit,
            coordinators=lambda: read_coordinators(work.fs, partition_path(view.directory).parent),
        )
    )


@public
def groups(
    *paths: Location,
    names: str | Sequence[str] | None = None,
    at_ms: int | str | None = None,
    **common: Unpack[ReadArguments],
) -> GroupsReport:
    """Returns the consumer groups in the log directories, as a broker would load them: `groups`, `problems`, `notes`.

    Each group has its members and, for each partition, the committed offset, the log's end and the lag. Paths are log
    directories, or partitions of `__consumer_offsets` or `__share_group_state`. `names` are names, or patterns with *
    and ?. `at_ms` (epoch milliseconds, or text) shows what was committed then. Raises NotALogError if no such partition
    is there.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/__consumer_offsets-0", create=True):
    ...         pass
    ...     seglog.groups(directory).groups
    []
    """
    wanted = text_list("names", names)
    work, shown = looked_at(common, paths)
    moment = optional_time("at_ms", at_ms, work.clock)

    def is_wanted(name: str) -> bool:
        return wanted is None or any(name == each or fnmatchcase(name, each) for each in wanted)

    return read_groups(work.fs, resolve_paths(work.fs, shown), at_ms=moment, wanted=is_wanted)


@public
def replicas(
    *sources: Location,
    metadata: Sequence[Location] = (),
    nodes: Mapping[Location, int] | None = None,
    **common: Unpack[CommonArguments],
) -> ReplicasReport:
    """Compares the replicas of a dead cluster: which copy of each partition to start from, and what each choice loses.

    `sources` are log directories of brokers and controllers, and files that `collect_replicas` wrote on other hosts.
    `metadata` are further metadata logs or snapshots, `nodes` the node ids of directories without `meta.properties`.
    The report has `partitions`, those `in_question`, and the `steps` to take. Nothing is changed. Raises LockedError
    while a broker runs, CorruptionError for facts that were cut or edited, UnsupportedError for facts of a newer
    version, RefusedError for sources that cannot belong to one cluster, NotALogError.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     for node, count in ((1, 3), (2, 2)):
    ...         os.mkdir(f"{place}/{node}")
    ...         with seglog.open_log(f"{place}/{node}/clicks-0", create=True) as log:
    ...             info = log.append([seglog.Record(b"value", timestamp=1000)] * count)
    ...     report = seglog.replicas(f"{place}/1", f"{place}/2", nodes={f"{place}/1": 1, f"{place}/2": 2})
    ...     [(one.partition.topic, one.choice, one.why) for one in report.in_question]
    [('clicks', 1, 'longest log, to offset 2')]
    """
    work = workspace_of(common)
    return replicas_of.compare(work.fs, work.clock, _replicas_request("sources", sources, metadata, nodes))


@public
def collect_replicas(
    *log_directories: Location,
    output: Location,
    metadata: Sequence[Location] = (),
    nodes: Mapping[Location, int] | None = None,
    replace: bool = False,
    **common: Unpack[CommonArguments],
) -> int:
    """Writes facts about replicas to the file `output`, for `replicas` on another host; returns its size in bytes.

    Facts are offsets, leader epochs, damage and digests, and never a record. `replace` replaces a file that is there.
    Raises LockedError while a broker runs, RefusedError if the file is there or a directory's broker is not known,
    NotALogError.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/logs")
    ...     with seglog.open_log(place + "/logs/clicks-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     size = seglog.collect_replicas(place + "/logs", output=place + "/1.facts", nodes={place + "/logs": 1})
    ...     seglog.replicas(place + "/1.facts").in_question
    ()
    """
    work = workspace_of(common)
    request = _replicas_request("log_directories", log_directories, metadata, nodes)
    facts = replicas_of.collect(work.fs, work.clock, request)
    return replicas_of.write_collected(work.fs, facts, local_path("output", output), replace=flag("replace", replace))


def _replicas_request(
    name: str, sources: Sequence[Location], metadata: Sequence[Location], nodes: Mapping[Location, int] | None
) -> ReplicasRequest:
    given = mapping("nodes", nodes, "a mapping from log directories to node ids")
    if not sources:
        raise ValueError(f"{name}: give at least one")
    return ReplicasRequest(
        [path_of(name, path) for path in sources],
        [path_of("metadata", path) for path in several("metadata", metadata, "a list of paths")],
        {path_of("nodes", path): integer("nodes", node) for path, node in given.items()},
    )


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
def schemas(path: Location, **common: Unpack[ReadArguments]) -> list[Schema]:
    """Returns what a schema registry knew, from its log: subjects, versions, ids, references and texts, by id.

    `path` is `_schemas-0`, the log directory that holds it, or one of its `.log` files. Versions that were deleted are
    there too, and marked; what is damaged is left out, with a warning to the logger `seglog`. Raises NotALogError,
    OSError.

    >>> import tempfile, seglog
    >>> key = b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}'
    >>> value = b'{"subject":"orders-value","version":1,"id":7,"schema":"int","deleted":false}'
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/_schemas-0", create=True) as log:
    ...         info = log.append([seglog.Record(value, key=key, timestamp=1000)])
    ...     [(schema.id, schema.subject, schema.type, schema.text) for schema in seglog.schemas(directory)]
    [(7, 'orders-value', 'AVRO', 'int')]
    """
    work, (shown,) = looked_at(common, [path])
    contents = registry_contents(work.fs, shown)
    for problem in contents.problems:
        warn(problem)
    return contents.schemas


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


@public
def tier_contents(*paths: Location, **common: Unpack[ReadArguments]) -> list[Surveyed | Remark]:
    """Returns which segments of each partition are in tiered storage and which offsets are `missing`.

    A path is a directory of a tier: one partition, a topic, or the whole tier. A Remark tells of objects that belong to
    no partition. Raises NotALogError, OSError.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     try:
    ...         seglog.tier_contents(directory)
    ...     except seglog.NotALogError as error:
    ...         print(str(error).rpartition("there is ")[2])
    no tiered storage (of Aiven, LocalTieredStorage, Pinterest or seglog)
    """
    work, options = tier_options(common)
    found = list(survey(work.fs, paths_of(paths), options))
    warn(*(str(each) for each in found if isinstance(each, Remark)))
    return found
