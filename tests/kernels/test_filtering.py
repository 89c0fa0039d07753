"""Which batches are dead: the kernel, compiled and interpreted, against bits looked at one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seglog import layout
from seglog.kernels import filter_slots, filtering
from seglog.kernels.filter_slots import DEAD, DELETE, DIRTY, DISCARD, EXPIRED, KEEP_ALL, RETAIN_EMPTY
from tests.support.interpreted import both

FLAGS = (0, DIRTY, DIRTY | EXPIRED, DIRTY | RETAIN_EMPTY, DIRTY | DISCARD | DELETE, DIRTY | DISCARD | DELETE | KEEP_ALL)
# A batch: flags, records, whether it is a control batch, offsets that nobody uses after it.
DESCRIBED = st.lists(
    st.tuples(st.sampled_from(FLAGS), st.integers(-1, 40), st.booleans(), st.integers(0, 2)), max_size=12
)


def table(described: list[tuple[int, int, bool, int]]) -> tuple[np.ndarray, np.ndarray]:
    rows, flags = np.zeros(len(described), dtype=layout.BATCH), np.zeros(len(described), dtype=np.uint8)
    offset = 100
    for i, (flag, count, control, gap) in enumerate(described):
        rows["base_offset"][i], rows["last_offset"][i] = offset, offset + max(count, 1) - 1
        rows["count"][i], rows["attributes"][i], flags[i] = count, layout.CONTROL_MASK if control else 0, flag
        offset += max(count, 1) + gap
    return rows, flags


def naive(rows: np.ndarray, flags: np.ndarray, ordinal: int, bits: list[int], first_dirty: int, last: int) -> list[int]:
    answer = []
    for row, flag in zip(rows, flags.tolist(), strict=True):
        count, control = int(row["count"]), bool(row["attributes"] & layout.CONTROL_MASK)
        mine: list[int] = []
        if count > 0 and not control and flag & DIRTY and not flag & KEEP_ALL:
            mine, ordinal = bits[ordinal : ordinal + count], ordinal + count
        dead = len(mine) == count > 0 and not any(mine) and not flag & (DISCARD | RETAIN_EMPTY)
        dead = dead and row["base_offset"] >= first_dirty and not row["base_offset"] <= last <= row["last_offset"]
        answer.append(flag | DEAD if dead else flag)
    return answer


@given(
    DESCRIBED,
    st.integers(0, 20),
    st.lists(st.integers(0, 200), max_size=4),
    st.integers(0, 45),
    st.integers(90, 180),
    st.one_of(st.just(-1), st.integers(90, 200)),
)
def test_a_batch_is_dead_when_none_of_its_bits_is_set(
    described: list[tuple[int, int, bool, int]],
    ordinal: int,
    surviving: list[int],
    bytes_of_bits: int,
    first_dirty: int,
    last_kept: int,
) -> None:
    rows, flags = table(described)
    bits = [0] * (8 * bytes_of_bits)
    for i in surviving:
        if i < len(bits):
            bits[i] = 1
    packed = np.packbits(np.array(bits, dtype=np.uint8), bitorder="little")
    settings = np.zeros(filter_slots.SETTINGS_SLOTS, dtype=np.int64)
    settings[filter_slots.FIRST_DIRTY], settings[filter_slots.LAST_KEPT] = first_dirty, last_kept
    nothing, words = np.zeros(1, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    expected = naive(rows, flags, ordinal, bits, first_dirty, last_kept)
    for function in both(filtering, "flag_dead_batches"):
        got = flags.copy()
        function(rows, ordinal, (packed, nothing, nothing, nothing, words, settings), got)
        assert got.tolist() == expected
