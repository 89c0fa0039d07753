"""What a Python program asks of `seglog.spark` besides reading and writing DataFrames: `clean` and `verify`.

They take paths as a user writes them, and configuration as the library's functions of one machine take it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.errors import ConfigError
from seglog.locations import parse_location, require_local

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
) -> list[Outcome]:
    """Compacts logs over many tasks, as `seglog.clean` does on one machine: the same files, byte for byte.

    What became of each partition comes back: a `Cleaned`, or a `CleaningFailure`, which leaves its partition as it was.
    The paths are directories that all executors share. Raises before anything is changed as `seglog.clean` does.
    """
    from seglog.cleaner.options import Strategy
    from seglog.operations import clean as cleaning
    from seglog.operations.workspace import Sources, Workspace, policy_misuse
    from seglog.scan.listing import log_directory_of, resolve_paths
    from seglog.spark.cleaning import clean as clean_on_spark

    work, sources = Workspace(), Sources({"cleanup.policy": policy})
    located = _located(paths)
    for path in located:
        require_local(path)
    targets = resolve_paths(work.fs, located)
    misuse = "" if policy is None else policy_misuse("policy", policy, cleaning.POLICIES, targets)
    if misuse:
        raise ConfigError(misuse)
    directories = dict.fromkeys(map(log_directory_of, targets))
    settings = {path: work.settings(path, sources) for path in directories}
    config = next(iter(settings.values())).resolve(None).cleaner
    options = cleaning.cleaner_options(
        config, strategy=Strategy.parse(strategy), roll=roll, expire=expire, threads=work.threads
    )
    outcomes = list(clean_on_spark(spark, targets, settings.__getitem__, work.clock, options))
    rounds = [one for one in outcomes if isinstance(one, cleaning.Cleaned)]
    problem = cleaning.keep_history(work.fs, work.environment, work.clock, rounds)
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
    """Verifies logs over many tasks, as `seglog.verify` does on one machine: the findings, and what was looked at.

    `level` is framing, crc, records, index or semantic; `live`: a broker is writing. `store` are settings of an object
    store, as the options of a query.
    """
    from seglog.remote.settings import StoreSettings
    from seglog.scan.listing import resolve_paths
    from seglog.spark import jobs
    from seglog.spark.files import files_of, sent_along
    from seglog.verification.verify import Level, VerifyOptions

    levels = {one.name.lower(): one for one in Level}
    if level not in levels:
        raise ConfigError(f"level: {level!r} is not one of {', '.join(levels)}")
    located = _located(paths)
    settings = sent_along(StoreSettings.of(store or {}), located)
    targets = resolve_paths(files_of(settings), located)
    return jobs.verify(spark, targets, VerifyOptions(level=levels[level], live=live, jobs=1), store=settings)


def _located(paths: tuple[Location, ...]) -> list[Path]:
    if not paths:
        raise ConfigError("no path is given: name partitions or log directories")
    return [parse_location(path) for path in paths]
