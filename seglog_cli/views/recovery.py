"""What opening or recovering a log did, or would do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.units import count_text
from seglog_cli.console import Console

if TYPE_CHECKING:
    from seglog.log.loader import RecoveryReport
    from seglog.model import TopicPartition
    from seglog_cli.quarantines import Told


def tell_recovery(session: Told, report: RecoveryReport) -> None:
    """On stderr, what opening a log had to change; details with -v."""
    for event in report.events:
        session.console.detail(event)
    if report.truncated_bytes:
        session.console.warning(f"{report.directory}: {_lost_text(report)}{kept_text(session, report)}")


def kept_text(session: Told, report: RecoveryReport) -> str:
    """How to get back what was lost, if it was kept; its name is enough from then on."""
    from seglog_cli.quarantines import remember_run

    if report.run is None:
        return ""
    remember_run(session, report.run)
    return f"; kept: seglog undo {report.run.name} gives it back"


def show_recovery(session: Told, report: RecoveryReport, dry_run: bool, verb: str = "recover") -> None:
    """A recovered partition as a line of data."""
    console, kept = session.console, kept_text(session, report)
    if console.as_json:
        console.json(recovery_record(report, dry_run))
        return
    did = f"would {verb}" if dry_run else f"{verb}ed"
    what = _lost_text(report) if report.truncated_bytes else "nothing lost"
    name = console.styled(report.directory.name, "strong")
    offsets = f"offsets {report.log_start_offset} to {report.log_end_offset}"
    console.line(f"{did} {name}: {count_text(len(report.recovered), 'segment')} read, {offsets}, {what}{kept}")
    for event in report.events:
        console.line(f"  {event}")
    for obstacle in report.obstacles:
        console.line(f"  a broker does not open it: {obstacle}")


def warn_of_obstacles(console: Console, obstacles: Iterable[str], seen: set[str]) -> None:
    """Warns of what stops a broker, of each file once."""
    for sentence in obstacles:
        if sentence not in seen:
            seen.add(sentence)
            console.warning(f"a broker does not start with this: {sentence}")


class ObstacleWarnings:
    """Warns of what stops a broker in log directories and in partitions of them that were worked on."""

    def __init__(self, session: Told) -> None:
        self._session = session
        self._seen: set[str] = set()
        self._directories: set[Path] = set()

    def tell(self, log_directory: Path, topic_partition: TopicPartition) -> None:
        """Of a partition, and, once, of the log directory: its checkpoints name thousands of partitions."""
        from seglog.log.obstacles import directory_obstacles, partition_obstacles

        console, fs = self._session.console, self._session.fs
        if log_directory not in self._directories:
            self._directories.add(log_directory)
            warn_of_obstacles(console, directory_obstacles(fs, log_directory), self._seen)
        warn_of_obstacles(console, partition_obstacles(fs, log_directory / str(topic_partition)), self._seen)


def recovery_record(report: RecoveryReport, dry_run: bool) -> dict[str, object]:
    """The JSON line."""
    return {
        "type": "recovery",
        "partition": report.directory.name,
        "dry_run": dry_run,
        "clean_shutdown": report.clean_shutdown,
        "log_start_offset": report.log_start_offset,
        "log_end_offset": report.log_end_offset,
        "segments_recovered": len(report.recovered),
        "truncated_bytes": report.truncated_bytes,
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
        "removed_files": [path.name for path in report.removed_files],
        "renamed_files": [[before.name, after.name] for before, after in report.renamed_files],
        "events": list(report.events),
        "obstacles": list(report.obstacles),
        "run": None if report.run is None else report.run.name,
    }


def _lost_text(report: RecoveryReport) -> str:
    did = "replaced by less" if report.replaced and not report.truncated_segments else "cut off"
    text = f"{report.truncated_bytes} bytes {did}"
    if report.deleted_segments:
        text += f", {count_text(len(report.deleted_segments), 'segment')} with them"
    return f"{text}; the log ends at offset {report.log_end_offset}"
