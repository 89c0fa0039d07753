"""What `stats` and `spark stats` share: their options, the partitions that they measure, and what is shown of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seglog_cli.failures import UsageError
from seglog_cli.options import flag, size_option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.cleaner.history import Round
    from seglog.configuration.topic_settings import DirectorySettings
    from seglog.inspect.sizing import Sizing, SizingRequest
    from seglog.inspect.statistics import LogStatistics
    from seglog.scan.listing import PartitionListing, Target
    from seglog_cli.unreadable import Unreadable

WithSizing = Annotated[bool, flag("--sizing", "What the cleaner needs for this log, and whether it keeps up.")]
Plot = Annotated[bool, flag("--plot", "Draw the distributions.")]
MostRounds = Annotated[
    int, typer.Option("--rounds", metavar="N", min=0, help="How many of the last cleaning rounds to show.")
]
WriteRate = Annotated[
    int | None, size_option("--write-rate", "For --sizing: bytes written a second, instead of the measured rate.")
]


def check_measuring(session: Session, sizing: bool, plot: bool, write_rate: int | None) -> None:
    """Wrong usage for options that would change nothing."""
    if write_rate is not None and not sizing:
        raise UsageError("--write-rate is for --sizing")
    if plot and session.as_json:
        raise UsageError("--plot draws text; JSON lines hold the distributions anyway")


@dataclass(frozen=True)
class MeasuredPartition:
    """A partition to measure, with the settings of its log directory and the cleaning rounds that are kept of it."""

    listing: PartitionListing
    settings: DirectorySettings
    rounds: tuple[Round, ...]

    def sizing_request(self, now_ms: int, write_rate: int | None) -> SizingRequest:
        """What `inspect.sizing` must know of it beside the log."""
        from seglog.configuration.topic_settings import topic_of
        from seglog.inspect.sizing import SizingRequest
        from seglog.scan.listing import Target, TargetKind

        resolved = self.settings.resolve(topic_of(Target(self.listing.directory, TargetKind.PARTITION)))
        return SizingRequest(resolved.log, resolved.cleaner, now_ms, self.rounds, write_rate)


def measured_partitions(
    session: Session, targets: Sequence[Target], shown: dict[Path, DirectorySettings], unreadable: Unreadable
) -> Iterator[MeasuredPartition]:
    """The partitions that `targets` name; those of Kafka 0.7, and what is `unreadable`, are passed over with a warning.

    `shown` collects the log directories and their settings.
    """
    from seglog.scan.listing import list_partition, log_directory_of, partition_directories

    for target in targets:
        log_directory = log_directory_of(target)
        if log_directory not in shown:
            shown[log_directory] = session.config_of(log_directory)
        kept = kept_rounds(session, log_directory)
        for directory in partition_directories(session.fs, target):
            listing = None
            with unreadable.passing_over(directory):
                listing = list_partition(session.fs, directory)
            if listing is None:
                continue
            if listing.format != "kafka":
                session.console.warning(f"{listing.directory}: a log of Kafka 0.7 has no statistics")
                continue
            name = listing.directory.resolve().name
            rounds = tuple(round_ for round_ in kept if round_["partition"] == name)
            yield MeasuredPartition(listing, shown[log_directory], rounds)


def kept_rounds(session: Session, log_directory: Path) -> list[Round]:
    """The cleaning rounds that are kept of a log directory, oldest first."""
    import os

    from seglog.cleaner.history import CleaningHistory, state_directory

    return CleaningHistory(session.fs, state_directory(os.environ), log_directory).rounds()


def show_measured(
    session: Session,
    partition: MeasuredPartition,
    statistics: LogStatistics,
    sizing: Sizing | None,
    *,
    plot: bool,
    rounds: int,
) -> None:
    """A partition's distributions, its last rounds, and its sizing when there is one."""
    from seglog_cli.views.statistics import show_rounds, show_sizing, show_statistics

    show_statistics(session.console, statistics, plot)
    show_rounds(session.console, partition.rounds[len(partition.rounds) - min(rounds, len(partition.rounds)) :])
    if sizing is not None:
        show_sizing(session.console, sizing)
