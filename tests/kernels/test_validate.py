"""Finding good entries: what only looks like one is passed over, and the work for it is bounded."""

from __future__ import annotations

import numpy as np
import pytest

from seglog.kernels import validate
from seglog.kernels.crc32c import HARDWARE
from tests.support import log_files as logs
from tests.support.interpreted import interpreted

MOST = 2**31
# Compiled code checksums by the processor's instruction, where there is one.
MODULES = [*([validate] if HARDWARE else []), interpreted("validate")]


def buffer(*parts: bytes) -> np.ndarray:
    return np.frombuffer(b"".join(parts), dtype=np.uint8)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("good", [logs.plain_batches(1)[0], logs.messages(0)[3], logs.messages(1)[3]])
def test_an_entry_with_a_wrong_checksum_is_passed_over(module: object, good: bytes) -> None:
    bad = good[:-1] + bytes([good[-1] ^ 1])
    data = buffer(b"\x55" * 30, bad, good)
    find = module.find_good_entry  # type: ignore[attr-defined]
    assert validate.find_entry(data, 0, len(data), 0, 0, MOST) == 30
    position, checked, work = find(data, 0, len(data), 0, 0, MOST, 10_000)
    assert (position, checked) == (30 + len(bad), True)
    assert work == 10_000 - len(bad) - len(good)


@pytest.mark.parametrize("module", MODULES)
def test_no_more_bytes_are_checksummed_than_allowed(module: object) -> None:
    good = logs.plain_batches(1)[0]
    find = module.find_good_entry  # type: ignore[attr-defined]
    assert find(buffer(good), 0, len(good), 0, 0, MOST, len(good) - 1) == (-1, False, len(good) - 1)


@pytest.mark.parametrize("module", MODULES)
def test_an_entry_that_goes_on_after_the_buffer_is_for_the_caller(module: object) -> None:
    good = logs.plain_batches(1)[0]
    data = buffer(good[:-9])
    find = module.find_good_entry  # type: ignore[attr-defined]
    assert find(data, 0, len(data), 8, 0, MOST, 10_000)[:2] == (-1, False)
    assert find(data, 0, len(data), 9, 0, MOST, 10_000)[:2] == (0, False)


@pytest.mark.parametrize("module", MODULES)
def test_offsets_must_lie_in_the_range(module: object) -> None:
    good = logs.plain_batches(1, first_offset=50)[0]
    find = module.find_good_entry  # type: ignore[attr-defined]
    assert find(buffer(good), 0, len(good), 0, 50, 52, 10_000)[0] == 0
    assert find(buffer(good), 0, len(good), 0, 51, 99, 10_000)[0] == -1
    assert find(buffer(good), 0, len(good), 0, 0, 51, 10_000)[0] == -1
