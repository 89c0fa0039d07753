"""Functions that create something new and only read their sources: conversion, rebuilding, restoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Unpack

from seglog.api.calling import public
from seglog.arguments import flag, instance, integer, mapping, several
from seglog.format.filenames import parse_topic_partition
from seglog.model import Compression, member
from seglog.operations import rebuild as rebuilding
from seglog.operations import restore as restoring
from seglog.operations.convert import Converted, ConvertOptions, convert_to, convertible
from seglog.operations.rebuild import RebuildRequest
from seglog.operations.restore import RestorePlan
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    ReadArguments,
    local_path,
    looked_at,
    path_of,
    settings_of,
    workspace_of,
)
from seglog.rescue.rebuild.plan import RebuildPlan
from seglog.storage import links


@public
def convert(
    partition: Location,
    output: Location,
    *,
    magic: Literal[0, 1, 2] = 2,
    codec: Compression | str | None = None,
    **common: Unpack[ReadArguments],
) -> Converted:
    """Rewrites a partition in another record format or codec into the new partition directory `output`.

    Offsets and timestamps stay, and the source is only read. `magic` is the record format, 0, 1 or 2. `codec` is none,
    gzip, snappy, lz4 or zstd; None keeps each batch's codec. Raises CorruptRecordError for damage, UnsupportedError for
    data that the format cannot hold, RefusedError if `output` holds something.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value" * 100, timestamp=1000)])
    ...     done = seglog.convert(directory + "/t-0", directory + "/packed-0", codec="zstd")
    ...     done.batches_written, done.bytes_written < done.bytes_read
    (1, True)
    """
    if isinstance(magic, bool) or magic not in (0, 1, 2):
        raise ValueError(f"magic: {magic!r} is not 0, 1 or 2")
    options = ConvertOptions(magic, None if codec is None else member(Compression, codec, "codec"))
    target = links.resolve(local_path("output", output))
    work, (source,) = looked_at(common, [partition])
    if parse_topic_partition(target.name) is None:
        raise ValueError(f"output: {target.name} is not of the form topic-partition")
    listing = convertible(work.fs, source)
    settings = settings_of(work, target.parent)
    return convert_to(work.fs, work.clock, listing, target, options, settings)[0]


@public
def plan_rebuild(
    *log_directories: Location,
    metadata: Sequence[Location] = (),
    nodes: Mapping[Location, int] | None = None,
    cluster_id: str | None = None,
    features: Mapping[str, int] | None = None,
    allow_missing: bool = False,
    without: Sequence[int] = (),
    **common: Unpack[CommonArguments],
) -> RebuildPlan:
    """Reconstructs a cluster's metadata from its brokers' log directories and from what remains of its metadata logs.

    Returns a plan with the `topics` and their partitions, `features`, and `notes` on what is unknown. `metadata` are
    further metadata logs or snapshots. `nodes` gives the node ids of directories without `meta.properties`.
    `cluster_id` and `features` (name to level) set what no directory tells. Raises RefusedError, or Obstacles, for
    directories that contradict each other, or that lack partitions unless `allow_missing` is set. It also refuses a set
    that lacks brokers or directories which the metadata names; `without` gives up what is missing of these brokers.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/logs")
    ...     with seglog.open_log(place + "/logs/clicks-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     plan = seglog.plan_rebuild(place + "/logs", nodes={place + "/logs": 1})
    ...     made = seglog.rebuild(plan, place + "/made")
    ...     [(topic.name, topic.partitions[0].log_end) for topic in plan.topics], made[0].name
    ([('clicks', 1)], 'bootstrap.checkpoint')
    """
    work = workspace_of(common)
    given_nodes = mapping("nodes", nodes, "a mapping from log directories to node ids")
    levels = mapping("features", features, "a mapping from names to levels")
    request = RebuildRequest(
        [path_of("log_directories", path) for path in log_directories],
        [path_of("metadata", path) for path in several("metadata", metadata, "a list of paths")],
        {path_of("nodes", path): integer("nodes", node) for path, node in given_nodes.items()},
        None if cluster_id is None else instance("cluster_id", cluster_id, str, "text"),
        {name: integer("features", level) for name, level in levels.items()},
        flag("allow_missing", allow_missing),
        [integer("without", node) for node in several("without", without, "a list of node ids")],
    )
    return rebuilding.plan_rebuild(work.fs, work.clock, request)


@public
def rebuild(plan: RebuildPlan, output: Location, **common: Unpack[CommonArguments]) -> list[Path]:
    """Creates the directory `output` with the plan's snapshot, and returns the files it wrote.

    The metadata log of a new controller begins with that snapshot: `bootstrap.checkpoint` for Kafka up to 4.3, the one
    in `__cluster_metadata-0` from 4.4 on. `output` also gets the small files that the log
    directories lack; the log directories themselves stay unchanged. Raises RefusedError if `output` holds something.
    The example of `plan_rebuild` shows it.
    """
    work = workspace_of(common)
    made = instance("plan", plan, RebuildPlan, "what plan_rebuild gives")
    return rebuilding.write_rebuilt(work.fs, work.clock, made, path_of("output", output))


@public
def plan_restore(
    *sources: Location, output: Location, topics: Sequence[str] = (), **common: Unpack[CommonArguments]
) -> RestorePlan:
    """Plans which partitions the directories of `sources` become in the directory `output`. Changes nothing.

    Sources are directories that a broker set aside (`-delete`, `-stray`, `-future`), a run's folder in the quarantine,
    and copies of a partition's directory. Parts of one partition are joined: `partitions[i].joined` has the offsets,
    `damage` and `missing`. `topics` are the whole names of topics that a broker cut in the names of directories, which
    have at most 255 characters. Raises NotALogError if there is nothing to restore, RefusedError, or Obstacles, for
    parts that contradict each other, a topic without its whole name, or an `output` that is a broker's log directory.
    The example of `restore` shows it.
    """
    work = workspace_of(common)
    paths = [path_of("sources", path) for path in sources]
    return restoring.plan_restore(work.fs, paths, path_of("output", output), several("topics", topics, "names"))


@public
def restore(plan: RestorePlan, **common: Unpack[CommonArguments]) -> list[Path]:
    """Creates the partitions of a plan, each completely or not at all, and returns their directories.

    Raises RefusedError if the disk lacks room, or if a target directory has appeared since the plan was made.

    >>> import os, tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as place:
    ...     os.mkdir(place + "/logs")
    ...     with seglog.open_log(place + "/logs/clicks-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     os.rename(place + "/logs/clicks-0", place + "/logs/clicks-0.0123456789abcdef-stray")
    ...     plan = seglog.plan_restore(place + "/logs", output=place + "/new")
    ...     (made,) = seglog.restore(plan)
    ...     with seglog.open_log(made) as log:
    ...         [record.value for record in log.records()]
    [b'value']
    """
    work = workspace_of(common)
    return restoring.restore(work.fs, work.clock, instance("plan", plan, RestorePlan, "what plan_restore gives"))
