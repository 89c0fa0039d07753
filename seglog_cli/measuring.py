"""What `stats` and `spark stats` share: their options, the partitions that they measure, and what is shown of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog_cli.failures import UsageError
from seglog_cli.options import OptionGroup, flag, option, size_option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.configuration.settings import DirectorySettings
    from seglog.operations.stats import MeasuredPartition, PartitionStatistics
    from seglog.scan.listing import Target
    from seglog_cli.unreadable import Unreadable

Prometheus = Annotated[
    Path | None,
    option("--prometheus", "FILE", "Write the cleaner's gauges for Prometheus to this file."),
]


@dataclass(frozen=True)
class Measures(OptionGroup):
    """What is shown of a partition."""

    sizing: Annotated[bool, flag("--sizing", "Show what the cleaner needs for this log, and whether it keeps up.")] = (
        False
    )
    plot: Annotated[bool, flag("--plot", "Draw the distributions.")] = False
    rounds: Annotated[int, option("--rounds", "N", "Show this many of the last cleaning rounds.", least=0)] = 5
    write_rate: Annotated[
        int | None,
        size_option("--write-rate", "For --sizing, take this many bytes a second, not the measured rate.", least=1),
    ] = None

    def check(self, session: Session) -> None:
        """Wrong usage for options that would change nothing."""
        if self.write_rate is not None and not self.sizing:
            raise UsageError("--write-rate is for --sizing")
        if self.plot and session.as_json:
            raise UsageError("--plot draws text; JSON lines hold the distributions anyway")

    def show(self, session: Session, measured: PartitionStatistics) -> None:
        """A partition's distributions, its last rounds, and its sizing when there is one."""
        from seglog_cli.views.statistics import show_rounds, show_sizing, show_statistics

        show_statistics(session.console, measured.statistics, self.plot)
        show_rounds(session.console, measured.rounds[len(measured.rounds) - min(self.rounds, len(measured.rounds)) :])
        if measured.sizing is not None:
            show_sizing(session.console, measured.sizing)


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
