"""A directory as it was: what a broker does afterwards is not seen, and what cannot be kept is missed by name."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from seglog.storage.frozen import DescriptorBudget, FrozenFileSystem, Order, VanishedError
from tests.support.log_files import FS


def plain(names: Sequence[str]) -> Order:
    return Order(names)


def frozen(directory: Path, most: int | None = None) -> FrozenFileSystem:
    found = FrozenFileSystem(FS, directory, DescriptorBudget(most))
    assert found.take(plain)
    return found


@pytest.mark.parametrize("most", [None, 0], ids=["held", "not held"])
def test_what_is_appended_later_is_not_seen(tmp_path: Path, most: int | None) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    with frozen(tmp_path, most) as fs:
        path.write_bytes(b"0123456789later")
        with fs.open(path, "r") as file:
            assert (file.size(), file.read_at(4, 100), file.read_at(12, 3)) == (10, b"456789", b"")
            buffer = bytearray(20)
            assert file.read_into(8, buffer) == 2 and bytes(buffer[:3]) == b"89\0"
        assert fs.read_bytes(path) == b"0123456789"
        status = fs.status(path)
        assert status is not None and status.size == 10


def test_held_files_outlive_their_names(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with frozen(tmp_path) as fs:
        path.unlink()
        (tmp_path / "b").write_bytes(b"new")
        assert fs.list(tmp_path) == ["a"]
        assert fs.read_bytes(path) == b"old"
        assert fs.status(tmp_path / "b") is None
        with pytest.raises(FileNotFoundError):
            fs.open(tmp_path / "b", "r")


def test_what_is_not_held_is_found_under_the_name_of_a_deletion(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with frozen(tmp_path, 0) as fs:
        path.rename(tmp_path / "a.deleted")
        path.write_bytes(b"another file")
        assert fs.read_bytes(path) == b"old"
        (tmp_path / "a.deleted").unlink()
        with pytest.raises(VanishedError, match="removed or replaced"):
            fs.open(path, "r")


def test_a_file_that_was_cut_is_not_the_one_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"long")
    with frozen(tmp_path, 0) as fs:
        with path.open("r+b") as file:
            file.truncate(1)
        with pytest.raises(VanishedError):
            fs.open(path, "r")


def test_files_that_are_changed_in_place_are_read_in_full(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"entry" + bytes(100))
    with FrozenFileSystem(FS, tmp_path, DescriptorBudget(0)) as fs:
        assert fs.take(lambda names: Order(names, whole=frozenset({"a"})))
        path.write_bytes(b"other" + bytes(95) + b"more.")
        assert fs.read_bytes(path) == b"entry" + bytes(100)


class Meddling:
    """An order that changes the directory once, while it is looked at."""

    def __init__(self, change: object, passing: frozenset[str] = frozenset()) -> None:
        self.change, self.passing = change, passing

    def __call__(self, names: Sequence[str]) -> Order:
        assert callable(self.change)
        self.change()
        return Order(names, passing=self.passing)


def test_a_look_says_whether_the_directory_held_still(tmp_path: Path) -> None:
    for name in ("a", "b", "c.deleted"):
        (tmp_path / name).write_bytes(b"x")
    fs = FrozenFileSystem(FS, tmp_path)
    assert fs.take(Meddling(lambda: (tmp_path / "new").write_bytes(b"x"))), "what is new does not matter"
    assert not fs.take(Meddling(lambda: (tmp_path / "new").unlink()))
    passing = frozenset({"c.deleted"})
    assert fs.take(Meddling(lambda: (tmp_path / "c.deleted").unlink(), passing)), "nor what comes and goes"
    fs.close()


def test_a_file_that_was_replaced_while_it_was_looked_at_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")

    class Replacing(type(FS)):  # type: ignore[misc]
        def open(self, path: Path, mode: object) -> object:
            found = super().open(path, mode)
            other = tmp_path.parent / "other"
            other.write_bytes(b"y")
            other.rename(path)
            return found

    assert not FrozenFileSystem(Replacing(), tmp_path).take(plain)


def test_descriptors_go_back(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"x")
    budget = DescriptorBudget(2)
    fs = FrozenFileSystem(FS, tmp_path, budget)
    fs.take(plain)
    assert not budget.take()
    fs.close()
    assert budget.take() and budget.take() and not budget.take()


def test_what_may_not_be_opened_is_refused_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop2")
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "d").mkdir()

    class Forbidding(type(FS)):  # type: ignore[misc]
        def open(self, path: Path, mode: object) -> object:
            if path.name == "a":
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return super().open(path, mode)

    with FrozenFileSystem(Forbidding(), tmp_path) as fs:
        fs.take(plain)
        assert fs.list(tmp_path) == ["a", "d"]
        with pytest.raises(PermissionError):
            fs.open(tmp_path / "a", "r")


def test_closing_while_a_file_is_held_for_a_moment_does_not_raise_the_limit(tmp_path: Path) -> None:
    """An error keeps the `with` of `hold` open until after the view is closed."""
    (tmp_path / "a").touch()
    budget = DescriptorBudget(0)
    fs = FrozenFileSystem(FS, tmp_path, budget)
    fs.take(plain)
    with fs.hold([tmp_path / "a"]):
        fs.close()
    assert not budget.take()
