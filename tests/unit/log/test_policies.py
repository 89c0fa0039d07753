"""When a segment is full: the answer for a run of batches is that of asking one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog import layout
from seglog.log.writer import (
    RollLimits,
    RollReason,
    SegmentState,
    batches_before_roll,
    roll_reason,
)

STATE = SegmentState(base_offset=100, size=0, first_timestamp=-1, created_ms=1000, index_room=5)
LIMITS = RollLimits(segment_bytes=1000, age_ms=50)


def reason(state: SegmentState, size: int = 10, last: int = 100, timestamp: int = 1, now: int = 1000) -> object:
    return roll_reason(state, LIMITS, size, last, timestamp, now)


def test_size_counts_what_would_be_written() -> None:
    assert reason(replace(STATE, size=990)) is None
    assert reason(replace(STATE, size=991)) is RollReason.SIZE


def test_age_is_measured_by_record_timestamps_and_never_for_an_empty_segment() -> None:
    assert reason(replace(STATE, size=1, first_timestamp=10), timestamp=60, now=10**9) is None
    assert reason(replace(STATE, size=1, first_timestamp=10), timestamp=61) is RollReason.AGE
    assert reason(STATE, now=10**9) is None


def test_age_is_measured_by_the_clock_where_records_have_no_timestamp() -> None:
    assert reason(replace(STATE, size=1), now=1050) is None
    assert reason(replace(STATE, size=1), now=1051) is RollReason.AGE


def test_a_full_index_and_an_offset_too_far_roll() -> None:
    assert reason(replace(STATE, index_room=0)) is RollReason.INDEX_FULL
    assert reason(STATE, last=100 + 2**31 - 1) is None
    assert reason(STATE, last=100 + 2**31) is RollReason.OFFSET_OVERFLOW
    assert reason(STATE, last=99) is RollReason.OFFSET_OVERFLOW


batch_lists = st.lists(
    st.tuples(st.integers(61, 400), st.integers(1, 2**30), st.integers(-1, 120)), min_size=1, max_size=12
)


@given(batch_lists, st.integers(0, 900), st.integers(-1, 60), st.integers(0, 4), st.integers(900, 1200))
@settings(max_examples=300)
def test_a_run_stops_where_asking_batch_by_batch_stops(
    given_batches: list[tuple[int, int, int]], size: int, first_timestamp: int, room: int, now: int
) -> None:
    batches = np.zeros(len(given_batches), dtype=layout.BATCH)
    batches["size"] = [item[0] for item in given_batches]
    batches["last_offset"] = 99 + np.cumsum([item[1] for item in given_batches])
    batches["max_timestamp"] = [item[2] for item in given_batches]
    state = replace(STATE, size=size, first_timestamp=first_timestamp if size else -1, index_room=room)
    expected = 0
    for row in batches:
        if roll_reason(state, LIMITS, int(row["size"]), int(row["last_offset"]), int(row["max_timestamp"]), now):
            break
        first = int(row["max_timestamp"]) if state.size == 0 else state.first_timestamp
        # as if every batch took an index entry, which is the most a run may count on
        state = replace(
            state, size=state.size + int(row["size"]), first_timestamp=first, index_room=state.index_room - 1
        )
        expected += 1
    state = replace(STATE, size=size, first_timestamp=first_timestamp if size else -1, index_room=room)
    assert batches_before_roll(state, LIMITS, batches, now) == expected
