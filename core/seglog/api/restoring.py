"""Bringing back what a cluster lost: its metadata, out of its brokers' log directories; partitions that were set aside.

Sources are only read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from seglog.arguments import flag, instance, integer, mapping, several
from seglog.operations import rebuild as rebuilding
from seglog.operations import restore as restoring
from seglog.operations.rebuild import RebuildRequest
from seglog.operations.restore import RestorePlan
from seglog.operations.workspace import CommonArguments, Location, workspace_of
from seglog.reconstruction.plan import RebuildPlan
from seglog.remote.routing import parse_location


def plan_rebuild(
    *log_directories: Location,
    metadata: Sequence[Location] = (),
    nodes: Mapping[Location, int] | None = None,
    cluster_id: str | None = None,
    features: Mapping[str, int] | None = None,
    allow_missing: bool = False,
    **common: Unpack[CommonArguments],
) -> RebuildPlan:
    """The cluster whose brokers' log directories these are, put together from them and from what can still be read of
    its metadata: `topics` with their partitions, `features`, `notes` on what is not known.

    `metadata` are further metadata logs or snapshots, `nodes` the node ids of directories without `meta.properties`.
    RefusedError, or Obstacles, for directories that contradict each other or lack partitions (see `allow_missing`).

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
        [parse_location(path) for path in log_directories],
        [parse_location(path) for path in several("metadata", metadata, "a list of paths")],
        {parse_location(path): integer("nodes", node) for path, node in given_nodes.items()},
        None if cluster_id is None else instance("cluster_id", cluster_id, str, "text"),
        {name: integer("features", level) for name, level in levels.items()},
        flag("allow_missing", allow_missing),
    )
    return rebuilding.plan_rebuild(work.fs, work.clock, request)


def rebuild(plan: RebuildPlan, output: Location, **common: Unpack[CommonArguments]) -> list[Path]:
    """Makes the new directory `output` with the plan's `bootstrap.checkpoint`, with which the metadata log of a new
    controller begins, and the small files that log directories lack; returns the files. The log directories stay as
    they are. RefusedError when `output` holds something.
    """
    work = workspace_of(common)
    made = instance("plan", plan, RebuildPlan, "what plan_rebuild gives")
    return rebuilding.write_rebuilt(work.fs, work.clock, made, parse_location(output))


def plan_restore(*sources: Location, output: Location, **common: Unpack[CommonArguments]) -> RestorePlan:
    """The partitions that directories of `sources` become in `output`: those that a broker set aside (`-delete`,
    `-stray`, `-future`), what a run took out (its folder in the quarantine), copies of a partition's directory.

    Parts of one partition are joined; `partitions[i].joined` has its offsets, `damage` and `missing`. RefusedError, or
    Obstacles, for parts that contradict each other. Nothing is changed.
    """
    work = workspace_of(common)
    paths = [parse_location(path) for path in sources]
    return restoring.plan_restore(work.fs, paths, parse_location(output))


def restore(plan: RestorePlan, **common: Unpack[CommonArguments]) -> list[Path]:
    """Makes the partitions of a plan, each whole or not at all, and returns their directories.

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
