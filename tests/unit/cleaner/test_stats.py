"""The account of a round: the block that a broker logs, to the letter, and the phases that are measured."""

from __future__ import annotations

from pathlib import Path

from seglog.cleaner.output import PHASES, CleanerStats, CleaningResult
from seglog.kernels import filter_slots
from seglog.model import Compression, TopicPartition
from tests.support.cleaning import append, clean, compacted_log, many
from tests.support.manual_clock import ManualClock


def result_of(stats: CleanerStats, topic: str, begin: int, end: int) -> CleaningResult:
    return CleaningResult(TopicPartition(topic, 0), False, begin, end, (), (), 100, stats)


def test_the_block_has_kafkas_words_and_numbers() -> None:
    clock = ManualClock(0)
    stats = CleanerStats(clock)
    clock.advance(150)
    stats.index_done()
    clock.advance(350)
    stats.all_done()
    stats.bytes_read = stats.map_bytes_read = 3 << 20
    stats.bytes_written = 1 << 18
    stats.most_map_entries = 25
    stats.counters[filter_slots.RECORDS_READ], stats.counters[filter_slots.RECORDS_WRITTEN] = 6000, 10
    assert result_of(stats, "e11", 0, 6000).text(3) == (
        "\n"
        "\tLog cleaner thread 3 cleaned log e11-0 (dirty section = [0, 6000])\n"
        "\t3.0 MB of log processed in 0.5 seconds (6.0 MB/sec).\n"
        "\tIndexed 3.0 MB in 0.1 seconds (20.0 Mb/sec, 30.0% of total time)\n"
        "\tBuffer utilization: 25.0%\n"
        "\tCleaned 3.0 MB in 0.3 seconds (8.6 Mb/sec, 70.0% of total time)\n"
        "\tStart size: 3.0 MB (6,000 messages)\n"
        "\tEnd size: 0.2 MB (10 messages)\n"
        "\t91.7% size reduction (99.8% fewer messages)\n"
    )


def test_divisions_by_zero_print_as_java_prints_them() -> None:
    text = result_of(CleanerStats(ManualClock(0)), "t", 5, 5).text()
    assert "(NaN MB/sec)" in text
    assert "NaN% size reduction (NaN% fewer messages)" in text


def test_every_phase_that_is_measured_has_its_place_in_the_account(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, many(400, 40), 10, Compression.ZSTD)
    assert set(clean(log, roll=True, jobs=2, chunk_bytes=700).stats.phases) == set(PHASES)
