"""The cleaner's gauges under the broker's names, as the usual rules of the JMX exporter form them: Kafka's metrics of
`kafka.log:type=LogCleaner` and `type=LogCleanerManager` become `kafka_log_logcleaner_…`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seglog.storage.gauges import Gauge


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

FIRST_GAUGE = next(iter(_HELP))


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


def gauges_of(directories: Sequence[CleanerGauges]) -> list[Gauge]:
    """Returns the gauges as they are written: a sample for each directory, and one for each uncleanable partition."""
    values = [({"directory": gauges.directory}, values_of(gauges)) for gauges in directories]
    made = [Gauge(name, text, [(labels, of[name]) for labels, of in values]) for name, text in _HELP.items()]
    uncleanable = [
        ({"directory": gauges.directory, "partition": partition, "reason": reason}, size)
        for gauges in directories
        for partition, (reason, size) in sorted(gauges.uncleanable.items())
    ]
    text = "A partition whose cleaning failed, and why; the value is its bytes."
    return [*made, Gauge("seglog_uncleanable_partition", text, uncleanable)]
