"""The time index file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seglog.log.indexes import TimeIndex
from tests.support.log_files import FS


def made(path: Path, *entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex(FS, path / "00000000000000000100.timeindex", 100)
    index.create()
    index.append(np.array(entries, dtype=np.int64).reshape(-1, 2))
    return index


def test_entries_are_timestamp_then_relative_offset(tmp_path: Path) -> None:
    assert made(tmp_path, (1005, 101)).path.read_bytes() == bytes.fromhex("00000000000003ed00000001")


@pytest.mark.parametrize(("timestamp", "row"), [(4, -1), (5, -1), (6, 0), (10, 0), (11, 1)])
def test_a_search_for_a_time_begins_at_the_last_entry_before(tmp_path: Path, timestamp: int, row: int) -> None:
    assert made(tmp_path, (5, 110), (10, 120)).row_before(timestamp) == row


def test_an_empty_index_ends_with_no_timestamp_at_the_base_offset(tmp_path: Path) -> None:
    assert made(tmp_path).last_entry == (-1, 100)


def test_padding_is_not_taken_for_timestamp_0(tmp_path: Path) -> None:
    index = made(tmp_path, (5, 110))
    with index.path.open("ab") as file:
        file.write(bytes(12 * 50))
    assert TimeIndex(FS, index.path, 100).last_entry == (5, 110)
    index.path.write_bytes(bytes(12 * 50))
    assert TimeIndex(FS, index.path, 100).last_entry == (-1, 100)


def test_a_single_entry_of_zeros_is_timestamp_0_at_the_base_offset(tmp_path: Path) -> None:
    index = made(tmp_path, (0, 100))
    assert TimeIndex(FS, index.path, 100).last_entry == (0, 100)


def test_truncation_goes_by_offset(tmp_path: Path) -> None:
    index = made(tmp_path, (5, 110), (10, 120))
    index.truncate_to(120)
    assert index.timestamps.tolist() == [5]
