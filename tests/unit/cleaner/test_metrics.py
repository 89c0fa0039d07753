"""Gauges under the broker's names, as Prometheus reads them."""

from __future__ import annotations

import re
from pathlib import Path

from seglog.cleaner.metrics import CleanerGauges, gauges_of, values_of
from seglog.storage.gauges import gauges_text, write_gauges
from tests.support.compacted_directories import FS

ROUND = {
    "bytes_read": 400,
    "bytes_written": 100,
    "buffer_utilization": 0.25,
    "index_seconds": 1.5,
    "clean_seconds": 2.0,
}
GAUGES = CleanerGauges(
    '/logs "a"\\', (ROUND, {**ROUND, "index_seconds": 9.0}), 0.75, 1500, {"t-0": ("bad\nCRC", 3 << 40)}, 42
)


def test_values_are_those_of_kafkas_gauges() -> None:
    values = {name.removeprefix("kafka_log_"): value for name, value in values_of(GAUGES).items()}
    assert values == {
        "logcleaner_max_buffer_utilization_percent": 25.0,
        "logcleaner_cleaner_recopy_percent": 25.0,
        "logcleaner_max_clean_time_secs": 11.0,
        "logcleaner_max_compaction_delay_secs": 1.5,
        "logcleaner_deadthreadcount": 0.0,
        "logcleanermanager_max_dirty_percent": 75.0,
        "logcleanermanager_time_since_last_run_ms": 42.0,
        "logcleanermanager_uncleanable_partitions_count": 1.0,
        "logcleanermanager_uncleanable_bytes": float(3 << 40),
    }


def test_every_line_is_one_that_prometheus_reads(tmp_path: Path) -> None:
    write_gauges(FS, tmp_path / "seglog.prom", gauges_of([GAUGES]))
    text = (tmp_path / "seglog.prom").read_text()
    assert text == gauges_text(gauges_of([GAUGES]))
    label = r'[a-z]+="(?:[^"\\\n]|\\["\\n])*"'
    for line in text.splitlines():
        assert re.fullmatch(rf"# (HELP|TYPE) [a-z_]+ .+|[a-z_]+\{{{label}(?:,{label})*\}} -?[0-9.e+-]+", line), line
    assert f'uncleanable_bytes{{directory="/logs \\"a\\"\\\\"}} {3 << 40}\n' in text


def test_a_directory_that_was_never_cleaned_has_gauges_too() -> None:
    values = values_of(CleanerGauges("/logs", (), 0.0, 0, {}, None))
    assert values["kafka_log_logcleaner_cleaner_recopy_percent"] == 0
    assert values["kafka_log_logcleanermanager_time_since_last_run_ms"] == -1
