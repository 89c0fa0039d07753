"""The entries of an index, its padding, and what lies after the padding."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from seglog.errors import RefusedError
from seglog.format.index_entries import decode_offset_index, decode_time_index, used_entries
from seglog.log.indexes import OffsetIndex, TimeIndex
from seglog.scan.index_files import MOST_INDEX_BYTES, read_index
from tests.support.log_files import FS
from tests.support.padding import PREALLOCATED, pad

BASE = 7


def write(path: Path, count: int) -> bytes:
    """Writes an index of so many entries."""
    if path.suffix == ".index":
        data = b"".join(struct.pack(">ii", i, 100 * i) for i in range(1, count + 1))
    else:
        data = b"".join(struct.pack(">qi", 1000 * i, i) for i in range(count))
    path.write_bytes(data)
    return data


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("allocated", [False, True], ids=["holes", "zeros on disk"])
@pytest.mark.parametrize("count", [0, 1, 2, 500, 5461, 5462, 8192, 8193, 100_000])
def test_a_preallocated_index_has_the_entries_of_a_trimmed_one(
    tmp_path: Path, suffix: str, count: int, allocated: bool
) -> None:
    path = tmp_path / f"{BASE:020}.{suffix}"
    data = write(path, count)
    entry, decode = (8, decode_offset_index) if path.suffix == ".index" else (12, decode_time_index)
    wanted = decode(data, BASE)
    wanted = wanted[: used_entries(wanted, BASE)]
    pad(path, allocated=allocated)
    for past_zeros in (False, True):
        found = read_index(FS, path, BASE, past_zeros=past_zeros)
        assert np.array_equal(found.rows, wanted) and found.size == PREALLOCATED // entry * entry
        assert found.padding == found.size // entry - len(wanted)
    if path.suffix == ".index":
        index: OffsetIndex | TimeIndex = OffsetIndex(FS, path, BASE)
        assert np.array_equal(index.columns()[1], wanted["position"])
    else:
        index = TimeIndex(FS, path, BASE)
        assert np.array_equal(index.columns()[0], wanted["timestamp"])
    assert index.size == len(wanted) * entry


@pytest.mark.parametrize("allocated", [False, True], ids=["holes", "zeros on disk"])
def test_entries_after_zeros_are_found_where_damage_is_looked_for(tmp_path: Path, allocated: bool) -> None:
    dice = random.Random(1)
    for round_ in range(10):
        path = tmp_path / f"{round_:020}.index"
        write(path, dice.choice([0, 3, 9000]))
        pad(path, allocated=allocated)
        with path.open("r+b") as file:
            file.seek(dice.randrange(PREALLOCATED))
            file.write(b"\x7f")
        every = decode_offset_index(path.read_bytes(), BASE)
        found = read_index(FS, path, BASE, past_zeros=True)
        used = used_entries(every, BASE)
        assert np.array_equal(found.rows, every[:used]) and found.padding == len(every) - used


def test_the_only_entry_of_a_time_index_is_no_padding(tmp_path: Path) -> None:
    for suffix, size, padding in (("timeindex", 12, 0), ("timeindex", 24, 2), ("index", 8, 1)):
        path = tmp_path / f"{BASE:020}.{suffix}"
        path.write_bytes(bytes(size))
        assert read_index(FS, path, BASE).padding == padding


def test_a_file_too_large_for_an_index_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(b"")
    pad(path, MOST_INDEX_BYTES + 8)
    with pytest.raises(RefusedError, match="more than"):
        read_index(FS, path, 0)
