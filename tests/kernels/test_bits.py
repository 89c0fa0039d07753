"""Whether any of some bits is set: as NumPy tells it, compiled and interpreted, and with nothing read beside them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seglog.kernels.bits import any_bit
from tests.support.interpreted import interpreted


@given(st.integers(1, 400), st.sets(st.integers(0, 399), max_size=3), st.data())
def test_any_bit_of_a_stretch(size: int, wanted: set[int], data: st.DataObject) -> None:
    bits = np.zeros(size, dtype=bool)
    bits[[i for i in wanted if i < size]] = True
    packed = np.packbits(bits, bitorder="little")
    first = data.draw(st.integers(0, size - 1))
    count = data.draw(st.integers(1, size - first))
    expected = bool(bits[first : first + count].any())
    assert any_bit(packed, first, count) == expected
    assert interpreted("bits").any_bit(packed, first, count) == expected
