"""The offset map: compiled = interpreted = a dictionary, whatever the hash and however small the map."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.cleaner import offset_map as owner
from seglog.cleaner.offset_map import OffsetMap
from seglog.cleaner.options import CleanerOptions
from seglog.format.decoder import scan_batches
from seglog.kernels import offset_map as compiled
from seglog.kernels import spans
from seglog.kernels.key_blocks import get_bit
from seglog.kernels.records import COUNT_INVALID, RECORDS_VALID, TRAILING_BYTES
from tests.support.interpreted import both, interpreted
from tests.support.naive import NaiveRecord, batch_v2

keys = st.none() | st.binary(max_size=3) | st.binary(min_size=6, max_size=40)


def batches_of(groups: list[list[bytes | None]]) -> tuple[np.ndarray, np.ndarray]:
    base, data = 0, b""
    for group in groups:
        data += batch_v2(base, [NaiveRecord(i, 0, key, b"v") for i, key in enumerate(group)])
        base += max(len(group), 1)
    array = np.frombuffer(data, dtype=np.uint8).copy()
    return array, scan_batches(array, 0, len(array), 0).batches


def survivors(data: np.ndarray, batches: np.ndarray, options: CleanerOptions) -> tuple[list[int], int]:
    """(ordinals that survive, passes)."""
    offset_map = OffsetMap(options, 0)
    starts = batches["position"] + 61
    ends = batches["position"] + batches["size"]
    passes = 0
    while passes == 0 or offset_map.is_full:
        if passes:
            offset_map.begin_pass(0)
        passes += 1
        status = offset_map.add_batches(data, starts, ends, batches, np.zeros(len(batches), dtype=np.uint8))
        assert status == RECORDS_VALID
    bits = offset_map.survivors
    return [i for i in range(offset_map.next_ordinal) if get_bit(bits, i)], passes


def expected(groups: list[list[bytes | None]]) -> list[int]:
    last: dict[bytes, int] = {}
    for ordinal, key in enumerate(key for group in groups for key in group):
        if key is not None:
            last[key] = ordinal
    return sorted(last.values())


@pytest.mark.parametrize("kernels", [compiled, interpreted("offset_map")], ids=["compiled", "interpreted"])
@given(
    groups=st.lists(st.lists(keys, max_size=30), min_size=1, max_size=6),
    mask=st.sampled_from([-1, 0, 1, 0xFFFFFF]),
    slots=st.sampled_from([3, 5, 100_000]),
)
@settings(max_examples=40)
def test_the_map_finds_the_last_record_of_each_key(
    kernels: Any, groups: list[list[bytes | None]], mask: int, slots: int
) -> None:
    data, batches = batches_of(groups)
    before = owner.kernels
    owner.kernels = kernels
    try:
        found, passes = survivors(data, batches, CleanerOptions(dedupe_buffer_bytes=24 * slots, hash_mask=mask))
    finally:
        owner.kernels = before
    assert found == expected(groups)
    distinct = len({key for group in groups for key in group if key is not None})
    assert passes == max(1, -(-distinct // int(slots * 0.9)))


def test_the_slots_grow_and_keep_every_key() -> None:
    groups = [[b"key-%d" % (i * 7919 % 60_000) for i in range(start, start + 1000)] for start in range(0, 90_000, 1000)]
    data, batches = batches_of(groups)
    assert survivors(data, batches, CleanerOptions())[0] == expected(groups)


def test_a_batch_that_lies_about_itself_has_a_status() -> None:
    data, batches = batches_of([[b"a", b"b"], [b"c"]])
    offset_map = OffsetMap(CleanerOptions(), 0)
    starts, ends = batches["position"] + 61, batches["position"] + batches["size"]
    skipped = np.zeros(2, dtype=np.uint8)
    for count, status in ((-1, COUNT_INVALID), (2**31 - 1, COUNT_INVALID), (1, TRAILING_BYTES)):
        broken = batches.copy()
        broken["count"][0] = count
        assert offset_map.add_batches(data, starts, ends, broken, skipped) == status
        assert offset_map.bad_batch == 0


@pytest.mark.parametrize("read", both(spans, "read_record"), ids=["compiled", "interpreted"])
@given(data=st.binary(max_size=40), cut=st.integers(0, 40))
@settings(max_examples=100)
def test_reading_any_bytes_as_a_record_stays_inside_them(read: Any, data: bytes, cut: int) -> None:
    array = np.frombuffer(data + bytes(8), dtype=np.uint8)[: len(data)].copy()
    end = min(cut, len(data))
    status, stop, _, _, _, key_position, key_size, _, _ = read(array, 0, end)
    if status == RECORDS_VALID:
        assert stop <= end
        assert key_position + max(key_size, 0) <= end
