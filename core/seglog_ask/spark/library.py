"""`clean` and `verify` for Python programs: paths as a user writes them, configuration as on one machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from seglog.locations import parse_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seglog.operations.clean import CleaningKeywords, Outcome
    from seglog_ask.spark.jobs import VerifyReport

Location = str | Path


def clean(
    spark: SparkSession,
    *paths: Location,
    output: Location | None = None,
    store: Mapping[str, str] | None = None,
    **given: Unpack[CleaningKeywords],
) -> list[Outcome]:
    """Compacts logs over many tasks, as `seglog.clean` does on one machine: the same files, byte for byte.

    Returns an outcome for each partition: a `Cleaned`, or a `CleaningFailure`, which leaves its partition as it was.
    The paths are directories that all executors share. Raises the errors of `seglog.clean` before anything is changed.

    With `output`, a new prefix, the paths may be URLs, and the logs there stay as they are. Every named partition, and
    every compacted partition of a named log directory, is cleaned into new objects below `output`. One manifest commits
    them, and `seglog fetch` makes partitions of them. An error in any partition is raised, and then nothing is
    committed. `store` are settings of an object store, like the options of a query.
    """
    from seglog.operations.clean import CleaningRequest
    from seglog.operations.workspace import Workspace, local_paths_of, paths_of
    from seglog_ask.spark import cleaning
    from seglog_ask.spark.cleaning_objects import Destination, clean_into
    from seglog_ask.table.plan.files import files_of
    from seglog_stores.tiers.view import see_tiers

    if output is None:
        work = Workspace()
        directories = CleaningRequest(tuple(local_paths_of(paths)), **given).directories(work)
        return list(cleaning.clean(spark, work, directories))
    to = Destination.of(paths_of(paths), parse_location(output), store)
    fs, shown = see_tiers(files_of(to.store), to.sources)
    work = Workspace(fs)
    directories = CleaningRequest(tuple(shown), **given).directories(work)
    return clean_into(cleaning.SparkTasks(spark, cleaning.Placement()), to, work, shown, directories)


def verify(
    spark: SparkSession,
    *paths: Location,
    level: str = "semantic",
    live: bool = False,
    store: Mapping[str, str] | None = None,
) -> VerifyReport:
    """Verifies logs over many tasks, as `seglog.verify` does on one machine. Returns the findings and a summary.

    `level` is header, crc, record, index or semantic. Set `live` if a broker is writing. `store` are settings of an
    object store, like the options of a query.
    """
    from seglog.operations.workspace import paths_of, warn
    from seglog.scan.listing import resolve_paths
    from seglog.scan.view import unfinished_runs
    from seglog.verification.verify import VerifyOptions
    from seglog_ask.spark import jobs
    from seglog_ask.table.plan.files import files_of, sent_along
    from seglog_stores.remote.settings import StoreSettings
    from seglog_stores.tiers.view import see_tiers

    options = VerifyOptions.of(level, live=live)
    located = paths_of(paths)
    settings = sent_along(StoreSettings.of(store or {}), located)
    fs, shown = see_tiers(files_of(settings), located)
    warn(*unfinished_runs(fs, shown))
    report = jobs.verify(spark, resolve_paths(fs, shown), options, store=settings, seen=fs)
    warn(*map(str, report.remarks))
    return report
