"""What was written of a preallocated file is found without reading the zeros after it; damage in them is found, too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.storage.filesystem import File, FileStatus, ReadOnlyFile
from seglog.storage.padding import FRONT_BYTES, last_entry, last_written, written_bytes, written_front
from tests.support.log_files import FS
from tests.support.padding import PREALLOCATED, bytes_read


class BytesFile(ReadOnlyFile):
    """A file in memory that knows of no holes."""

    def __init__(self, data: bytes) -> None:
        self.path, self._data = Path("data"), data

    def size(self) -> int:
        return len(self._data)

    def status(self) -> FileStatus:
        raise NotImplementedError

    def read_at(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]

    def read_into(self, position: int, buffer: Any) -> int:
        data = self.read_at(position, memoryview(buffer).nbytes)
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)


def opened(path: Path, data: bytes, size: int, *, allocated: bool) -> File:
    path.write_bytes(data + bytes(size - len(data)) if allocated else data)
    os.truncate(path, size)
    return FS.open(path, "r")


@pytest.mark.parametrize("allocated", [False, True], ids=["holes", "zeros on disk"])
@pytest.mark.parametrize("written", [0, 24, 5000, FRONT_BYTES - 8, FRONT_BYTES, 1 << 20, PREALLOCATED - 4096])
def test_the_front_of_a_preallocated_file_is_found_by_a_few_reads(
    tmp_path: Path, written: int, allocated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"\x01" * written
    with opened(tmp_path / "a", data, PREALLOCATED, allocated=allocated) as file, bytes_read(monkeypatch) as read:
        assert written_front(file, 8) == data
    assert read.total() <= max(written, FRONT_BYTES) + 16 * 4096


def test_holes_are_not_read_where_damage_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "a", b"\x01" * 24, PREALLOCATED, allocated=False) as file, bytes_read(monkeypatch) as read:
        assert written_bytes(file, 8) == b"\x01" * 24 and last_written(file) == 24
    assert read.total() <= 2 * FRONT_BYTES


@pytest.mark.parametrize("allocated", [False, True], ids=["holes", "zeros on disk"])
@pytest.mark.parametrize("position", [70_000, 1 << 20, PREALLOCATED - 1])
def test_a_byte_of_damage_after_the_zeros_is_found(tmp_path: Path, position: int, allocated: bool) -> None:
    with opened(tmp_path / "a", b"\x01" * 24, PREALLOCATED, allocated=allocated) as file:
        with FS.open(tmp_path / "a", "r+") as changed:
            changed.write_at(position, b"x")
        assert last_written(file) == position + 1
        found = written_bytes(file, 8)
        assert (
            len(found) == (position // 8 + 1) * 8 and found[position] == ord("x") and found.count(0) == len(found) - 25
        )


entries = st.lists(st.binary(min_size=12, max_size=12).filter(any), max_size=40)


@given(entries, st.integers(0, 30_000), st.sampled_from([1, 7, 400, 3000]), st.integers(0, 3))
def test_whole_entries_are_found_wherever_the_zeros_begin(
    some: list[bytes], zeros: int, times: int, partly: int
) -> None:
    """Entries may end with zeros; the front is a prefix that leaves out nothing but zeros."""
    written = b"".join(some) * times
    data = written + bytes(12 * zeros + partly)
    file = BytesFile(data)
    front = written_front(file, 12)
    assert data.startswith(front) and not any(data[len(front) :])
    assert len(front) <= FRONT_BYTES or len(front) <= len(written) + 4096
    assert len(data) <= FRONT_BYTES or len(front) % 12 == 0 or len(front) == len(data)
    assert written_bytes(file, 12) == front
    assert last_written(file) == len(data.rstrip(b"\0"))


@given(st.lists(st.tuples(st.sampled_from([0, 1, 7]), st.integers(1, 20_000)), max_size=6))
def test_the_last_entry_is_that_of_all_that_was_written(runs: list[tuple[int, int]]) -> None:
    data = b"".join(bytes([value]) * count for value, count in runs)
    last = last_entry(BytesFile(data), 8)
    if last is not None:
        front = written_front(BytesFile(data), 8)
        whole = len(front) // 8
        assert last == (whole, front[8 * whole - 8 : 8 * whole])
    elif len(data) > FRONT_BYTES:
        assert bytes(8) in data
