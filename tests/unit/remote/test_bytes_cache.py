"""The bounded cache of bytes."""

from __future__ import annotations

from seglog_stores.remote.bytes_cache import BytesCache


def test_what_was_used_last_stays() -> None:
    cache = BytesCache[int, bytes](10)
    for number in range(4):
        cache.put(number, bytes(4))
        cache.get(0)
    assert [cache.get(number) is not None for number in range(4)] == [True, False, False, True]


def test_a_cache_holds_no_more_than_its_bytes() -> None:
    cache = BytesCache[int, bytes](10)
    for number in range(5):
        cache.put(number, bytes(4))
    assert [cache.get(number) is not None for number in range(5)] == [False, False, False, True, True]
    cache.put(9, bytes(11))  # it would cost all the others
    assert cache.get(9) is None and cache.get(4) is not None
    cache.put(4, bytes(6))
    assert (cache.get(4), cache.held) == (bytes(6), 10)
