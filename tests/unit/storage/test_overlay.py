"""The overlay: behaves as the local file system does, and leaves what is below alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.storage.filesystem import FileStatus, FileSystem
from seglog.storage.frozen import VanishedError
from seglog.storage.local import LocalFileSystem
from seglog.storage.overlay import FILES_HELD, OverlayFileSystem
from tests.support.open_descriptors import needs_descriptors, open_below

BELOW = LocalFileSystem()
NAMES = ("a", "b", "c")
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(NAMES), st.integers(0, 12), st.binary(max_size=6)),
        st.tuples(st.just("truncate"), st.sampled_from(NAMES), st.integers(0, 12)),
        st.tuples(st.just("create"), st.sampled_from(NAMES)),
        st.tuples(st.just("remove"), st.sampled_from(NAMES)),
        st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    ),
    max_size=15,
)


def apply(fs: FileSystem, root: Path, operation: tuple[object, ...]) -> str:
    """The class of the error, or "" when there was none."""
    kind, name = operation[0], root / str(operation[1])
    try:
        if kind == "write":
            with fs.open(name, "r+") as file:
                file.write_at(operation[2], operation[3])  # type: ignore[arg-type]
        elif kind == "truncate":
            with fs.open(name, "r+") as file:
                file.truncate(operation[2])  # type: ignore[arg-type]
        elif kind == "create":
            fs.open(name, "create").close()
        elif kind == "remove":
            fs.remove(name)
        else:
            fs.rename(name, root / str(operation[2]))
    except OSError as error:
        return type(error).__name__
    return ""


def state(fs: FileSystem, root: Path) -> dict[str, bytes]:
    found = {}
    for name in fs.list(root):
        status = fs.status(root / name)
        assert status is not None
        found[name] = fs.read_bytes(root / name)
        assert status.size == len(found[name])
    return found


@given(OPERATIONS)
def test_an_overlay_does_what_the_local_file_system_does(operations: list[tuple[object, ...]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        roots = Path(one), Path(two)
        for root in roots:
            (root / "a").write_bytes(b"0123456789")
            (root / "b").write_bytes(b"xyz")
        overlay = OverlayFileSystem(BELOW)
        for operation in operations:
            assert apply(overlay, roots[0], operation) == apply(BELOW, roots[1], operation)
            assert state(overlay, roots[0]) == state(BELOW, roots[1])
        assert state(BELOW, roots[0]) == {"a": b"0123456789", "b": b"xyz"}


def test_changed_and_removed_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"1")
    (tmp_path / "moved").write_bytes(b"2")
    overlay = OverlayFileSystem(BELOW)
    overlay.remove(tmp_path / "old")
    overlay.rename(tmp_path / "moved", tmp_path / "new")
    assert overlay.changed == (tmp_path / "new",)
    assert overlay.gone == (tmp_path / "moved", tmp_path / "old")


def test_modification_times_are_kept_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1")
    before = path.stat().st_mtime_ns
    overlay = OverlayFileSystem(BELOW)
    overlay.set_modified(path, 123)
    status = overlay.status(path)
    assert status is not None and status.modified_ms == 123
    assert path.stat().st_mtime_ns == before


def test_directories_are_made_in_memory(tmp_path: Path) -> None:
    overlay = OverlayFileSystem(BELOW)
    overlay.make_directory(tmp_path / "x" / "y", parents=True)
    overlay.open(tmp_path / "x" / "y" / "f", "create_new").close()
    assert overlay.list(tmp_path / "x" / "y") == ["f"]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="not empty"):
        overlay.remove_directory(tmp_path / "x" / "y")


@needs_descriptors
def test_more_files_may_change_than_are_held_open(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.log" for number in range(FILES_HELD + 10)]
    for path in paths:
        path.write_bytes(path.name.encode())
    overlay = OverlayFileSystem(BELOW)
    for path in paths:
        overlay.rename(path, path.with_suffix(".deleted"))
    assert len(open_below(tmp_path)) == FILES_HELD
    for path in paths:
        assert overlay.read_bytes(path.with_suffix(".deleted")) == path.name.encode()
    assert len(open_below(tmp_path)) == FILES_HELD
    paths[0].rename(tmp_path / "away")
    paths[0].write_bytes(b"other")
    with pytest.raises(VanishedError, match=re.escape(str(paths[0]))):
        overlay.read_bytes(paths[0].with_suffix(".deleted"))
    assert overlay.read_bytes(paths[-1].with_suffix(".deleted")) == paths[-1].name.encode()


def test_what_was_written_can_be_let_go_and_is_never_read_as_something_else(tmp_path: Path) -> None:
    (tmp_path / "grown").write_bytes(b"below")
    (tmp_path / "cut").write_bytes(b"below")
    overlay = OverlayFileSystem(BELOW)
    for name, mode, data in (("grown", "r+", b"and above"), ("new", "create", b"all of it"), ("empty", "create", b"")):
        with overlay.open(tmp_path / name, mode) as file:  # type: ignore[arg-type]
            file.write_at(file.size(), data)
    with overlay.open(tmp_path / "cut", "r+") as file:
        file.truncate(2)
    sizes, room = {name: overlay.status(tmp_path / name) for name in overlay.list(tmp_path)}, overlay.room
    overlay.let_go()
    assert {name: overlay.status(tmp_path / name) for name in overlay.list(tmp_path)} == sizes
    assert overlay.room == room
    for name in ("grown", "new"):
        with pytest.raises(ValueError, match="was dropped"):
            overlay.read_bytes(tmp_path / name)
    assert overlay.read_bytes(tmp_path / "cut") == b"be" and overlay.read_bytes(tmp_path / "empty") == b""


def test_listing_a_directory_looks_at_no_change_in_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = OverlayFileSystem(BELOW)
    for number in range(50):
        directory = tmp_path / f"t-{number}"
        directory.mkdir()
        for name in NAMES:
            (directory / name).touch()
        overlay.open(directory / "new", "create").close()
        overlay.rename(directory / "a", directory / "z")
        overlay.remove(directory / "b")
    looks: list[Path] = []

    def counted(self: OverlayFileSystem, path: Path, follow: bool = True) -> FileStatus | None:
        looks.append(path)
        return status(self, path, follow)

    status = OverlayFileSystem.status
    monkeypatch.setattr(OverlayFileSystem, "status", counted)
    monkeypatch.setattr(Path, "parent", property(lambda path: looks.append(path)))
    assert overlay.list(tmp_path / "t-7") == ["c", "new", "z"]
    assert [name for name, _ in overlay.entries(tmp_path / "t-7")] == ["c", "new", "z"]
    assert len(looks) <= 2 * len(NAMES)  # a dry run over ten thousand partitions lists each several times
