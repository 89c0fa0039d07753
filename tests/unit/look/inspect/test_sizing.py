"""Dedupe-buffer arithmetic, rates and what follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seglog.cleaner.dirtiness import log_to_clean
from seglog.configuration.keys import CleanerConfig, LogConfig
from seglog.look.inspect.sizing import (
    Sizing,
    SizingRequest,
    buffer_for,
    capacity,
    kafka_rounds,
    measured_speed,
    size_log,
)
from seglog.model import TopicPartition
from tests.support.compacted_directories import broker_directory, opened
from tests.support.open_logs import START_MS


@given(keys=st.integers(0, 10**9), factor=st.floats(0.01, 1.0))
@example(keys=522, factor=0.29)
@example(keys=0, factor=0.9)
def test_the_buffer_for_n_keys_is_the_least_that_takes_them(keys: int, factor: float) -> None:
    buffer = buffer_for(keys, factor)
    assert capacity(buffer, factor) >= keys
    assert buffer == 0 if keys == 0 else capacity(buffer - 1, factor) < keys


def test_kafkas_default_buffer_takes_five_million_keys() -> None:
    assert capacity(134_217_728, 0.9) == 5_033_164


def sized(tmp_path: Path, **more: object) -> Sizing:
    path = broker_directory(tmp_path / "logs", {"t-0": (4, 30)})
    with opened(path, writable=False) as directory:
        log = directory.log(TopicPartition("t", 0))
        found = log_to_clean(log, 40, START_MS)
        config = CleanerConfig(dedupe_buffer_size=480, io_buffer_load_factor=0.5)
        request = SizingRequest(LogConfig(), config, START_MS, **more)  # type: ignore[arg-type]
        return size_log(log, found, request, keys=30, records=160)


def test_rounds_and_rates_follow_from_the_figures_of_the_log(tmp_path: Path) -> None:
    sizing = sized(tmp_path)
    assert (sizing.slots, sizing.capacity_keys, sizing.needed_buffer_bytes) == (20, 10, 1440)
    assert (sizing.least_kafka_rounds, sizing.kafka_rounds, sizing.index_passes) == (3, 11, 3)
    dirty_bytes, span_ms = sizing.dirty_bytes, 159 - 44
    assert sizing.write_bytes_per_second == pytest.approx(dirty_bytes * 1000 / span_ms)
    assert sizing.cleaner_bytes_per_second is None
    assert sizing.keeps_up is None


@pytest.mark.parametrize(("rate", "keeps_up"), [(499.0, True), (501.0, False)])
def test_a_cleaner_keeps_up_below_its_speed_times_the_dirty_ratio(tmp_path: Path, rate: float, keeps_up: bool) -> None:
    rounds = [{"bytes_read": 1500, "index_seconds": 1.0, "clean_seconds": 0.5}]
    sizing = sized(tmp_path, rounds=rounds, write_bytes_per_second=rate)
    assert sizing.sustainable_bytes_per_second == 500
    assert (sizing.keeps_up, sizing.day_bytes) == (keeps_up, round(rate * 86_400))


@pytest.mark.parametrize(("room", "rounds"), [(900, 19), (180, 108), (2700, 3), (2998, 1), (1, 20_000)])
def test_rounds_of_a_broker_are_those_that_kafkas_cleaner_needed(room: int, rounds: int) -> None:
    """Measured with Kafka 4.3.0's Cleaner: 20,000 records, 2,998 keys drawn evenly, buffers for so many keys."""
    found, recopied = kafka_rounds(2998, 20_000, room)
    assert found == rounds
    assert (recopied == 0) == (rounds == 1)


def test_what_the_rounds_of_a_broker_copy_again_is_of_the_size_that_was_measured() -> None:
    """9.54 MB were read for the copies of 19 rounds over 2.53 MB of 126 bytes a record."""
    _, recopied = kafka_rounds(2998, 20_000, 900)
    assert 0.7 < recopied * 126.3 / (9_540_914 - 2_526_600) < 1.0


def test_without_rounds_no_speed_is_known() -> None:
    assert measured_speed([]) is None
    assert measured_speed([{"bytes_read": 0, "index_seconds": 0, "clean_seconds": 0}]) is None
