"""Hashes of spans: equal bytes hash alike wherever they lie, hostile spans read nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.kernels import row_keys
from tests.support.interpreted import both

SEEDS = np.array([3, 5, 7, 9], dtype=np.int64) * 0x1F83D9ABFB41BD
KERNELS = both(row_keys, "hash_spans")


def hashed(kernel, data: bytes, places: list[tuple[int, int]], seeds: np.ndarray = SEEDS) -> tuple[list[int], int]:
    out = np.zeros(len(places), dtype=np.int64)
    positions = np.array([p for p, _ in places], dtype=np.int32)
    sizes = np.array([s for _, s in places], dtype=np.int32)
    nulls = kernel(np.frombuffer(data, dtype=np.uint8), positions, sizes, seeds, out)
    return out.tolist(), nulls


@pytest.mark.parametrize("kernel", KERNELS, ids=["compiled", "interpreted"])
@given(keys=st.lists(st.binary(max_size=40), max_size=12))
def test_equal_spans_hash_alike_and_others_do_not(kernel, keys):
    data = b"".join(keys)
    ends = np.cumsum([len(key) for key in keys]).tolist()
    found, nulls = hashed(kernel, data, [(end - len(key), len(key)) for end, key in zip(ends, keys, strict=True)])
    assert len(set(found)) == len(set(keys))
    assert all((found[i] == found[j]) == (keys[i] == keys[j]) for i in range(len(keys)) for j in range(i))
    assert nulls == 0


@pytest.mark.parametrize("kernel", KERNELS, ids=["compiled", "interpreted"])
def test_null_and_hostile_spans(kernel):
    places = [(0, -1), (-1, 2), (3, 2), (0, 2**31 - 1), (2**31 - 1, 1), (4, 0)]
    found, nulls = hashed(kernel, b"abcd", places)
    assert found[:5] == [row_keys.NULL, *[row_keys.OUTSIDE] * 4]
    assert (found[5] not in (row_keys.NULL, row_keys.OUTSIDE), nulls) == (True, 1)


def test_seeds_make_other_hashes():
    compiled = KERNELS[0]
    assert hashed(compiled, b"key", [(0, 3)])[0] != hashed(compiled, b"key", [(0, 3)], SEEDS + 1)[0]
