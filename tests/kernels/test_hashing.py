"""The hash of keys: the same compiled and interpreted, keyed, and different for keys that differ a little."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seglog.kernels._jit import kernel
from seglog.kernels.hashing import SEED_WORDS, hash_key
from tests.support.interpreted import interpreted

SEEDS = np.array([0x1B03738712FAD5C9, -0x61C8864680B583EB, 0x3C6EF372FE94F82B, -0x5AB8AC0FD2E3D1A7], dtype=np.int64)


@kernel
def hashed(data: np.ndarray, size: int, seeds: np.ndarray) -> int:
    return hash_key(data, 0, size, seeds)


def of(key: bytes, seeds: np.ndarray = SEEDS) -> int:
    return int(hashed(np.frombuffer(key + bytes(1), dtype=np.uint8).copy(), len(key), seeds))


@given(st.binary(max_size=70))
def test_compiled_and_interpreted_hashes_are_equal(key: bytes) -> None:
    data = np.frombuffer(key + bytes(1), dtype=np.uint8).copy()
    assert of(key) == interpreted("hashing").hash_key(data, 0, len(key), [int(seed) for seed in SEEDS])


def test_other_seeds_give_other_hashes() -> None:
    other = SEEDS + 1
    assert len(SEEDS) == SEED_WORDS
    assert all(of(b"key-%d" % i) != of(b"key-%d" % i, other) for i in range(100))


def test_similar_keys_hash_apart() -> None:
    found = {of(b"k" * size) for size in range(60)} | {of(b"key-%016d" % i) for i in range(20_000)}
    assert len(found) == 20_060
    tops = {value >> 48 for value in (of(b"%d" % i) for i in range(20_000))}
    assert len(tops) > 15_000
