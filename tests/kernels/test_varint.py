"""Varints: compiled = interpreted = naive, and hostile bytes end in (0, -1)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.kernels import varint as kernels
from tests.support import naive
from tests.support.interpreted import both

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)


@given(INT64)
def test_written_varlong_is_the_naive_one_and_reads_back(value: int) -> None:
    expected = naive.varint(value)
    for write, size, read in zip(
        both(kernels, "write_varint"), both(kernels, "varint_size"), both(kernels, "read_varlong"), strict=True
    ):
        buffer = np.zeros(12, dtype=np.uint8)
        end = write(buffer, 1, value)
        assert buffer[1:end].tobytes() == expected
        assert size(value) == len(expected)
        assert read(buffer, 1, end) == (value, end)


@given(INT32)
def test_varint_reads_what_naive_writes(value: int) -> None:
    encoded = np.frombuffer(naive.varint(value), dtype=np.uint8)
    for read in both(kernels, "read_varint"):
        assert read(encoded, 0, len(encoded)) == (value, len(encoded))


@given(st.binary(max_size=12), st.integers(0, 12))
def test_any_bytes_are_read_inside_their_bounds(data: bytes, end: int) -> None:
    buffer = np.frombuffer(data, dtype=np.uint8)
    end = min(end, len(buffer))
    for name in ("read_varint", "read_varlong", "read_unsigned_varint"):
        compiled, interpreted = both(kernels, name)
        value, after = compiled(buffer, 0, end)
        assert (value, after) == interpreted(buffer, 0, end)
        assert after == -1 or 0 < after <= end


@pytest.mark.parametrize(
    ("read", "length"), [(kernels.read_varint, 5), (kernels.read_varlong, 10)], ids=["varint", "varlong"]
)
def test_too_long_numbers_are_refused(read, length: int) -> None:
    endless = np.full(length + 1, 0x80, dtype=np.uint8)
    assert read(endless, 0, len(endless))[1] == -1
    over_long = np.array([0x80] * (length - 1) + [0x00], dtype=np.uint8)
    assert read(over_long, 0, len(over_long)) == (0, length)
