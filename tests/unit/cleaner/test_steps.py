"""The steps of a round, as they are told: each pass over the log under its name, and no pass that there was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.cleaner.cleaner import clean_log
from seglog.cleaner.round import CleanerOptions
from seglog.model import Record, TopicPartition
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS, opened_log

KEYS = 300


@pytest.mark.parametrize("slots", [1000, 200])
def test_each_pass_is_reported_with_the_bytes_that_it_reads(tmp_path: Path, slots: int) -> None:
    told: list[tuple[str, int]] = []

    def begin(topic_partition: TopicPartition, step: str, size: int) -> None:
        assert str(topic_partition) == "t-0"
        told.append((step, size))

    options = CleanerOptions(dedupe_buffer_bytes=24 * slots, jobs=1)
    with opened_log(tmp_path / "t-0") as log:
        for checkpoint in (0, KEYS):
            log.append([Record(b"value", b"%d" % n, START_MS) for n in range(KEYS)], batch_records=10)
            log.roll()
            sizes = [segment.size for segment in log.segments if segment.size]
            told.clear()
            result = clean_log(log, options, ManualClock(START_MS), checkpoint, begin)
            steps = [step for step, _ in told]
            passes = ["indexing", *(f"indexing, pass {n}" for n in range(2, result.stats.index_passes + 1))]
            assert [step for step in steps if step.startswith("indexing")] == passes
            assert len(passes) == (1 if slots == 1000 else 2)
            assert told[0] == ("indexing", sizes[-1])
            assert all(0 < size <= sizes[-1] for step, size in told[1:] if step.startswith("indexing"))
            looks = len(passes) if checkpoint and len(passes) > 1 else 0
            assert told.count(("looking keys up in the clean section", sizes[0])) == looks
            assert (len(told), told[-1]) == (len(passes) + looks + 1, ("copying", sum(sizes)))
