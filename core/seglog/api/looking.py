"""Functions that read logs: listing, verification, statistics, comparison. They change and lock nothing."""

from __future__ import annotations

from typing import Literal, Unpack

from seglog.api.calling import Results, public
from seglog.arguments import flag, in_order, instance, one_of
from seglog.look.inspect.diff import Difference
from seglog.look.inspect.diff_view import ViewOptions
from seglog.look.inspect.overview import PartitionOverview, Unlisted, overview
from seglog.model import Isolation, member
from seglog.operations import explain as explaining
from seglog.operations.diff import LEVELS, copies_by_partition, differences
from seglog.operations.explain import ExplainRequest, Explanation
from seglog.operations.stats import PartitionStatistics, measure
from seglog.operations.workspace import (
    Location,
    ReadArguments,
    looked_at,
    optional_duration,
    optional_integer,
    optional_size,
    optional_time,
)
from seglog.scan.key_set import KeySet
from seglog.scan.listing import resolve_paths
from seglog.scan.selection import Selection
from seglog.verification.verify import Verification, VerifyOptions

LevelName = Literal["header", "crc", "record", "index", "semantic"]
DiffLevel = Literal["bytes", "batches", "view"]


@public
def partitions(*paths: Location, **common: Unpack[ReadArguments]) -> list[PartitionOverview]:
    """Returns the partitions at the paths, as `seglog ls` lists them: sizes, offsets, times, segments, leftovers.

    A path is a partition directory, a log directory, or LOGDIR/TOPIC for the partitions of a topic. Sizes are in bytes,
    times in epoch milliseconds. Raises the error of the first partition that cannot be read (OSError, NotALogError).

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     for name in ("clicks-0", "clicks-1"):
    ...         with seglog.open_log(f"{directory}/{name}", create=True) as log:
    ...             info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     [(found.partition, found.start_offset, found.end_offset) for found in seglog.partitions(directory)]
    [('clicks-0', 0, 1), ('clicks-1', 0, 1)]
    """
    listed = []
    work, shown = looked_at(common, paths)
    for found in overview(work.fs, resolve_paths(work.fs, shown)):
        if isinstance(found, Unlisted):
            raise found.error
        listed.append(found)
    return listed


@public
def verify(
    *paths: Location,
    level: LevelName = "semantic",
    live: bool = False,
    sample: float | None = None,
    max_duration_s: float | str | None = None,
    **common: Unpack[ReadArguments],
) -> Verification:
    """Verifies segments, partitions or log directories. Iterate over the result for its findings.

    The result's `summary` is complete after the iteration, and runs the verification itself if nothing has iterated.
    Verification continues past damage. `level` is "header", "crc", "record", "index" or "semantic"; each includes the
    levels before it. `live` expects a broker to write at the same time. `sample` checks that share of the bytes
    (above 0, at most 1). `max_duration_s` stops after that many seconds, or after a duration as text ("10m"). Raises
    NotALogError if there is no log at a path, ValueError for a bad argument.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", timestamp=1000)])
    ...     print([found.code for found in seglog.verify(directory + "/t-0")])
    ...     with open(directory + "/t-0/00000000000000000000.log", "r+b") as file:
    ...         position = file.seek(70)
    ...         written = file.write(b"X")
    ...     print([found.code for found in seglog.verify(directory + "/t-0", level="crc")])
    []
    ['CRC_MISMATCH']
    """
    if isinstance(max_duration_s, str):
        max_duration_s = (optional_duration("max_duration_s", max_duration_s, 0) or 0) / 1000
    work, shown = looked_at(common, paths)
    options = VerifyOptions.of(level, live=live, jobs=work.threads, sample=sample, max_duration_s=max_duration_s)
    return Verification(work.fs, resolve_paths(work.fs, shown), options, work.clock)


@public
def stats(
    *paths: Location, sizing: bool = False, write_rate: int | str | None = None, **common: Unpack[ReadArguments]
) -> Results[PartitionStatistics]:
    """Yields statistics of each partition at the paths: records, keys, sizes, codecs, and the last cleaning rounds.

    `sizing` adds what the log cleaner needs for the partition, with `write_rate` bytes written per second. Reads every
    partition once. Logs of Kafka 0.7 have no statistics; they are left out with a warning to the logger `seglog`.
    A partition of a log directory that a broker deletes meanwhile is left out. Raises OSError, NotALogError, ValueError
    for `write_rate` without `sizing`.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", key=b"%d" % (i % 10), timestamp=i) for i in range(100)])
    ...     (found,) = seglog.stats(directory)
    ...     found
    <PartitionStatistics t-0: 100 records, about 10 keys, 1433 bytes>
    """
    rate, sized = optional_size("write_rate", write_rate, 1), flag("sizing", sizing)
    if rate is not None and not sized:
        raise ValueError("write_rate is for sizing: give sizing=True, too")
    work, shown = looked_at(common, paths)
    return Results("statistics", measure(work, resolve_paths(work.fs, shown), sizing=sized, write_rate=rate))


