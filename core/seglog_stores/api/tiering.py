"""Functions of stores and tiers: fetching partitions from them, and what lies there."""

from __future__ import annotations

from typing import Unpack

from seglog.api.calling import public
from seglog.arguments import flag
from seglog.operations.workspace import (
    Location,
    ReadArguments,
    local_path,
    looked_at,
    paths_of,
    tier_options,
    warn,
    workspace_of,
)
from seglog_stores.operations.fetch import Fetched, FetchOptions, fetch_targets
from seglog_stores.operations.fetch import fetch as fetch_partition
from seglog_stores.tiers.segments import Remark
from seglog_stores.tiers.survey import Surveyed, survey


@public
def fetch(
    *sources: Location, output: Location, allow_gaps: bool = False, **common: Unpack[ReadArguments]
) -> list[Fetched]:
    """Copies partitions, from tiered storage or from anywhere, into a log directory; checks every batch on the way.

    `output` is LOGDIR/TOPIC-NUMBER, or a log directory for several partitions. A fetch that was killed continues where
    it stopped. Returns one result for each partition; with `allow_gaps` missing offsets are in its `gaps`, otherwise
    they are an error. Raises RefusedError, CorruptRecordError, LockedError, NotALogError, ValueError.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     (done,) = seglog.fetch(directory + "/t-0", output=directory + "/copy/t-0")
    ...     done.segments, done.first_offset
    (1, 0)
    """
    options, target = FetchOptions(flag("allow_gaps", allow_gaps)), local_path("output", output)
    work, shown = looked_at(common, sources)
    local = workspace_of({"clock": work.clock})
    return [
        fetch_partition(work.fs, source, local.fs, place, options)
        for source, place in fetch_targets(work.fs, shown, target)
    ]


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
