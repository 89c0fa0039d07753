"""`seglog stats`: contents of logs, past cleaning rounds, and what the cleaner needs; shared with `spark stats`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seglog.errors import RefusedError
from seglog_cli.failures import SkippedPartitions, UsageError
from seglog_cli.options import OptionGroup, Paths, command, flag, option, size_option
from seglog_cli.session import Session
from seglog_cli.tiering import Tiers
from seglog_cli.views.statistics import show_rounds, show_sizing, show_statistics

if TYPE_CHECKING:
    from seglog.look.report.growth import Growth
    from seglog.operations.stats import PartitionStatistics

_PROMETHEUS = "Write gauges for Prometheus to this file. Another kind of file is not replaced."
Prometheus = Annotated[Path | None, option("--prometheus", "FILE", _PROMETHEUS)]


@dataclass(frozen=True)
class Measures(OptionGroup):
    """What is shown of a partition."""

    sizing: Annotated[bool, flag("--sizing", "Show what the cleaner needs for this log, and whether it keeps up.")] = (
        False
    )
    plot: Annotated[bool, flag("--plot", "Draw growth and distributions.")] = False
    rounds: Annotated[int, option("--rounds", "N", "Show this many of the last cleaning rounds.", least=0)] = 5
    write_rate: Annotated[
        int | None,
        size_option(
            "--write-rate", "For --sizing, use this many bytes a second instead of the measured rate.", least=1
        ),
    ] = None

    def check(self, session: Session) -> None:
        """Raises UsageError for options that would change nothing."""
        if self.write_rate is not None and not self.sizing:
            raise UsageError("--write-rate is for --sizing")
        if self.plot and session.as_json:
            raise UsageError("--plot draws text; JSON lines always have the distributions")

    def show(self, session: Session, measured: PartitionStatistics, growth: Growth | None = None) -> None:
        """Shows a partition's distributions, its last rounds, and its sizing if there is one."""
        show_statistics(session.console, measured.statistics, self.plot, growth)
        show_rounds(session.console, measured.rounds[len(measured.rounds) - min(self.rounds, len(measured.rounds)) :])
        if measured.sizing is not None:
            show_sizing(session.console, measured.sizing)


@command(urls=["paths"])
def run(
    session: Session,
    paths: Paths,
    measures: Measures,
    prometheus: Prometheus = None,
    *,
    tiers: Tiers,
) -> int:
    """Shows distributions, past rounds, and what the cleaner needs.

    Every partition is read once. The output has the number of records and keys (keys are an estimate, 0.8 % standard
    error), sizes, codecs, tombstones and frequent keys, then the last rounds that `clean` and `cleaner` recorded under
    $XDG_STATE_HOME/seglog. Nothing is changed or locked.

    --sizing calculates, from the log's own figures: how many keys the buffer takes, the buffer for all keys, the rounds
    that a broker would need, the disk space when the cleaner stops for a day, and the write rate up to which it keeps
    up.

    A segment stands for the partition that it is in.

    Examples:
      seglog stats customers-0
      seglog stats --plot orders-none-0
      seglog stats --sizing --set log.cleaner.dedupe.buffer.size=32MiB customers-0
      seglog stats --prometheus seglog.prom /var/lib/kafka/data
    """
    from seglog.operations.stats import MeasuredDirectories
    from seglog.scan.listing import partition_directories, resolve_paths

    measures.check(session)
    if prometheus is not None:
        require_gauges_file(session, prometheus)
    session, paths = tiers.seen(session, paths)
    targets = resolve_paths(session.fs, paths)
    unreadable = SkippedPartitions.among(session, targets)
    directories = [directory for target in targets for directory in partition_directories(session.fs, target)]
    measured = MeasuredDirectories(session.workspace("--config", "--set"), targets, unreadable.passing_over)
    with session.reading("stats", directories) as reading:
        for partition in measured.partitions():
            with unreadable.passing_over(partition.directory):
                now_ms = session.clock.now_ms()
                statistics = partition.measured(
                    reading.fs, now_ms, sizing=measures.sizing, write_rate=measures.write_rate
                )
                measures.show(session, statistics, partition.growth(reading.fs, now_ms) if measures.plot else None)
    if prometheus is not None:
        measured.write_gauges(prometheus)
    return tiers.code(unreadable.exit_code)


def require_gauges_file(session: Session, path: Path, first: str = "") -> None:
    """Raises an error if gauges, of which one named `first` or the cleaner's comes first, cannot go to a file."""
    from seglog.cleaner.metrics import FIRST_GAUGE
    from seglog.storage.gauges import is_gauges_file

    folder = path.absolute().parent
    status = session.fs.status(folder)
    if status is None or not status.is_directory:
        raise UsageError(f"--prometheus: {folder} is not a directory")
    if not is_gauges_file(session.fs, path, first or FIRST_GAUGE):
        raise RefusedError(f"--prometheus: {path} holds something else than gauges, and would be replaced")
