"""Keys between cleaning tasks: the newest entry of each key, and which others are there, whatever the hash."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.kernels import key_exchange
from tests.support.interpreted import both

SEEDS = np.array([3, 5, 7, 9], dtype=np.int64) * 0x1F83D9ABFB41BD
PAIRS = list(zip(both(key_exchange, "merge"), both(key_exchange, "look_up"), strict=True))

short_keys = st.lists(st.binary(max_size=2) | st.binary(min_size=8, max_size=9), max_size=20)


def laid_out(keys: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bytes, positions, sizes) of keys side by side."""
    sizes = np.array([len(key) for key in keys], dtype=np.int64)
    return np.frombuffer(b"".join(keys), dtype=np.uint8), np.cumsum(sizes) - sizes, sizes


@pytest.mark.parametrize("kernels", PAIRS, ids=["compiled", "interpreted"])
@pytest.mark.parametrize("mask", [-1, 1, 0])
@given(keys=short_keys, others=short_keys, chance=st.randoms())
def test_the_newest_of_each_key_is_found_and_others_are_looked_up(kernels, mask, keys, others, chance):
    merge, look_up = kernels
    ranks = list(range(len(keys)))
    chance.shuffle(ranks)
    hashes, newest = np.empty(len(keys), dtype=np.int64), np.empty(len(keys), dtype=np.uint8)
    slots = np.full(1 << (2 * len(keys)).bit_length(), -1, dtype=np.int64)
    table = laid_out(keys)
    merge(*table, np.array(ranks, dtype=np.int64), SEEDS, mask, hashes, slots, newest)
    best = {key: max(r for k, r in zip(keys, ranks, strict=True) if k == key) for key in keys}
    assert [bool(one) for one in newest] == [best[key] == rank for key, rank in zip(keys, ranks, strict=True)]

    found = np.empty(len(others), dtype=np.uint8)
    look_up(*table, hashes, slots, *laid_out(others), SEEDS, mask, found)
    assert [bool(one) for one in found] == [key in best for key in others]
