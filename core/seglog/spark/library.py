"""`clean` and `verify` for Python programs: paths as a user writes them, configuration as on one machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.errors import ConfigError
from seglog.kafka_version import SPOKEN_FOR, KafkaVersion
from seglog.remote.routing import parse_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seglog.operations.clean import Outcome
    from seglog.spark.jobs import VerifyReport

Location = str | Path


def clean(
    spark: SparkSession,
    *paths: Location,
    policy: str | None = None,
    strategy: str = "offset",
    roll: bool = False,
    expire: bool = False,
    kafka_version: str = str(SPOKEN_FOR),
    output: Location | None = None,
    store: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """Compacts logs over many tasks, as `seglog.clean` does on one machine: the same files, byte for byte.

    Returns an outcome for each partition: a `Cleaned`, or a `CleaningFailure`, which leaves its partition as it was.
    The paths are directories that all executors share. Raises the errors of `seglog.clean` before anything is changed.

    With `output`, a new prefix, the paths may be URLs, and the logs there stay as they are. Every named partition, and
    every compacted partition of a named log directory, is cleaned into new objects below `output`. One manifest commits
    them, and `seglog fetch` makes partitions of them. An error in any partition is raised, and then nothing is
    committed. `store` are settings of an object store, like the options of a query.
    """
    from seglog.cleaner.round import Strategy
    from seglog.operations.clean import POLICIES, CleaningOrder, keep_history
    from seglog.operations.workspace import (
        Sources,
        Workspace,
        local_paths_of,
        paths_of,
        policy_misuse,
        settings_of,
        warn,
    )
    from seglog.remote.settings import StoreSettings
    from seglog.scan.listing import resolve_paths
    from seglog.spark import cleaning
    from seglog.spark.cleaning_objects import Destination, clean_into
    from seglog.table.files import files_of, sent_along
    from seglog.tiers.view import see_tiers

    if output is None:
        work, shown = Workspace(), local_paths_of(paths)
    else:
        located = paths_of(paths)
        to = Destination(located, parse_location(output), sent_along(StoreSettings.of(store or {}), [*located, output]))
        fs, shown = see_tiers(files_of(to.store), located)
        work = Workspace(fs)
    targets = resolve_paths(work.fs, shown)
    sources = Sources({"cleanup.policy": policy})
    misuse = policy_misuse("policy", policy, POLICIES, targets)
    if misuse:
        raise ConfigError(misuse)
    order = CleaningOrder.of(
        targets,
        lambda path: settings_of(work, path, sources),
        strategy=Strategy.parse(strategy),
        roll=roll,
        expire=expire,
        threads=work.threads,
        kafka=KafkaVersion.parse(kafka_version),
    )
    topics_of = order.settings.__getitem__
    if output is not None:
        tasks = cleaning.SparkTasks(spark, cleaning.Placement())
        return clean_into(tasks, to, topics_of, work.clock, order.options, (work.fs, shown))
    outcomes = list(cleaning.clean(spark, targets, topics_of, work.clock, order.options))
    warn(keep_history(work, outcomes))
    return outcomes


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
    from seglog.remote.settings import StoreSettings
    from seglog.scan.listing import resolve_paths
    from seglog.scan.view import unfinished_runs
    from seglog.spark import jobs
    from seglog.table.files import files_of, sent_along
    from seglog.tiers.view import see_tiers
    from seglog.verification.batches import Level
    from seglog.verification.verify import VerifyOptions

    levels = {one.name.lower(): one for one in Level}
    if level not in levels:
        raise ConfigError(f"level: {level!r} is not one of {', '.join(levels)}")
    located = paths_of(paths)
    settings = sent_along(StoreSettings.of(store or {}), located)
    fs, shown = see_tiers(files_of(settings), located)
    warn(*unfinished_runs(fs, shown))
    options = VerifyOptions(level=levels[level], live=live, jobs=1)
    report = jobs.verify(spark, resolve_paths(fs, shown), options, store=settings, seen=fs)
    warn(*map(str, report.remarks))
    return report
