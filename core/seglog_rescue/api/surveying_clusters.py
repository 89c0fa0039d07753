"""Functions that show what else the disks of a dead cluster tell: its groups, and which replica to trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Unpack

from seglog.api.calling import public
from seglog.arguments import flag, integer, mapping, several
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    ReadArguments,
    local_path,
    looked_at,
    optional_time,
    path_of,
    text_list,
    workspace_of,
)
from seglog.scan.listing import resolve_paths
from seglog_rescue.operations import replicas as replicas_of
from seglog_rescue.operations.groups import GroupsReport, read_groups
from seglog_rescue.operations.replicas import ReplicasReport, ReplicasRequest


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
