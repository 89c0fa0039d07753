"""`seglog stats`: what is in logs, how cleaning went, and what the cleaner needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from seglog_cli.failures import UsageError
from seglog_cli.measuring import Measures, Prometheus, measured_partitions
from seglog_cli.options import Paths, command, takes_urls
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers

if TYPE_CHECKING:
    from seglog.configuration.settings import DirectorySettings


@command
@takes_urls("paths")
def run(
    session: Session,
    paths: Paths,
    tiers: Tiers,
    measures: Measures,
    prometheus: Prometheus = None,
) -> int:
    """Shows distributions and the last cleaning rounds; with --sizing, the dedupe buffer and disk needed.

    Every partition is read once: records, keys and their number (an estimate, 0.8 % standard error), sizes, codecs,
    tombstones, frequent keys. The last rounds are those that `clean` and `cleaner` kept under $XDG_STATE_HOME/seglog.
    --sizing works out, from the log's own figures: how many keys the buffer takes, the buffer for all keys, the rounds
    a broker would need, the disk when the cleaner stops for a day, and up to which write rate it keeps up. A segment
    stands for the partition that it lies in. Nothing is changed or locked.

    Examples:
      seglog stats customers-0
      seglog stats --sizing --set log.cleaner.dedupe.buffer.size=32MiB customers-0
      seglog stats --prometheus seglog.prom /var/lib/kafka/data
    """
    from seglog.scan.listing import resolve_paths
    from seglog_cli.unreadable import Unreadable

    measures.check(session)
    shown: dict[Path, DirectorySettings] = {}
    if prometheus is not None:
        _require_place(session, prometheus)  # before all is read
    session, paths = tiers.seen(session, paths)
    targets = resolve_paths(session.fs, paths)
    unreadable = Unreadable.among(session, targets)
    for partition in measured_partitions(session, targets, shown, unreadable):
        with unreadable.passing_over(partition.listing.directory):
            found = partition.measured(
                session.fs, session.clock.now_ms(), sizing=measures.sizing, write_rate=measures.write_rate
            )
            measures.show(session, found)
    if prometheus is not None:
        _write_gauges(session, prometheus, shown)
    return tiers.code(unreadable.exit_code)


def _require_place(session: Session, path: Path) -> None:
    """Wrong usage where the gauges could not be written."""
    status = session.fs.status(path.absolute().parent)
    if status is None or not status.is_directory:
        raise UsageError(f"--prometheus: {path.absolute().parent} is not a directory")


def _write_gauges(session: Session, path: Path, shown: dict[Path, DirectorySettings]) -> None:
    from seglog.cleaner.metrics import CleanerGauges, write_prometheus
    from seglog.operations.clean import states_of
    from seglog.operations.stats import kept_rounds

    gauges = []
    for log_directory, settings in shown.items():
        rounds = kept_rounds(session.fs, os.environ, log_directory, session.console.warning)
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
