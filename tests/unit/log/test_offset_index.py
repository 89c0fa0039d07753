"""The offset index file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seglog.log import held_columns
from seglog.log.indexes import OffsetIndex
from tests.support.log_files import FS

ENTRIES = np.array([[105, 70], [110, 900], [200, 5000]], dtype=np.int64)


@pytest.fixture
def index(tmp_path: Path) -> OffsetIndex:
    made = OffsetIndex(FS, tmp_path / "00000000000000000100.index", 100)
    made.create()
    made.append(ENTRIES)
    return made


def reopened(index: OffsetIndex) -> OffsetIndex:
    return OffsetIndex(FS, index.path, index.base_offset)


def test_entries_are_relative_and_big_endian_on_disk(index: OffsetIndex) -> None:
    assert index.path.read_bytes()[:8] == bytes.fromhex("0000000500000046")
    assert index.path.stat().st_size == 24


@pytest.mark.parametrize(("offset", "entries"), [(100, 0), (104, 0), (105, 1), (199, 2), (999, 3)])
def test_a_search_begins_with_the_last_entry_at_or_below_and_goes_back(
    index: OffsetIndex, offset: int, entries: int
) -> None:
    expected = [tuple(row) for row in ENTRIES[:entries].tolist()][::-1][:2]
    assert list(index.entries_to(offset))[:2] == expected == list(reopened(index).entries_to(offset))[:2]


def test_a_search_goes_back_at_distances_that_double(tmp_path: Path) -> None:
    entries = [offset for offset, _ in index_of(tmp_path, 0, 100).entries_to(90)]
    assert entries == [90, 89, 87, 83, 75, 59, 27]


def test_zero_padding_of_a_broker_is_no_entry_and_trimming_takes_it_away(index: OffsetIndex) -> None:
    with index.path.open("ab") as file:
        file.write(bytes(8 * 1000))
    padded = reopened(index)
    assert (padded.entries, padded.last_offset) == (3, 200)
    padded.trim()
    assert padded.path.stat().st_size == 24


def test_truncation_drops_entries_at_and_after_the_offset(index: OffsetIndex) -> None:
    index.truncate_to(110)
    assert index.offsets.tolist() == [105] == reopened(index).offsets.tolist()
    index.append(ENTRIES[2:])
    assert reopened(index).positions.tolist() == [70, 5000]


def test_upper_bound_is_the_first_entry_after_the_bytes_read(index: OffsetIndex) -> None:
    assert index.upper_bound_offset(0, 70) == 105, "Kafka's search passes over an equal first entry"
    assert index.upper_bound_offset(70, 800) == 110
    assert index.upper_bound_offset(70, 5000) is None


def test_reading_a_missing_index_creates_nothing(tmp_path: Path) -> None:
    index = OffsetIndex(FS, tmp_path / "00000000000000000000.index", 0)
    assert (list(index.entries_to(5)), index.entries, list(tmp_path.iterdir())) == ([], 0, [])


def test_a_torn_last_entry_is_left_out(index: OffsetIndex) -> None:
    with index.path.open("ab") as file:
        file.write(b"\x00\x00\x01")
    assert reopened(index).entries == 3


def test_many_single_appends_equal_one(tmp_path: Path) -> None:
    index = OffsetIndex(FS, tmp_path / "00000000000000000000.index", 0)
    for i in range(1, 300):
        index.append(np.array([[i, i * 10]], dtype=np.int64))
    assert index.offsets.tolist() == list(range(1, 300)) == reopened(index).offsets.tolist()


def index_of(path: Path, base_offset: int, count: int) -> OffsetIndex:
    made = OffsetIndex(FS, path / f"{base_offset:020d}.index", base_offset)
    made.create()
    numbers = np.arange(1, count + 1, dtype=np.int64)
    made.append(np.stack([base_offset + numbers, 100 * numbers], axis=1))
    made.close_file()
    return made


def test_the_columns_of_all_indexes_together_are_bounded_and_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_columns, "HELD", held_columns.HeldColumns(100_000))
    made = [index_of(tmp_path, base, 2000) for base in range(0, 100_000, 10_000)]
    for _ in range(2):
        for index in made:
            assert next(index.entries_to(index.base_offset + 1500)) == (index.base_offset + 1500, 150_000)
            assert sum(each._loaded is not None for each in made) <= 4  # of 32,000 bytes each
        assert [index.last_offset for index in made] == [index.base_offset + 2000 for index in made]


def test_indexes_that_have_ended_are_not_counted_and_one_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = held_columns.HeldColumns(1 << 20)
    monkeypatch.setattr(held_columns, "HELD", held)
    index = index_of(tmp_path, 0, 100)
    for base in range(10_000, 50_000, 10_000):
        index_of(tmp_path, base, 100).columns()
        index_of(tmp_path, base, 0).columns()
    index.let_go()
    index.columns()
    assert list(held._held.values()) == [1600] and held._bytes == 1600


def test_an_index_that_grows_is_not_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_columns, "HELD", held_columns.HeldColumns(1000))
    growing = index_of(tmp_path, 0, 2000)
    growing.append(np.array([[2001, 200_100]]))
    for base in range(10_000, 30_000, 10_000):
        index_of(tmp_path, base, 2000)
    growing.append(np.array([[2002, 200_200]]))
    assert growing.entries == reopened(growing).entries == 2002
    assert next(growing.entries_to(3000)) == next(reopened(growing).entries_to(3000)) == (2002, 200_200)


@pytest.mark.parametrize("padding", [0, 3, 16, 8 * 5000, 8 * 5000 + 3])
@pytest.mark.parametrize("count", [0, 1, 8000, 20_000])
def test_the_end_is_known_without_the_other_entries(tmp_path: Path, count: int, padding: int) -> None:
    path = index_of(tmp_path, 100, count).path
    with path.open("ab") as file:
        file.write(bytes(padding))
    end, whole = OffsetIndex(FS, path, 100), OffsetIndex(FS, path, 100)
    whole.columns()
    assert (end.entries, end.last_offset, end.last_position) == (whole.entries, whole.last_offset, whole.last_position)
    assert (end.entries, end.last_offset, end.last_position) == (count, 100 + count, 100 * count)
    assert (end._loaded is None) == (count > 8192 and padding in (0, 3)), "a large file without padding is not read"
