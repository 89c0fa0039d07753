"""What a Python program asks of `seglog.spark` besides reading and writing DataFrames: `clean` and `verify`.

They take paths as a user writes them, and configuration as the library's functions of one machine take it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.errors import ConfigError
from seglog.operations.workspace import Sources, Workspace, policy_misuse
from seglog.remote.routing import parse_location, require_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seglog.operations.clean import CleaningOrder, Outcome
    from seglog.scan.listing import Target
    from seglog.spark.verifying import VerifyReport

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

    What became of each partition comes back: a `Cleaned`, or a `CleaningFailure`, which leaves its partition as it was.
    The paths are directories that all executors share. Raises before anything is changed as `seglog.clean` does.

    With `output`, a prefix that is new, the paths may be URLs, and stay as they are: every partition that is named, and
    of a log directory every compacted one, is cleaned into new objects there and committed by one manifest, which
    `seglog fetch` makes partitions of. Then an error in one of them is raised, and nothing was committed. `store` are
    settings of an object store, as the options of a query.
    """
    from seglog.operations.clean import keep_history
    from seglog.scan.listing import resolve_paths
    from seglog.spark.cleaning import clean as clean_on_spark

    located = _located(paths)
    if output is not None:
        return _clean_into(spark, located, parse_location(output), store or {}, policy, strategy, roll, expire)
    for path in located:
        require_local(path)
    work = Workspace()
    targets = resolve_paths(work.fs, located)
    order = _ordered(work, targets, policy, strategy, roll, expire)
    outcomes = list(clean_on_spark(spark, targets, order.settings.__getitem__, work.clock, order.options))
    problem = keep_history(work, outcomes)
    if problem:
        _logger.warning("%s", problem)
    return outcomes


def _clean_into(
    spark: SparkSession,
    located: list[Path],
    output: Path,
    store: Mapping[str, str],
    policy: str | None,
    strategy: str,
    roll: bool,
    expire: bool,
) -> list[Outcome]:
    from seglog.remote.settings import StoreSettings
    from seglog.scan.listing import resolve_paths
    from seglog.spark.cleaning import Placement, SparkTasks
    from seglog.spark.cleaning_objects import Destination, clean_into
    from seglog.spark.files import files_of, sent_along
    from seglog.tiers.view import see_tiers

    sent = sent_along(StoreSettings.of(store), [*located, output])
    fs, seen = see_tiers(files_of(sent), located)
    work = Workspace(fs)
    order = _ordered(work, resolve_paths(fs, seen), policy, strategy, roll, expire)
    to = Destination(located, output, sent)
    return clean_into(
        SparkTasks(spark, Placement()), to, order.settings.__getitem__, work.clock, order.options, (fs, seen)
    )


def _ordered(
    work: Workspace, targets: Sequence[Target], policy: str | None, strategy: str, roll: bool, expire: bool
) -> CleaningOrder:
    from seglog.cleaner.round import Strategy
    from seglog.operations.clean import POLICIES, CleaningOrder

    sources = Sources({"cleanup.policy": policy})
    misuse = policy_misuse("policy", policy, POLICIES, targets)
    if misuse:
        raise ConfigError(misuse)
    return CleaningOrder.of(
        targets,
        lambda path: work.settings(path, sources),
        strategy=Strategy.parse(strategy),
        roll=roll,
        expire=expire,
        threads=work.threads,
    )


def verify(
    spark: SparkSession,
    *paths: Location,
    level: str = "semantic",
    live: bool = False,
    store: Mapping[str, str] | None = None,
) -> VerifyReport:
    """Verifies logs over many tasks, as `seglog.verify` does on one machine: the findings, and what was looked at.

    `level` is framing, crc, records, index or semantic; `live`: a broker is writing. `store` are settings of an object
    store, as the options of a query.
    """
    from seglog.remote.settings import StoreSettings
    from seglog.scan.listing import resolve_paths
    from seglog.scan.view import unfinished_runs
    from seglog.spark import jobs
    from seglog.spark.files import files_of, sent_along
    from seglog.tiers.view import see_tiers
    from seglog.verification.verify import Level, VerifyOptions

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
