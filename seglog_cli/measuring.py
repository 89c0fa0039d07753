"""What `stats` and `spark stats` share: their options, the partitions that they measure, and what is shown of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.failures import UsageError
from seglog_cli.options import flag, option, size_option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.configuration.settings import DirectorySettings
    from seglog.operations.stats import MeasuredPartition, PartitionStatistics
    from seglog.scan.listing import Target
    from seglog_cli.unreadable import Unreadable

WithSizing = Annotated[bool, flag("--sizing", "Show what the cleaner needs for this log, and whether it keeps up.")]
Plot = Annotated[bool, flag("--plot", "Draw the distributions.")]
MostRounds = Annotated[int, option("--rounds", "N", "Show this many of the last cleaning rounds.", least=0)]
WriteRate = Annotated[
    int | None, size_option("--write-rate", "For --sizing, take this many bytes a second, not the measured rate.")
]
Prometheus = Annotated[
    Path | None, option("--prometheus", "FILE", "Write the cleaner's gauges for Prometheus to this file.")
]


def check_measuring(session: Session, sizing: bool, plot: bool, write_rate: int | None) -> None:
    """Wrong usage for options that would change nothing."""
    if write_rate is not None and not sizing:
        raise UsageError("--write-rate is for --sizing")
    if plot and session.as_json:
        raise UsageError("--plot draws text; JSON lines hold the distributions anyway")


def measured_partitions(
    session: Session, targets: Sequence[Target], shown: dict[Path, DirectorySettings], unreadable: Unreadable
) -> Iterator[MeasuredPartition]:
    """The partitions that `targets` name; those of Kafka 0.7, and what is `unreadable`, are passed over with a warning.

    `shown` collects the log directories and their settings.
    """
    from seglog.operations.stats import MeasuredPartition, kept_rounds
    from seglog.scan.listing import list_partition, log_directory_of, partition_directories

    for target in targets:
        log_directory = log_directory_of(target)
        if log_directory not in shown:
            shown[log_directory] = session.config_of(log_directory)
        kept = kept_rounds(session.fs, os.environ, log_directory, session.console.warning)
        for directory in partition_directories(session.fs, target):
            listing = None
            with unreadable.passing_over(directory):
                listing = list_partition(session.fs, directory)
            if listing is None:
                continue
            if listing.format != "kafka":
                session.console.warning(f"{listing.directory}: a log of Kafka 0.7 has no statistics")
                continue
            yield MeasuredPartition.of(listing, shown[log_directory], kept)


def show_measured(session: Session, measured: PartitionStatistics, *, plot: bool, rounds: int) -> None:
    """A partition's distributions, its last rounds, and its sizing when there is one."""
    from seglog_cli.views.statistics import show_rounds, show_sizing, show_statistics

    show_statistics(session.console, measured.statistics, plot)
    show_rounds(session.console, measured.rounds[len(measured.rounds) - min(rounds, len(measured.rounds)) :])
    if measured.sizing is not None:
        show_sizing(session.console, measured.sizing)
