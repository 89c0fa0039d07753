"""Gathering spans and headers: compiled and interpreted agree with slices; hostile spans become null."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.kernels import gather
from tests.support import naive
from tests.support.interpreted import both

spans = st.lists(st.tuples(st.integers(-3, 40), st.integers(-2, 40)), max_size=20)


def bits(validity, count):
    return [bool(validity[i >> 3] >> (i & 7) & 1) for i in range(count)]


@pytest.mark.parametrize("kernel", both(gather, "gather_spans"), ids=["compiled", "interpreted"])
@given(data=st.binary(max_size=40), places=spans)
def test_spans_are_copied_back_to_back_and_bad_ones_are_null(kernel, data, places):
    arena = np.frombuffer(data, dtype=np.uint8)
    positions = np.array([p for p, _ in places], dtype=np.int32)
    sizes = np.array([s for _, s in places], dtype=np.int32)
    out = np.zeros(max(0, int(np.maximum(sizes, 0).sum())), dtype=np.uint8)
    offsets, validity = np.zeros(len(places) + 1, dtype=np.int32), np.zeros(len(places) // 8 + 1, dtype=np.uint8)
    nulls = kernel(arena, positions, sizes, out, offsets, validity)
    found = [
        out[offsets[i] : offsets[i + 1]].tobytes() if valid else None
        for i, valid in enumerate(bits(validity, len(places)))
    ]
    wanted = [data[p : p + s] if s >= 0 and 0 <= p <= len(data) - s else None for p, s in places]
    assert found == wanted
    assert nulls == wanted.count(None)


@pytest.mark.parametrize("kernel", both(gather, "gather_spans"), ids=["compiled", "interpreted"])
def test_an_output_that_is_too_small_is_not_overrun(kernel):
    arena, out = np.arange(10, dtype=np.uint8), np.zeros(4, dtype=np.uint8)
    places, sizes = np.zeros(2, dtype=np.int32), np.array([3, 3], dtype=np.int32)
    offsets, validity = np.zeros(3, dtype=np.int32), np.zeros(1, dtype=np.uint8)
    assert kernel(arena, places, sizes, out, offsets, validity) == 1
    assert bits(validity, 2) == [True, False]


def gathered(arena, position, count, end, index):
    columns = (np.array([v], dtype=np.int32) for v in (position, count, end))
    place = tuple(columns)
    measure, fill = both(gather, "measure_headers")[index], both(gather, "gather_headers")[index]
    total, key_bytes, value_bytes = measure(arena, *place)
    outputs = (
        np.zeros(2, dtype=np.int32),
        np.zeros(1, dtype=np.uint8),
        np.zeros(key_bytes, dtype=np.uint8),
        np.zeros(total + 1, dtype=np.int32),
        np.zeros(value_bytes, dtype=np.uint8),
        np.zeros(total + 1, dtype=np.int32),
        np.zeros(total // 8 + 1, dtype=np.uint8),
    )
    without = fill(arena, *place, *outputs)
    _, _, keys, key_offsets, values, value_offsets, validity = outputs
    pairs = [
        (
            keys[key_offsets[i] : key_offsets[i + 1]].tobytes(),
            values[value_offsets[i] : value_offsets[i + 1]].tobytes() if valid else None,
        )
        for i, valid in enumerate(bits(validity, total))
    ]
    return pairs, without


@pytest.mark.parametrize("index", [0, 1], ids=["compiled", "interpreted"])
@given(pairs=st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=10))
def test_headers_come_out_as_they_went_in(index, pairs):
    body = b"".join(naive.varint(len(k)) + k + naive.bytes_field(v) for k, v in pairs)
    arena = np.frombuffer(b"\x00" + body, dtype=np.uint8)
    assert gathered(arena, 1, len(pairs), len(arena), index) == (pairs, 0 if pairs else 1)


@pytest.mark.parametrize("index", [0, 1], ids=["compiled", "interpreted"])
@given(data=st.binary(max_size=30), position=st.integers(-2, 40), count=st.integers(-1, 50), end=st.integers(-1, 60))
def test_hostile_headers_stay_inside(index, data, position, count, end):
    pairs, _ = gathered(np.frombuffer(data, dtype=np.uint8), position, count, end, index)
    assert len(pairs) <= max(count, 0)
