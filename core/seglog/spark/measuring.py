"""Statistics of partitions in tasks: of a giant one its stretches are measured first, in tasks of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.inspect.sizing import Sizing, SizingRequest, size_partition
from seglog.inspect.statistics import (
    LogStatistics,
    MeasuredStretch,
    MeasuredStretches,
    Stretch,
    measure_stretch,
    stretches_of,
    view_statistics,
)
from seglog.remote.settings import NO_SETTINGS, StoreSettings
from seglog.scan.listing import PartitionListing
from seglog.spark.files import sent_along
from seglog.spark.tasks import Watch, run_tasks
from seglog.spark.tiered import Shown, shown_at, task_files
from seglog.spark.verifying import giants_of
from seglog.storage.filesystem import FileSystem
from seglog.tiers.segments import Remark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEARER = 2  # CPU seconds of 1 GiB of small records: 0.80 to be measured, 0.37 to be verified


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """What a partition holds, and where it was asked for, what the cleaner needs for it."""

    log: LogStatistics
    sizing: Sizing | None = None
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class _Measuring:
    """What a task measures: a partition, of which stretches may be `measured`."""

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
    """`inspect.statistics` of every partition, in tasks, in their order; with `sizing_of` also `inspect.sizing`.

    The listings are of Kafka 0.8 and later. `sizing_of` is called on the driver. `seen`, through which they were made,
    shows those that lie in a tier.
    """
    store = sent_along(store, [one.directory for one in listings])
    shown = [() if seen is None else shown_at(seen, [one.directory]) for one in listings]
    measured = _measured_giants(spark, listings, shown, store, watch)
    requests = [None if sizing_of is None else sizing_of(one) for one in listings]
    parts = zip(listings, requests, shown, measured, strict=True)
    work = [_Measuring(one.directory, request, places, known) for one, request, places, known in parts]
    sizes = [0 if known else one.size for one, known in zip(listings, measured, strict=True)]  # it is not read again
    return run_tasks(spark, work, partial(_statistics_of, store), watch, sizes=sizes)


def _measured_giants(
    spark: SparkSession,
    listings: Sequence[PartitionListing],
    shown: Sequence[tuple[Shown, ...]],
    store: StoreSettings,
    watch: Watch | None,
) -> list[MeasuredStretches]:
    """What tasks have found in the stretches of each giant partition; of the others nothing."""
    measured: list[dict[Stretch, MeasuredStretch]] = [{} for _ in listings]
    work: list[tuple[Stretch, tuple[Shown, ...]]] = []
    sizes: list[int] = []
    owners: list[int] = []
    for number in giants_of(spark, [one.directory for one in listings], [one.size for one in listings], _DEARER):
        bytes_of = {segment.log: segment.size for segment in listings[number].segments}
        for logs in stretches_of(listings[number].segments):
            work.append((logs, shown[number]))
            sizes.append(sum(bytes_of[log] for log in logs))
            owners.append(number)
    if len(work) > 1:
        found: list[MeasuredStretch | None] = run_tasks(spark, work, partial(_measured, store), watch, sizes=sizes)
        for number, one in zip(owners, found, strict=True):
            if one is not None:
                measured[number][one.logs] = one
    return list(measured)


def _measured(store: StoreSettings, work: tuple[Stretch, tuple[Shown, ...]]) -> MeasuredStretch | None:
    """In a task: a stretch. What cannot be read is told by whoever measures the whole, and so is what a tier lacks."""
    logs, shown = work
    try:
        return measure_stretch(task_files(store, shown, lambda _: None), logs)
    except OSError:
        return None


def _statistics_of(store: StoreSettings, work: _Measuring) -> PartitionStatistics:
    """In a task: a partition."""
    remarks: list[Remark] = []
    fs = task_files(store, work.shown, remarks.append)
    found = view_statistics(fs, work.directory, work.measured)
    sizing = None
    if work.request is not None:
        sizing = size_partition(fs, work.directory, work.request, keys=found.distinct_keys, records=found.records)
    return PartitionStatistics(found, sizing, tuple(remarks))
