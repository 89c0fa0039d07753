"""CRC-32C and CRC-32: compiled = interpreted = library = naive, across the block boundaries."""

from __future__ import annotations

import zlib

import crc32c as library
import numpy as np
import pytest

from seglog import layout
from seglog.kernels import crc32c as kernels
from seglog.kernels import legacy
from tests.support import naive
from tests.support.interpreted import both

DATA = np.random.default_rng(7).integers(0, 256, 40_000, dtype=np.uint8)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 767, 768, 769, 6143, 6144, 6145, 6912, 20_000])
@pytest.mark.parametrize("start", [0, 1, 5])
def test_crc32c_equals_the_library(size: int, start: int) -> None:
    expected = library.crc32c(DATA[start : start + size].tobytes())
    assert kernels.crc32c(DATA, start, start + size) == expected


@pytest.mark.parametrize("size", [0, 1, 9, 800])
def test_crc32c_interpreted_and_naive_agree(size: int) -> None:
    expected = naive.crc32c(DATA[:size].tobytes())
    assert library.crc32c(DATA[:size].tobytes()) == expected
    assert both(kernels, "crc32c")[1](DATA, 0, size) == expected


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100, 4096])
def test_crc32_equals_zlib(size: int) -> None:
    for crc32 in both(legacy, "crc32"):
        assert crc32(DATA, 3, 3 + size) == zlib.crc32(DATA[3 : 3 + size].tobytes())


def test_batch_checksums_mark_what_they_cannot_see() -> None:
    rows = np.zeros(4, dtype=layout.BATCH)
    rows["magic"] = [2, 2, 1, 2]
    rows["position"] = [100, 300, 100, 90]
    rows["size"] = [200, 200, 200, 20]
    out = np.zeros(4, dtype=np.int64)
    kernels.batch_checksums(DATA[:400], rows, 100, out)
    assert out[0] == library.crc32c(DATA[21:200].tobytes())
    assert out[1:].tolist() == [library.crc32c(DATA[221:400].tobytes()), -1, -1]
    kernels.batch_checksums(DATA[:399], rows, 100, out)
    assert out[1] == -1
