"""`seglog stats`: what is in logs, how cleaning went, and what the cleaner needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seglog_cli.options import Paths, command, flag, size_option
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.cleaner.history import Round
    from seglog.cleaner.sizing import Sizing
    from seglog.diagnosis.statistics import LogStatistics
    from seglog.log.listing import PartitionListing
    from seglog.log.topic_settings import DirectorySettings


@command
def run(
    session: Session,
    paths: Paths,
    sizing: Annotated[bool, flag("--sizing", "What the cleaner needs for this log, and whether it keeps up.")] = False,
    plot: Annotated[bool, flag("--plot", "Draw the distributions.")] = False,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=0, help="How many of the last cleaning rounds to show.")
    ] = 5,
    write_rate: Annotated[
        int | None, size_option("--write-rate", "For --sizing: bytes written a second, instead of the measured rate.")
    ] = None,
    prometheus: Annotated[
        Path | None,
        typer.Option("--prometheus", metavar="FILE", help="Write the cleaner's gauges to this file."),
    ] = None,
) -> None:
    """Shows distributions, the last cleaning rounds, and with --sizing the dedupe buffer and the disk it takes.

    Every partition is read once: records, keys and their number (an estimate, 0.8 % standard error), sizes,
    codecs, tombstones, frequent keys. The last rounds are those that `clean` and `cleaner` kept under
    $XDG_STATE_HOME/seglog. --sizing works out, from the log's own figures: how many keys the buffer takes,
    the buffer for all keys, the rounds a broker would need, the disk when the cleaner stops for a day, and
    up to which write rate it keeps up. Nothing is changed or locked.

    Examples:
      seglog stats customers-0
      seglog stats --sizing --set log.cleaner.dedupe.buffer.size=32MiB customers-0
      seglog stats --prometheus seglog.prom /var/lib/kafka/data
    """
    from seglog.diagnosis.statistics import log_statistics
    from seglog.log.listing import log_directory_of, partitions_of, resolve_paths
    from seglog_cli.views.statistics import show_rounds, show_sizing, show_statistics

    shown: dict[Path, DirectorySettings] = {}
    for target in resolve_paths(session.fs, paths):
        log_directory = log_directory_of(target)
        if log_directory not in shown:
            shown[log_directory] = session.config_of(log_directory)
        for listing in partitions_of(session.fs, target):
            if listing.format != "kafka":
                session.console.warning(f"{listing.directory}: a log of Kafka 0.7 has no statistics")
                continue
            found = log_statistics(session.fs, listing)
            kept = _rounds(session, log_directory, found.partition)
            show_statistics(session.console, found, plot)
            show_rounds(session.console, kept[len(kept) - min(rounds, len(kept)) :])
            if sizing:
                show_sizing(session.console, _sizing(session, listing, found, kept, shown[log_directory], write_rate))
    if prometheus is not None:
        _write_gauges(session, prometheus, shown)


def _rounds(session: Session, log_directory: Path, partition: str | None = None) -> list[Round]:
    import os

    from seglog.cleaner.history import CleaningHistory, state_directory

    return CleaningHistory(session.fs, state_directory(os.environ), log_directory).rounds(partition)


def _sizing(
    session: Session,
    listing: PartitionListing,
    found: LogStatistics,
    rounds: list[Round],
    settings: DirectorySettings,
    write_rate: int | None,
) -> Sizing:
    from seglog.cleaner.manager import log_to_clean
    from seglog.cleaner.sizing import size_log
    from seglog.log.directory import open_partition

    owner, log = open_partition(
        listing.directory, fs=session.fs, clock=session.clock, config_of=settings, writable=False
    )
    with owner:
        checkpoint = owner.cleaner_offsets.get(log.topic_partition)
        return size_log(
            log,
            log_to_clean(log, checkpoint, session.clock.now_ms()),
            keys=found.distinct_keys,
            records=found.records,
            config=settings.resolve(log.topic_partition.topic).cleaner,
            rounds=rounds,
            write_bytes_per_second=write_rate,
        )


def _write_gauges(session: Session, path: Path, shown: dict[Path, DirectorySettings]) -> None:
    from seglog.cleaner.metrics import CleanerGauges, write_prometheus
    from seglog.cleaner.requested import states_of

    gauges = []
    for log_directory, settings in shown.items():
        rounds = _rounds(session, log_directory)
        ended = rounds[-1]["time"] if rounds else None
        states = states_of(session.fs, log_directory, settings, session.clock)
        gauges.append(
            CleanerGauges(
                directory=str(log_directory),
                rounds=tuple(round_ for round_ in rounds if round_["time"] == ended),
                max_dirty_ratio=max((state.cleanable_ratio for state in states), default=0.0),
                max_delay_ms=max((state.delay_ms for state in states), default=0),
                uncleanable={},
                ms_since_last_run=None if ended is None else max(0, session.clock.now_ms() - ended),
            )
        )
    write_prometheus(session.fs, path, gauges)
