"""When a segment is full: the answer for a run of batches is that of asking one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog import layout
from seglog.log.writer import RollState, batches_before_roll

STATE = RollState(
    base_offset=100, size=0, first_timestamp=-1, created_ms=1000, index_room=5, segment_bytes=1000, age_ms=50
)


def rolls(state: RollState, size: int = 10, last: int = 100, timestamp: int = 1, now: int = 1000) -> bool:
    """Whether one batch begins a new segment, by the vectorised rule."""
    batch = np.zeros(1, dtype=layout.BATCH)
    batch["size"], batch["last_offset"], batch["max_timestamp"] = size, last, timestamp
    return batches_before_roll(state, batch, now) == 0


def must_roll(state: RollState, row: np.void, now: int) -> bool:
    """The same in plain words, as Kafka asks for each batch (specification §8)."""
    by_records = state.first_timestamp >= 0
    age = int(row["max_timestamp"]) - state.first_timestamp if by_records else now - state.created_ms
    relative = int(row["last_offset"]) - state.base_offset
    return (
        state.size > state.segment_bytes - int(row["size"])
        or (state.size > 0 and age > state.age_ms)
        or state.index_room <= 0
        or not 0 <= relative <= 2**31 - 1
    )


def test_size_counts_what_would_be_written() -> None:
    assert not rolls(replace(STATE, size=990))
    assert rolls(replace(STATE, size=991))


def test_age_is_measured_by_record_timestamps_and_never_for_an_empty_segment() -> None:
    assert not rolls(replace(STATE, size=1, first_timestamp=10), timestamp=60, now=10**9)
    assert rolls(replace(STATE, size=1, first_timestamp=10), timestamp=61)
    assert not rolls(STATE, now=10**9)


def test_age_is_measured_by_the_clock_where_records_have_no_timestamp() -> None:
    assert not rolls(replace(STATE, size=1), now=1050)
    assert rolls(replace(STATE, size=1), now=1051)


def test_a_full_index_and_an_offset_too_far_roll() -> None:
    assert rolls(replace(STATE, index_room=0))
    assert not rolls(STATE, last=100 + 2**31 - 1)
    assert rolls(STATE, last=100 + 2**31)
    assert rolls(STATE, last=99)


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
        if must_roll(state, row, now):
            break
        first = int(row["max_timestamp"]) if state.size == 0 else state.first_timestamp
        # as if every batch took an index entry, which is the most a run may count on
        state = replace(
            state, size=state.size + int(row["size"]), first_timestamp=first, index_room=state.index_room - 1
        )
        expected += 1
    state = replace(STATE, size=size, first_timestamp=first_timestamp if size else -1, index_room=room)
    assert batches_before_roll(state, batches, now) == expected
