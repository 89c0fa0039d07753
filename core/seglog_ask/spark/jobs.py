"""Jobs over many partitions: verify, statistics, and a comparison of replicas.

Each is the one-machine function with the same result objects, spread over tasks: one per partition, or one for several
small partitions. A giant partition is first verified or measured in parts, each in a task of its own, and then as a
whole in one task, which does not read the known parts again. What needs several partitions at once, such as a log
directory's checkpoints, the driver does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seglog.clock import SystemClock
from seglog.errors import NotALogError
from seglog.format.filenames import PartitionState, parse_topic_partition
from seglog.log.read_loader import viewed_copies
from seglog.look.inspect.diff import Difference, diff_batches, diff_bytes
from seglog.look.inspect.diff_view import COMMITTED, ViewOptions, diff_view
from seglog.look.inspect.sizing import Sizing, SizingRequest, size_partition
from seglog.look.inspect.statistics import LogStatistics, Stretch, stretches_of, view_statistics
from seglog.remote_path import RemotePath
from seglog.scan.listing import (
    PartitionListing,
    Target,
    TargetKind,
    list_log_directory,
    list_partition,
    log_directory_of,
)
from seglog.scan.selection import EVERYTHING, Selection
from seglog.scan.view import SingleFile, is_held
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.verification.batches import Level
from seglog.verification.codes import Severity
from seglog.verification.findings import Finding
from seglog.verification.small_files import verify_log_directory
from seglog.verification.surroundings import read_surroundings
from seglog.verification.verify import Verification, VerifyOptions, VerifySummary
from seglog_ask.spark.parts import KnownPart, KnownParts, Part, by_log, known_ranges, parts_of, verify_part
from seglog_ask.spark.stretches import MeasuredStretch, MeasuredStretches, known_stretch, measure_stretch
from seglog_ask.spark.tasks import Watch, cores_of, run_tasks, task_bytes
from seglog_ask.table.plan.files import Shown, files_of, sent_along, shown_at, size_of, task_files
from seglog_stores.remote.settings import NO_SETTINGS, StoreSettings
from seglog_stores.tiers.segments import Remark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One core verifies this much, of a disk and of an object store, before a second round of tasks pays off.
GIANT_BYTES, GIANT_OBJECT_BYTES = 4 << 30, 512 << 20
PART_BYTES = 256 << 20
# All parts' results pass through the driver: half of Spark's limit (spark.driver.maxResultSize).
KNOWN_BYTES = 512 << 20
# CPU seconds for 1 GiB of small records: 0.80 to measure, 0.37 to verify.
_MEASURING_COST = 2

DiffLevel = Literal["bytes", "batches", "view"]


def giants_of(spark: SparkSession, paths: Sequence[Path], sizes: Sequence[int], cost: int = 1) -> list[int]:
    """Returns the indexes of partitions worth cutting, if a byte costs `cost` times what it costs to verify."""
    least = [(GIANT_OBJECT_BYTES if isinstance(path, RemotePath) else GIANT_BYTES) // cost for path in paths]
    if not any(size > limit for size, limit in zip(sizes, least, strict=True)):
        return []
    cores, giants = cores_of(spark), list[int]()
    for number, size in enumerate(sizes):
        gain = size * (cores - 1) // cores  # bytes that other cores read meanwhile
        outlasts = size * cores > sum(sizes)  # otherwise the other partitions keep all cores busy
        if gain > least[number] and outlasts:
            giants.append(number)
    return giants


# --- verify ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The findings in the order of the partitions, the summed summary, and remarks about their tiers."""

    findings: tuple[Finding, ...]
    summary: VerifySummary
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class _Verified:
    """A task's report, and the first and end offset of each log by its directory."""

    report: VerifyReport
    extents: dict[Path, tuple[int, int]]


