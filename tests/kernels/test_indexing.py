"""Index entries: the kernel, compiled and interpreted, against the rule written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog import layout
from seglog.kernels import indexing
from seglog.log.indexes import closing_time_entry, index_entries_for, new_index_state
from tests.support.interpreted import both

BATCHES = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 200), st.integers(-1, 30)), min_size=0, max_size=40)


def table(described: list[tuple[int, int, int]]) -> np.ndarray:
    """Rows of (offsets taken, size, max timestamp)."""
    rows = np.zeros(len(described), dtype=layout.BATCH)
    offset = position = 0
    for row, (taken, size, timestamp) in zip(rows, described, strict=True):
        row["base_offset"], row["last_offset"] = offset, offset + taken - 1
        row["position"], row["size"], row["max_timestamp"] = position, size, timestamp
        offset, position = offset + taken, position + size
    return rows


def naive(rows: np.ndarray, interval: int) -> tuple[list[list[int]], list[list[int]]]:
    offsets: list[list[int]] = []
    times: list[list[int]] = []
    since, largest = 0, (-1, -1)
    for row in rows:
        if row["max_timestamp"] > largest[0]:
            largest = (int(row["max_timestamp"]), int(row["last_offset"]))
        if since > interval:
            offsets.append([int(row["last_offset"]), int(row["position"])])
            if largest[0] > (times[-1][0] if times else -1):
                times.append(list(largest))
            since = 0
        since += int(row["size"])
    return offsets, times


@given(BATCHES, st.integers(0, 300), st.integers(0, 40))
def test_entries_follow_the_rule_however_the_batches_are_cut_into_calls(
    described: list[tuple[int, int, int]], interval: int, cut: int
) -> None:
    rows = table(described)
    state = new_index_state()
    first = index_entries_for(rows[:cut], interval, state)
    second = index_entries_for(rows[cut:], interval, state)
    got = [np.concatenate([first[k], second[k]]).tolist() for k in (0, 1)]
    assert (got[0], got[1]) == naive(rows, interval)


@given(BATCHES, st.integers(0, 300))
def test_compiled_and_interpreted_agree(described: list[tuple[int, int, int]], interval: int) -> None:
    rows, results = table(described), []
    for function in both(indexing, "fill_index_entries"):
        state = new_index_state()
        offsets, times = np.zeros((len(rows), 2), np.int64), np.zeros((len(rows), 2), np.int64)
        counts = tuple(int(value) for value in function(rows, interval, state, offsets, times))
        results.append((counts, offsets[: counts[0]].tolist(), times[: counts[1]].tolist(), state.tolist()))
    assert results[0] == results[1]


def test_an_offset_that_goes_back_is_reported_where_it_would_be_indexed() -> None:
    rows = table([(10, 100, 5), (10, 100, 5), (10, 100, 5)])
    rows["last_offset"][2] = 3
    _, _, done, status = index_entries_for(rows, 0, new_index_state())
    assert (done, status) == (2, indexing.ENTRIES_OFFSET_NOT_ASCENDING)


@pytest.mark.parametrize(("largest", "expected"), [(7, (0, 7, 19)), (-1, (0, -1, -1))])
def test_the_closing_entry_is_the_largest_timestamp_and_comes_once(
    largest: int, expected: tuple[int, int, int]
) -> None:
    state = new_index_state()
    index_entries_for(table([(20, 100, largest)]), 4096, state)
    assert closing_time_entry(state) == expected
    assert closing_time_entry(state)[1] == -1
