"""The dirty section: where it begins, what ends it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seglog.cleaner.dirtiness import CleanableOffsets, cleanable_offsets, round_down
from seglog.cleaner.round import CleanerOptions, plan_round
from seglog.configuration.keys import LogConfig
from seglog.log.segments import LogSegments
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS, opened_log


class Stub:
    """A segment with a base offset and a largest timestamp."""

    def __init__(self, base_offset: int, timestamp: int = 0) -> None:
        self.base_offset, self._timestamp = base_offset, timestamp

    def largest_timestamp(self) -> int:
        return self._timestamp


def segments(*found: tuple[int, int]) -> LogSegments:
    stubs: list[Any] = [Stub(base, timestamp) for base, timestamp in found]
    return LogSegments(stubs)


def offsets(
    *,
    checkpoint: int | None = None,
    log_start_offset: int = 0,
    log_end_offset: int = 300,
    last_stable_offset: int = 300,
    min_compaction_lag_ms: int = 0,
) -> CleanableOffsets:
    log: Any = SimpleNamespace(
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        last_stable_offset=last_stable_offset,
        config=LogConfig(min_compaction_lag_ms=min_compaction_lag_ms),
    )
    return cleanable_offsets(log, segments((0, 100), (100, 500), (200, 900), (300, 0)), checkpoint, now_ms=1000)


def test_without_checkpoint_everything_but_the_active_segment_is_dirty() -> None:
    found = offsets()
    assert (found.first_dirty_offset, found.first_uncleanable_offset, found.checkpoint_reset) == (0, 300, False)


@pytest.mark.parametrize(("checkpoint", "start"), [(50, 60), (301, 60)])
def test_a_checkpoint_outside_the_log_is_reset_to_its_start(checkpoint: int, start: int) -> None:
    found = offsets(checkpoint=checkpoint, log_start_offset=start)
    assert (found.first_dirty_offset, found.checkpoint_reset) == (60, True)


def test_an_open_transaction_ends_the_range() -> None:
    found = offsets(last_stable_offset=150)
    assert found.first_uncleanable_offset == 150
    assert "transaction" in found.reason
    found = offsets(last_stable_offset=300, log_end_offset=310)
    assert found.first_uncleanable_offset == 300
    assert "active segment" in found.reason


def test_a_range_that_ends_where_the_log_does_needs_no_reason() -> None:
    found = offsets()
    assert (found.first_uncleanable_offset, found.reason) == (300, "")


def test_young_segments_are_not_cleaned() -> None:
    found = offsets(min_compaction_lag_ms=600)
    assert found.first_uncleanable_offset == 100
    assert "min.compaction.lag.ms" in found.reason
    assert offsets(min_compaction_lag_ms=600, checkpoint=120).first_uncleanable_offset == 120
    assert offsets(min_compaction_lag_ms=500).first_uncleanable_offset == 200  # just old enough
    assert offsets(min_compaction_lag_ms=501).first_uncleanable_offset == 100


def test_the_end_is_rounded_down_to_a_segment() -> None:
    found = segments((0, 0), (100, 0), (200, 0))
    assert [round_down(found, offset) for offset in (0, 99, 100, 150, 200, 250)] == [0, 0, 100, 100, 200, 200]


@pytest.mark.parametrize(
    ("retention_ms", "horizon_ms"),
    [
        (60_000, START_MS + 60_000),
        (2**63 - 1 - START_MS, 2**63 - 1),
        (2**63 - START_MS, -(2**63)),
        (2**63 - 1, START_MS - 2**63 - 1),
    ],
)
def test_the_delete_horizon_is_a_retention_from_now_and_wraps_as_kafkas_sum_does(
    tmp_path: Path, retention_ms: int, horizon_ms: int
) -> None:
    with opened_log(tmp_path / "t-0", delete_retention_ms=retention_ms) as log:
        assert plan_round(log, CleanerOptions(), ManualClock(START_MS)).new_horizon_ms == horizon_ms