def verify(
    spark: SparkSession,
    targets: Sequence[Target],
    options: VerifyOptions,
    watch: Watch | None = None,
    *,
    store: StoreSettings = NO_SETTINGS,
    seen: FileSystem | None = None,
) -> VerifyReport:
    """Runs `verification.verify` on every partition in tasks, and checks log directories' checkpoints on the driver.

    `seen` is the file system through which the targets were found; it shows those that lie in a tier.
    """
    store = sent_along(store, [target.path for target in targets])
    fs = seen or files_of(store)
    directories = [target.path for target in targets if target.kind is TargetKind.LOG_DIRECTORY]
    around = {path: read_surroundings(fs, path) for path in directories}  # read before the logs
    work: list[Target] = []
    for target in targets:
        if target.kind is TargetKind.LOG_DIRECTORY:
            partitions = list_log_directory(fs, target.path).partitions
            present = [partition.path for partition in partitions if partition.state is not PartitionState.DELETED]
            work += [Target(path, TargetKind.PARTITION) for path in present]
        else:
            work.append(target)
    alone = replace(options, jobs=1)
    sizes = [size_of(fs, target.path) for target in work]
    items = [(target, shown_at(fs, [target.path])) for target in work]
    parts_known = _verified_giants(spark, fs, items, sizes, alone, store, watch)
    sizes = [0 if parts else size for parts, size in zip(parts_known, sizes, strict=True)]  # they are not read again
    body = partial(_verified, alone, store)
    verified: list[_Verified] = run_tasks(
        spark, [(*item, parts) for item, parts in zip(items, parts_known, strict=True)], body, watch, sizes=sizes
    )
    reports = [log.report for log in verified]
    if options.level >= Level.INDEX:
        for directory in directories:
            extents = {}
            for path, extent in (pair for log in verified for pair in log.extents.items()):
                key = parse_topic_partition(path.name)
                if path.parent == directory and key is not None:
                    extents[key] = extent
            live = options.live or is_held(directory)
            listing = list_log_directory(fs, directory)
            findings = tuple(verify_log_directory(fs, listing, around[directory], extents, live=live))
            count = Counter(finding.severity for finding in findings)
            summary = VerifySummary(
                errors=count[Severity.ERROR], warnings=count[Severity.WARNING], infos=count[Severity.INFO]
            )
            reports.append(VerifyReport(findings, summary))
    return VerifyReport(
        tuple(finding for report in reports for finding in report.findings),
        summed([report.summary for report in reports]),
        tuple(remark for report in reports for remark in report.remarks),
    )


def summed(summaries: Sequence[VerifySummary]) -> VerifySummary:
    """Returns the sum of the counts; `complete` if all are, `live` if any is."""
    names = [field.name for field in fields(VerifySummary) if field.name not in ("complete", "live")]
    counts = {name: sum(getattr(summary, name) for summary in summaries) for name in names}
    complete, live = all(summary.complete for summary in summaries), any(summary.live for summary in summaries)
    return VerifySummary(**counts, complete=complete, live=live)


def _verified(
    options: VerifyOptions, store: StoreSettings, work: tuple[Target, tuple[Shown, ...], KnownParts]
) -> _Verified:
    """In a task: verifies a partition, of which parts may be known."""
    target, shown, parts_known = work
    remarks: list[Remark] = []
    fs = task_files(store, shown, remarks.append)
    verification = Verification(fs, [target], options, SystemClock(), known=partial(known_ranges, parts_known))
    findings = tuple(verification)
    return _Verified(VerifyReport(findings, verification.summary, tuple(remarks)), verification.extents)


