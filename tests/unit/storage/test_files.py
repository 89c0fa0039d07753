"""Files are replaced whole, read and copied in pieces, and removed with their directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.storage.files import PIECE_BYTES, copy_range, pieces, remove_tree
from seglog.storage.filesystem import write_atomically
from seglog.storage.local import LocalFileSystem
from tests.support.faulty_filesystem import Faults, FaultyFileSystem

FS = LocalFileSystem()


def test_contents_are_replaced_and_nothing_is_left_over(tmp_path: Path) -> None:
    write_atomically(FS, tmp_path / "checkpoint", b"one")
    write_atomically(FS, tmp_path / "checkpoint", memoryview(b"two"))
    assert FS.list(tmp_path) == ["checkpoint"]
    assert (tmp_path / "checkpoint").read_bytes() == b"two"


def test_a_leftover_of_a_crash_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.tmp").write_bytes(b"a longer leftover")
    write_atomically(FS, tmp_path / "checkpoint", b"new")
    assert FS.list(tmp_path) == ["checkpoint"]
    assert (tmp_path / "checkpoint").read_bytes() == b"new"


def test_the_mode_is_kept_and_the_time_is_not(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    path.chmod(0o640)
    FS.set_modified(path, 1000)
    write_atomically(FS, path, b"new")
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.stat().st_mtime > 1_000_000


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt("No space")])
def test_a_failure_and_a_signal_keep_the_old_contents(error: BaseException, tmp_path: Path) -> None:
    class Full(LocalFileSystem):
        def rename(self, source: Path, target: Path) -> None:
            raise error

    (tmp_path / "checkpoint").write_bytes(b"old")
    with pytest.raises(type(error), match="No space"):
        write_atomically(Full(), tmp_path / "checkpoint", b"new")
    assert FS.list(tmp_path) == ["checkpoint"]
    assert (tmp_path / "checkpoint").read_bytes() == b"old"


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


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files of 3, 5 and 7 bytes in directories below each other, and an empty directory."""
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "empty").mkdir()
    for path, size in ((top / "x", 3), (top / "a" / "y", 5), (top / "a" / "b" / "z", 7)):
        path.write_bytes(b"." * size)
    return top


def test_all_that_is_in_it_goes_and_its_bytes_are_counted(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "beside").touch()
    assert remove_tree(FS, tree) == 3 + 5 + 7
    assert [path.name for path in tmp_path.iterdir()] == ["beside"]


def test_what_links_lead_to_stays(tree: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "precious").write_bytes(b"data")
    (tree / "a" / "to directory").symlink_to(kept)
    (tree / "to file").symlink_to(kept / "precious")
    (tree / "to nothing").symlink_to(tmp_path / "nowhere")
    remove_tree(FS, tree)
    assert (kept / "precious").read_bytes() == b"data" and not tree.exists()


def test_the_last_file_goes_when_all_else_is_gone(tree: Path) -> None:
    """What tells of a directory's contents is there as long as there are any."""
    (tree / "0 journal").touch()
    at = 0
    while tree.exists():
        faults = Faults(at)
        try:
            remove_tree(FaultyFileSystem(faults), tree, last="0 journal")
        except OSError:
            assert (tree / "0 journal").exists() or not any(tree.iterdir())
        at += 1
    assert at >= 4