@public
def diff(
    *copies: Location,
    level: DiffLevel = "batches",
    from_offset: int | None = None,
    to_offset: int | None = None,
    since_ms: int | str | None = None,
    until_ms: int | str | None = None,
    producer_id: int | None = None,
    key: bytes | None = None,
    isolation: Isolation | str | None = None,
    limit: int | None = None,
    memory_bytes: int | str | None = None,
    **common: Unpack[ReadArguments],
) -> Results[tuple[str, Difference]]:
    """Compares copies of a partition, or all partitions of log directories. Yields (partition name, difference).

    `level` is "bytes" (the files), "batches" (batches at each offset), or "view" (the latest committed record of each
    key, which compaction must not change; it takes tables of `memory_bytes`, by default 256 MiB). Batches and view
    compare what lies from `from_offset` and `since_ms` (epoch milliseconds or text, both inclusive) to `to_offset`
    (exclusive), of one producer with `producer_id`. Only the view takes `until_ms` (exclusive), `key` and `isolation`.
    `limit` bounds the differences per partition (default: none, for the view 10,000). Raises NotALogError, OSError,
    ValueError for a bad argument.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     for copy, value in (("/a", b"one"), ("/b", b"two")):
    ...         import os; os.mkdir(directory + copy)
    ...         with seglog.open_log(directory + copy + "/t-0", create=True) as log:
    ...             info = log.append([seglog.Record(value, key=b"k", timestamp=1000)])
    ...     [(name, found.kind, found.first_offset) for name, found in seglog.diff(directory + "/a", directory + "/b")]
    [('t-0', 'differs', 0)]
    """
    chosen = one_of("level", level, LEVELS)
    most = optional_integer("limit", limit, 0)
    first, end = optional_integer("from_offset", from_offset, 0), optional_integer("to_offset", to_offset, 0)
    work, shown = looked_at(common, copies)
    since, until = (
        optional_time(name, value, work.clock) for name, value in (("since_ms", since_ms), ("until_ms", until_ms))
    )
    in_order("from_offset", first, "to_offset", end)
    in_order("since_ms", since, "until_ms", until)
    memory = optional_size("memory_bytes", memory_bytes, 1 << 20) or 256 << 20
    given = {"until_ms": until, "key": key, "isolation": isolation, "memory_bytes": memory_bytes}
    if level == "bytes":
        given |= {"from_offset": first, "to_offset": end, "since_ms": since, "producer_id": producer_id}
    misused = [name for name, value in given.items() if value is not None and level != "view"]
    if misused:
        compares = "whole files" if level == "bytes" else "batches, not records"
        raise ValueError(f"the level {level} compares {compares}: do not give {', '.join(misused)} with it")
    default = Isolation.READ_COMMITTED if level == "view" else Isolation.READ_UNCOMMITTED
    selection = Selection(
        first,
        end,
        since,
        until,
        optional_integer("producer_id", producer_id),
        None if key is None else KeySet([instance("key", key, bytes, "bytes")]),
        default if isolation is None else member(Isolation, isolation, "isolation"),
    )
    options = ViewOptions(memory, selection, 10_000 if most is None else most)
    return Results(
        "differences",
        (
            (name, found)
            for name, directories in copies_by_partition(work.fs, shown)
            for found in differences(work.fs, directories, chosen, options, most)
        ),
    )


@public
def explain(
    partition: Location,
    *,
    quick: bool = False,
    metadata_directory: Location | None = None,
    kafka_version: str | None = None,
    **common: Unpack[ReadArguments],
) -> Explanation:
    """Explains why a partition is not cleaned, not deleted, or not readable past an offset, and what would help.

    `quick` reads only indexes and headers and skips the dry run of a cleaning round. `metadata_directory` is the log
    directory with the cluster's metadata, if it is not the partition's own. `kafka_version` is the release that is
    spoken of: by default the one that wrote the directory, or 4.3 if nothing shows it. Raises NotALogError, OSError.

    >>> import tempfile, seglog
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with seglog.open_log(directory + "/t-0", create=True) as log:
    ...         info = log.append([seglog.Record(b"value", key=b"k", timestamp=1000)])
    ...     found = seglog.explain(directory + "/t-0", config={"cleanup.policy": "compact"})
    ...     found.reading, [segment.cleaning for segment in found.segments]
    (('offsets 0 to 0 are in the log',), ['active: not cleaned before it is rolled'])
    """
    work, (path,) = looked_at(common, [partition])
    return explaining.explain(work, ExplainRequest(path, quick, metadata_directory, kafka_version))
