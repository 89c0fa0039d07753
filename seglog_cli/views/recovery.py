"""The results of recovering a log, done or planned, and what else keeps a broker from starting."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.session import Session, lost_text

if TYPE_CHECKING:
    from seglog.log.loader import RecoveryReport
    from seglog.model import TopicPartition


def show_recovery(session: Session, report: RecoveryReport, dry_run: bool, verb: str = "recover") -> None:
    """Shows a recovered partition as a line of data."""
    console, kept = session.console, session.kept_text(report)
    if console.as_json:
        console.json(recovery_record(report, dry_run))
        return
    did = f"would {verb}" if dry_run else f"{verb}ed"
    what = lost_text(report) if report.truncated_bytes else "nothing lost"
    if report.preallocated_bytes:
        what += f", {count_text(report.preallocated_bytes, 'preallocated zero byte')} cut off"
    if report.gone is not None:
        first, last = report.gone
        what = f"offsets {first} to {last} are gone: there was no .log file (seglog restore finds what was set aside)"
    name = console.styled(report.directory.name, "strong")
    offsets = f"offsets {report.log_start_offset} to {report.log_end_offset}"
    console.line(f"{did} {name}: {count_text(len(report.recovered), 'segment')} read, {offsets}, {what}{kept}")
    for event in report.events:
        console.line(f"  {event}")
    for obstacle in report.obstacles:
        console.line(f"  a broker does not open it: {obstacle}")


def warn_of_obstacles(console: Console, obstacles: Iterable[str]) -> None:
    """Warns of what keeps a broker from starting."""
    for sentence in obstacles:
        console.warning(f"a broker does not start with this: {sentence}")


class ObstacleWarnings:
    """Warns of what keeps a broker from starting, in the log directories and partitions that were worked on."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._directories: set[Path] = set()

    def tell(self, log_directory: Path, topic_partition: TopicPartition) -> None:
        """Checks a partition, and once its log directory: the checkpoints there name thousands of partitions."""
        from seglog.log.checkpoints import directory_obstacles, partition_obstacles

        console, fs = self._session.console, self._session.fs
        if log_directory not in self._directories:
            self._directories.add(log_directory)
            warn_of_obstacles(console, directory_obstacles(fs, log_directory))
        warn_of_obstacles(console, partition_obstacles(fs, log_directory / str(topic_partition)))


def recovery_record(report: RecoveryReport, dry_run: bool) -> dict[str, object]:
    return {
        "type": "recovery",
        "partition": report.directory.name,
        "dry_run": dry_run,
        "clean_shutdown": report.clean_shutdown,
        "log_start_offset": report.log_start_offset,
        "log_end_offset": report.log_end_offset,
        "segments_recovered": len(report.recovered),
        "truncated_bytes": report.truncated_bytes,
        "preallocated_bytes": report.preallocated_bytes,
        "truncated_segments": [
            {
                "base_offset": one.base_offset,
                "valid_bytes": one.valid_bytes,
                "truncated_bytes": one.truncated_bytes,
                "reason": one.reason,
            }
            for one in report.truncated_segments
        ],
        "deleted_segments": list(report.deleted_segments),
        "replaced_logs": [
            {
                "file": one.path.name,
                "size": one.size,
                "end_offset": one.end_offset,
                "swap_end_offset": one.swap_end_offset,
                "reason": one.reason,
            }
            for one in report.replaced
        ],
        "gone": report.gone,
        "removed_files": [path.name for path in report.removed_files],
        "renamed_files": [[before.name, after.name] for before, after in report.renamed_files],
        "events": list(report.events),
        "obstacles": list(report.obstacles),
        "run": None if report.run is None else report.run.name,
    }
