"""`clean` and `verify` for Python programs: paths as a user writes them, configuration as on one machine."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.errors import ConfigError
from seglog.remote.routing import parse_location, require_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seglog.operations.clean import Outcome
    from seglog.spark.jobs import VerifyReport

Location = str | Path

_logger = logging.getLogger(__name__)


def clean(
    spark: SparkSession,
    *paths: Location,
    policy: str | None = None,
    strategy: str = "offset",
    roll: bool = False,
    expire: bool = False,
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
    from seglog.operations.workspace import Sources, Workspace, policy_misuse
    from seglog.remote.settings import StoreSettings
    from seglog.scan.listing import resolve_paths
    from seglog.spark import cleaning
    from seglog.spark.cleaning_objects import Destination, clean_into
    from seglog.spark.files import files_of, sent_along
    from seglog.tiers.view import see_tiers

    located = _located(paths)
    shown: Sequence[Path] = located
    if output is None:
        for path in located:
            require_local(path)
        work = Workspace()
    else:
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
        lambda path: work.settings(path, sources),
        strategy=Strategy.parse(strategy),
        roll=roll,
        expire=expire,
        threads=work.threads,
    )
    topics_of = order.settings.__getitem__
    if output is not None:
        tasks = cleaning.SparkTasks(spark, cleaning.Placement())
        return clean_into(tasks, to, topics_of, work.clock, order.options, (work.fs, shown))
    outcomes = list(cleaning.clean(spark, targets, topics_of, work.clock, order.options))
    problem = keep_history(work, outcomes)
    if problem:
        _logger.warning("%s", problem)
    return outcomes


def verify(
    spark: SparkSession,
    *paths: Location,
    level: str = "semantic",
    live: bool = False,
    store: Mapping[str, str] | None = None,
) -> VerifyReport:
    """Verifies logs over many tasks, as `seglog.verify` does on one machine. Returns the findings and a summary.

    `level` is framing, crc, records, index or semantic. Set `live` if a broker is writing. `store` are settings of an
    object store, like the options of a query.
    """
    from seglog.remote.settings import StoreSettings
    from seglog.scan.listing import resolve_paths
    from seglog.scan.view import unfinished_runs
    from seglog.spark import jobs
    from seglog.spark.files import files_of, sent_along
    from seglog.tiers.view import see_tiers
    from seglog.verification.batches import Level
    from seglog.verification.verify import VerifyOptions

    levels = {one.name.lower(): one for one in Level}
    if level not in levels:
        raise ConfigError(f"level: {level!r} is not one of {', '.join(levels)}")
    located = _located(paths)
    settings = sent_along(StoreSettings.of(store or {}), located)
    fs, shown = see_tiers(files_of(settings), located)
    for problem in unfinished_runs(fs, shown):
        _logger.warning("%s", problem)
    options = VerifyOptions(level=levels[level], live=live, jobs=1)
    report = jobs.verify(spark, resolve_paths(fs, shown), options, store=settings, seen=fs)
    for remark in report.remarks:
        _logger.warning("%s", remark)
    return report


def _located(paths: tuple[Location, ...]) -> list[Path]:
    if not paths:
        raise ConfigError("no path is given: name partitions or log directories")
    return [parse_location(path) for path in paths]
