"""Files other than logs, row by row: every written index entry is a row, a preallocated tail is one."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seglog.storage.local import LocalFileSystem
from seglog.verification.file_rows import rows_of
from seglog.verification.findings import Finding

INDEXES = [("timeindex", struct.pack(">qi", 1_700_000_000_000, 5)), ("index", struct.pack(">ii", 5, 4096))]


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("entries", [0, 1, 2])
@pytest.mark.parametrize(("suffix", "entry"), INDEXES)
def test_each_written_entry_is_a_row_and_the_preallocated_tail_is_one(
    tmp_path: Path, suffix: str, entry: bytes, entries: int, padding: int
) -> None:
    path = tmp_path / f"{10:020d}.{suffix}"
    path.write_bytes(entry * entries + bytes(len(entry) * padding))
    rows = list(rows_of(LocalFileSystem(), path))
    unused = [("preallocated_entries", {"count": padding})] if padding else []
    assert rows[entries:] == unused
    assert [row[1]["offset"] for row in rows[:entries] if not isinstance(row, Finding)] == [15] * entries


def test_bytes_after_the_last_whole_entry_are_a_finding(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.index"
    path.write_bytes(INDEXES[1][1] + b"\1\2\3")
    *rows, found = rows_of(LocalFileSystem(), path)
    assert len(rows) == 1 and isinstance(found, Finding)
    assert (found.code, found.position, found.message) == (
        "INDEX_SIZE_INVALID", 8, "3 bytes follow the last whole entry"
    )  # fmt: skip
