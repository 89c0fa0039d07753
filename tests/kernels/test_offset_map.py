"""The offset map: compiled = interpreted = a dictionary, whatever the hash and however small the map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.cleaner import offset_map as cleaners
from seglog.cleaner.offset_map import KeyReader, OffsetMap
from seglog.cleaner.round import OFFSET, CleanerOptions
from seglog.errors import InvalidRecordError
from seglog.format.decoder import scan_batches
from seglog.kernels import key_tables, offset_map, spans
from seglog.kernels.bits import get_bit
from seglog.kernels.records import RECORDS_VALID
from seglog.scan.segment_scan import Chunk
from tests.support.interpreted import both, interpreted
from tests.support.naive import NaiveRecord, batch_v2

keys = st.none() | st.binary(max_size=3) | st.binary(min_size=6, max_size=40)

NO_FILE: Any = None  # a complete chunk has its bytes with it: nothing looks into its file


def batches_of(groups: list[list[bytes | None]]) -> tuple[np.ndarray, np.ndarray]:
    base, data = 0, b""
    for group in groups:
        data += batch_v2(base, [NaiveRecord(i, 0, key, b"v") for i, key in enumerate(group)])
        base += max(len(group), 1)
    array = np.frombuffer(data, dtype=np.uint8).copy()
    return array, scan_batches(array, 0, len(array), 0).batches


def survivors(data: np.ndarray, batches: np.ndarray, options: CleanerOptions) -> tuple[list[int], int]:
    """(ordinals that survive, passes)."""
    offset_map = OffsetMap(options, 1 << 20)
    reader = KeyReader(0, OFFSET, offset_map.seeds, offset_map.hash_mask)
    chunk = Chunk(Path("log"), 0, data, batches, NO_FILE)
    passes = 0
    while passes == 0 or offset_map.is_full:
        if passes:
            offset_map.begin_pass(0)
        passes += 1
        for table in reader.tables(chunk, np.zeros(len(batches), dtype=bool)):
            offset_map.put(table)
            reader.give_back(table)
    bits = offset_map.survivors
    return [i for i in range(offset_map.next_ordinal) if get_bit(bits, i)], passes


def expected(groups: list[list[bytes | None]]) -> list[int]:
    last: dict[bytes, int] = {}
    for ordinal, key in enumerate(key for group in groups for key in group):
        if key is not None:
            last[key] = ordinal
    return sorted(last.values())


COMPILED = (key_tables, offset_map)
INTERPRETED = (interpreted("key_tables"), interpreted("offset_map"))


@pytest.mark.parametrize("kernels", [COMPILED, INTERPRETED], ids=["compiled", "interpreted"])
@given(
    groups=st.lists(st.lists(keys, max_size=30), min_size=1, max_size=6),
    mask=st.sampled_from([-1, 0, 1, 0xFFFFFF]),
    slots=st.sampled_from([3, 5, 100_000]),
    rows=st.sampled_from([1, 7, 100]),
)
@settings(max_examples=40)
def test_the_map_finds_the_last_record_of_each_key(
    kernels: Any, groups: list[list[bytes | None]], mask: int, slots: int, rows: int
) -> None:
    data, batches = batches_of(groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaners, "key_tables", kernels[0])
        patch.setattr(cleaners, "offset_map", kernels[1])
        patch.setattr(cleaners, "_ROWS", rows)
        patch.setattr(cleaners, "_KEY_BYTES", 20)
        found, passes = survivors(data, batches, CleanerOptions(dedupe_buffer_bytes=24 * slots, hash_mask=mask))
    assert found == expected(groups)
    distinct = len({key for group in groups for key in group if key is not None})
    assert passes == max(1, -(-distinct // int(slots * 0.9)))


@pytest.mark.slow
def test_the_slots_grow_and_keep_every_key() -> None:
    groups = [[b"key-%d" % (i * 7919 % 60_000) for i in range(start, start + 1000)] for start in range(0, 90_000, 1000)]
    data, batches = batches_of(groups)
    assert survivors(data, batches, CleanerOptions())[0] == expected(groups)


def test_a_batch_with_a_false_count_is_reported_with_its_position() -> None:
    data, batches = batches_of([[b"a", b"b"], [b"c"]])
    reader = KeyReader(0, OFFSET, OffsetMap(CleanerOptions(), 3).seeds, -1)
    for count, reason in ((-1, "count"), (2**31 - 1, "count"), (1, "bytes follow")):
        broken = batches.copy()
        broken["count"][0] = count
        with pytest.raises(InvalidRecordError, match=reason) as caught:
            list(reader.tables(Chunk(Path("log"), 0, data, broken, NO_FILE), np.zeros(2, dtype=bool)))
        assert caught.value.position == 0


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
