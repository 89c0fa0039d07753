"""Growth by the time indexes, alone and together."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import seglog
from seglog.configuration.keys import LogConfig
from seglog.log.outline import OutlinedLog, outline
from seglog.look.report.growth import Growth, bytes_at, bytes_of_last_day, growth_of, growth_of_all
from seglog.model import TopicPartition
from seglog.scan.listing import list_partition
from seglog.storage.local import LocalFileSystem

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


def grown_log(directory: Path, hours: int) -> OutlinedLog:
    """A log of equal batches, one every minute."""
    with seglog.open_log(directory, create=True, config={"segment.bytes": 100_000}) as log:
        for minute in range(60 * hours):
            log.append([seglog.Record(b"x" * 4000, timestamp=START_MS + 60_000 * minute)])
    fs = LocalFileSystem()
    found = outline(fs, list_partition(fs, directory), TopicPartition("t", 0), LogConfig(), {})
    assert found is not None
    return found


def test_an_even_stream_grows_in_a_straight_line(tmp_path: Path) -> None:
    log = grown_log(tmp_path / "t-0", 4)
    growth = growth_of(log, START_MS + 10 * HOUR_MS)
    assert growth is not None
    assert growth.bytes[-1] == log.segments.size
    assert growth.last_ms == START_MS + 60_000 * (4 * 60 - 1)
    straight = np.linspace(growth.bytes[0], growth.bytes[-1], len(growth.bytes))
    assert np.max(np.abs(straight - growth.bytes)) < 0.02 * growth.bytes[-1]


def test_a_record_of_the_future_counts_as_one_of_now(tmp_path: Path) -> None:
    log = grown_log(tmp_path / "t-0", 4)
    now_ms = START_MS + 2 * HOUR_MS
    growth = growth_of(log, now_ms)
    assert growth is not None
    assert (growth.last_ms, growth.bytes[-1]) == (now_ms, log.segments.size)


def test_all_logs_together_have_the_bytes_of_each() -> None:
    one = Growth(START_MS, START_MS + HOUR_MS, (0, 50, 100))
    other = Growth(START_MS + HOUR_MS, START_MS + 2 * HOUR_MS, (10, 20, 300))
    found, before = growth_of_all([one, other], START_MS + 4 * HOUR_MS)
    assert found is not None
    assert (found.first_ms, found.last_ms, before) == (START_MS, START_MS + 4 * HOUR_MS, 0)
    assert found.bytes[-1] == 400
    assert list(found.bytes) == sorted(found.bytes)


def test_a_log_of_1970_does_not_press_the_others_together() -> None:
    old = Growth(0, 10, (1, 1, 1))
    logs = [old, Growth(START_MS, START_MS + HOUR_MS, (0, 5000, 10_000))]
    found, before = growth_of_all(logs, START_MS + 2 * HOUR_MS)
    assert found is not None
    assert (found.first_ms, before, found.bytes[-1]) == (START_MS, 1, 10_001)


def test_the_last_day_is_the_difference_over_24_hours() -> None:
    growth = Growth(START_MS, START_MS + 48 * HOUR_MS, (0, 100, 200))
    assert bytes_of_last_day([growth, growth], START_MS + 48 * HOUR_MS) == 200
    assert bytes_of_last_day([growth], START_MS + 100 * HOUR_MS) == 0
    point = Growth(START_MS, START_MS, (70, 70))
    assert bytes_at(point, np.array([START_MS - 1, START_MS], dtype=float)).tolist() == [0, 70]
