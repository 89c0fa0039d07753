"""Writes the cleaner's gauges under the broker's names as a text file for Prometheus (node_exporter's textfile
collector).

Kafka's metrics of `kafka.log:type=LogCleaner` and `type=LogCleanerManager` become `kafka_log_logcleaner_…`, as the
usual JMX exporter rules name them: lower case, dashes as underscores. The file is replaced atomically, so that a
collector never reads half of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seglog.storage import links
from seglog.storage.filesystem import FileSystem, write_atomically


@dataclass(frozen=True, slots=True)
class CleanerGauges:
    """The state of one log directory. Ratios are fractions, times milliseconds; `rounds` are those of the last pass."""

    directory: str
    rounds: tuple[Mapping[str, Any], ...]
    max_dirty_ratio: float
    max_delay_ms: int
    uncleanable: Mapping[str, tuple[str, int]]
    ms_since_last_run: int | None


_HELP = {
    "kafka_log_logcleaner_max_buffer_utilization_percent": "Largest share of the dedupe buffer used in the last pass.",
    "kafka_log_logcleaner_cleaner_recopy_percent": "Bytes written per bytes read in the last pass, in percent.",
    "kafka_log_logcleaner_max_clean_time_secs": "Longest round of the last pass.",
    "kafka_log_logcleaner_max_compaction_delay_secs": "By how much max.compaction.lag.ms is exceeded at most.",
    "kafka_log_logcleaner_deadthreadcount": "Cleaner threads that ended on an error.",
    "kafka_log_logcleanermanager_max_dirty_percent": "Dirty share of the dirtiest log.",
    "kafka_log_logcleanermanager_time_since_last_run_ms": "Time since the last pass ended.",
    "kafka_log_logcleanermanager_uncleanable_partitions_count": "Partitions whose cleaning failed.",
    "kafka_log_logcleanermanager_uncleanable_bytes": "Bytes of these partitions.",
}

_START = f"# HELP {next(iter(_HELP))} ".encode()


def values_of(gauges: CleanerGauges) -> dict[str, float]:
    """Returns the value of each gauge by its Prometheus name."""
    rounds = gauges.rounds
    read = sum(round_["bytes_read"] for round_ in rounds)
    written = sum(round_["bytes_written"] for round_ in rounds)
    seconds = [round_["index_seconds"] + round_["clean_seconds"] for round_ in rounds]
    values = (
        100 * max((round_["buffer_utilization"] for round_ in rounds), default=0.0),
        100 * written / read if read else 0.0,
        max(seconds, default=0.0),
        gauges.max_delay_ms / 1000,
        0,  # a thread that fails ends the process
        100 * gauges.max_dirty_ratio,
        -1 if gauges.ms_since_last_run is None else gauges.ms_since_last_run,
        len(gauges.uncleanable),
        sum(size for _, size in gauges.uncleanable.values()),
    )
    return dict(zip(_HELP, map(float, values), strict=True))


def prometheus_text(all_gauges: Iterable[CleanerGauges]) -> str:
    """Returns the exposition text: a sample per gauge and directory, and one per uncleanable partition."""
    found = [(gauges, values_of(gauges)) for gauges in all_gauges]
    lines: list[str] = []
    for name, help_text in _HELP.items():
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
        lines += [f'{name}{{directory="{_label(g.directory)}"}} {_number(values[name])}' for g, values in found]
    name = "seglog_uncleanable_partition"
    lines += [
        f"# HELP {name} A partition whose cleaning failed, and why; the value is its bytes.",
        f"# TYPE {name} gauge",
    ]
    for gauges, _ in found:
        for partition, (reason, size) in sorted(gauges.uncleanable.items()):
            labels = {"directory": gauges.directory, "partition": partition, "reason": reason}
            written = ",".join(f'{key}="{_label(value)}"' for key, value in labels.items())
            lines.append(f"{name}{{{written}}} {size}")
    return "\n".join(lines) + "\n"


def is_gauges_file(fs: FileSystem, path: Path) -> bool:
    """True if `write_prometheus` would replace nothing but gauges: no file, an empty one, or one that begins as its own
    do. Raises OSError if the file cannot be read.
    """
    status = fs.status(path)
    if status is None:
        return True
    if status.no_file:
        return False
    with fs.open(path, "r") as file:
        return file.read_at(0, len(_START)) in (b"", _START)


def write_prometheus(fs: FileSystem, path: Path, all_gauges: Iterable[CleanerGauges]) -> None:
    """Replaces the text file at `path`, or the one that a link there names. Raises OSError if it cannot be written."""
    write_atomically(fs, links.resolve(path), prometheus_text(all_gauges).encode("utf-8", "replace"))


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(round(value, 6))