def _verified_giants(
    spark: SparkSession,
    fs: FileSystem,
    items: Sequence[tuple[Target, tuple[Shown, ...]]],
    sizes: Sequence[int],
    options: VerifyOptions,
    store: StoreSettings,
    watch: Watch | None,
) -> list[KnownParts]:
    """Returns what tasks found in the parts of each giant partition; nothing for the others.

    Next to a running broker, nothing is verified beforehand: a grave finding must persist while it is looked at.
    """
    parts_known: list[KnownParts] = [{} for _ in items]
    giants = [] if options.live else giants_of(spark, [target.path for target, _ in items], sizes)
    most = max(PART_BYTES, task_bytes(sizes, cores_of(spark))) if giants else 0
    work: list[tuple[Part, tuple[Shown, ...]]] = []
    owners: list[int] = []
    for number in giants:
        target, shown = items[number]
        if not is_held(log_directory_of(target)):
            parts = _parts(fs, target, most)
            work += [(part, shown) for part in parts]
            owners += [number] * len(parts)
    if not work:
        return parts_known
    body = partial(_part_verified, options.level, store, KNOWN_BYTES // len(work))
    weights = [part.cuts[1] - part.cuts[0] for part, _ in work]
    verified: list[KnownPart | None] = run_tasks(spark, work, body, watch, sizes=weights)
    for number in dict.fromkeys(owners):
        parts_known[number] = by_log(part for part, owner in zip(verified, owners, strict=True) if owner == number)
    return parts_known


def _parts(fs: FileSystem, target: Target, most_bytes: int) -> list[Part]:
    """Returns the parts of a partition or file; none if it cannot be listed, which the whole verification reports."""
    try:
        is_file = target.kind is TargetKind.FILE
        listing = SingleFile(fs, target.path, live=False).listing if is_file else list_partition(fs, target.path)
    except (OSError, NotALogError):
        return []
    return list(parts_of(listing, most_bytes, target.path.name if is_file else None)) if listing.format != "0.7" else []


def _part_verified(
    level: Level, store: StoreSettings, most_bytes: int, work: tuple[Part, tuple[Shown, ...]]
) -> KnownPart | None:
    """In a task: verifies a part. The whole verification reports read errors and what a tier lacks."""
    part, shown = work
    try:
        return verify_part(task_files(store, shown, lambda _: None), part, level, most_bytes)
    except OSError:
        return None


# --- statistics -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """What a partition holds and, if requested, what the cleaner needs for it."""

    log: LogStatistics
    sizing: Sizing | None = None
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class _Measuring:
    """A partition for a task to measure, of which stretches may already be `measured`."""

    directory: Path
    request: SizingRequest | None
    shown: tuple[Shown, ...]
    measured: MeasuredStretches


def statistics(
    spark: SparkSession,
    listings: Sequence[PartitionListing],
    *,
    sizing_of: Callable[[PartitionListing], SizingRequest] | None = None,
    watch: Watch | None = None,
    store: StoreSettings = NO_SETTINGS,
    seen: FileSystem | None = None,
) -> list[PartitionStatistics]:
    """Returns `inspect.statistics` of every partition in order, with `sizing_of` also `inspect.sizing`.

    The listings must be of Kafka 0.8 or later. `sizing_of` is called on the driver. `seen` is the file system through
    which the listings were made; it shows those that lie in a tier.
    """
    store = sent_along(store, [listing.directory for listing in listings])
    places_of = [() if seen is None else shown_at(seen, [listing.directory]) for listing in listings]
    measured = _measured_giants(spark, listings, places_of, store, watch)
    requests = [None if sizing_of is None else sizing_of(listing) for listing in listings]
    parts = zip(listings, requests, places_of, measured, strict=True)
    work = [_Measuring(listing.directory, request, places, stretches) for listing, request, places, stretches in parts]
    pairs = zip(listings, measured, strict=True)
    sizes = [0 if stretches else listing.size for listing, stretches in pairs]  # as in `verify`
    return run_tasks(spark, work, partial(_statistics_of, store), watch, sizes=sizes)


def _measured_giants(
    spark: SparkSession,
    listings: Sequence[PartitionListing],
    shown: Sequence[tuple[Shown, ...]],
    store: StoreSettings,
    watch: Watch | None,
) -> list[MeasuredStretches]:
    """Returns what tasks found in the stretches of each giant partition; nothing for the others."""
    measured: list[dict[Stretch, MeasuredStretch]] = [{} for _ in listings]
    work: list[tuple[Stretch, tuple[Shown, ...]]] = []
    sizes: list[int] = []
    owners: list[int] = []
    paths, bytes_of_all = [listing.directory for listing in listings], [listing.size for listing in listings]
    for number in giants_of(spark, paths, bytes_of_all, _MEASURING_COST):
        bytes_of = {segment.log: segment.size for segment in listings[number].segments}
        for logs in stretches_of(listings[number].segments):
            work.append((logs, shown[number]))
            sizes.append(sum(bytes_of[log] for log in logs))
            owners.append(number)
    if len(work) > 1:
        stretches: list[MeasuredStretch | None] = run_tasks(spark, work, partial(_measured, store), watch, sizes=sizes)
        for number, stretch in zip(owners, stretches, strict=True):
            if stretch is not None:
                measured[number][stretch.logs] = stretch
    return list(measured)


def _measured(store: StoreSettings, work: tuple[Stretch, tuple[Shown, ...]]) -> MeasuredStretch | None:
    """In a task: measures a stretch. Measuring the whole reports read errors and what a tier lacks."""
    logs, shown = work
    try:
        return measure_stretch(task_files(store, shown, lambda _: None), logs)
    except OSError:
        return None


def _statistics_of(store: StoreSettings, work: _Measuring) -> PartitionStatistics:
    """In a task: measures a partition."""
    remarks: list[Remark] = []
    fs = task_files(store, work.shown, remarks.append)
    known = partial(known_stretch, work.measured) if work.measured else None
    contents = view_statistics(fs, work.directory, known)
    sizing = None
    if work.request is not None:
        sizing = size_partition(fs, work.directory, work.request, keys=contents.distinct_keys, records=contents.records)
    return PartitionStatistics(contents, sizing, tuple(remarks))


# --- diff -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionDiff:
    """The differences between copies of a partition; `copies` are their directories."""

    partition: str
    copies: tuple[str, ...]
    differences: tuple[Difference, ...]
    remarks: tuple[Remark, ...]


def diff(
    spark: SparkSession,
    copies: Sequence[Path],
    level: DiffLevel = "batches",
    *,
    selection: Selection | None = None,
    watch: Watch | None = None,
    store: StoreSettings = NO_SETTINGS,
    seen: FileSystem | None = None,
) -> list[PartitionDiff]:
    """Runs `inspect.diff` on copies of a partition, or on each partition of log directories, in tasks.

    Without a `selection` it compares all batches, or the view of committed records. `seen` is a file system that shows
    copies in a tier.
    """
    wanted = selection or (COMMITTED if level == "view" else EVERYTHING)
    store = sent_along(store, copies)
    fs = seen or files_of(store)
    names: set[str] = set()
    for copy in copies:
        status = fs.status(copy)
        if status is None or not status.is_directory:
            raise NotALogError(copy, "no such directory")
        names |= {str(partition.topic_partition) for partition in list_log_directory(fs, copy).live}
    matched = [(name, tuple(copy / name for copy in copies)) for name in sorted(names)]
    matched = matched or [(links.name_of(copies[0]), tuple(copies))]
    work = [(name, paths, shown_at(fs, paths)) for name, paths in matched]
    sizes = [sum(size_of(fs, path) for path in paths) for _, paths, _ in work]
    return run_tasks(spark, work, partial(_differences, level, wanted, store), watch, sizes=sizes)


def _differences(
    level: DiffLevel,
    selection: Selection,
    store: StoreSettings,
    work: tuple[str, tuple[Path, ...], tuple[Shown, ...]],
) -> PartitionDiff:
    """In a task: compares the copies of a partition."""
    name, paths, shown = work
    remarks: list[Remark] = []
    fs = task_files(store, shown, remarks.append)
    has = tuple(fs.status(path) is not None for path in paths)
    if not all(has):
        found = [Difference(level, "missing", has, "not every copy has the partition")]
    else:
        with viewed_copies(fs, paths) as (viewed, listings):
            if level == "bytes":
                found = list(diff_bytes(viewed, listings))
            elif level == "batches":
                found = list(diff_batches(viewed, listings, selection))
            else:
                found = list(diff_view(viewed, listings, ViewOptions(selection=selection)))
    return PartitionDiff(name, tuple(str(path) for path in paths), tuple(found), tuple(remarks))
