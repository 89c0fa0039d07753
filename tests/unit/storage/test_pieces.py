"""Files a piece at a time: every byte once, in order, and no more memory than a piece."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.storage.filesystem import LocalFileSystem
from seglog.storage.pieces import PIECE_BYTES, copy_range, pieces

FS = LocalFileSystem()
SIZE = 2 * PIECE_BYTES + 5


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(bytes(range(251)) * (SIZE // 251 + 1))
    with path.open("r+b") as file:
        file.truncate(SIZE)
    return path


@pytest.mark.parametrize(
    ("start", "end", "sizes"),
    [
        (0, SIZE, [PIECE_BYTES, PIECE_BYTES, 5]),
        (5, SIZE, [PIECE_BYTES, PIECE_BYTES]),
        (1, 3, [2]),
        (7, 7, []),
        (SIZE - 2, SIZE + 9, [2]),  # the file ends before
        (SIZE, SIZE + 9, []),
    ],
)
def test_pieces_are_the_bytes_in_order(source: Path, start: int, end: int, sizes: list[int]) -> None:
    with FS.open(source, "r") as file:
        found = list(pieces(file, start, end))
    assert [len(piece) for piece in found] == sizes
    assert b"".join(found) == source.read_bytes()[start:end]


def test_a_range_is_copied_to_its_place(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"head")
    with FS.open(source, "r") as file, FS.open(target, "r+") as into:
        copy_range(file, 3, SIZE, into, 4)
    assert target.read_bytes() == b"head" + source.read_bytes()[3:]


def test_a_file_that_became_shorter_is_refused(source: Path, tmp_path: Path) -> None:
    with FS.open(source, "r") as file, FS.open(tmp_path / "target", "create") as into:
        copy_range(file, 0, SIZE, into, 0)
        with pytest.raises(RefusedError, match="source is shorter than it was"):
            copy_range(file, 0, SIZE + 1, into, 0)
