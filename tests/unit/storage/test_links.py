"""Links of other users are not followed, in any component, whatever is done; links of one's own and of root are."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seglog.errors import RefusedError, UntrustedLinkError
from seglog.locations import parse_location
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog.storage.lock import DirectoryLock, holder_of
from tests.support.other_users import OTHER, needs_root, planted_link

FS = LocalFileSystem()


@pytest.fixture(params=["openat2", "walk", "walk without O_PATH"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every test with Linux's one call, as on a Linux without it, and as on macOS."""
    if request.param == "openat2" and links._openat2() is None:
        pytest.skip("the kernel has no openat2")
    if request.param.startswith("walk"):
        monkeypatch.setattr(links, "_openat2", lambda: None)
    if request.param == "walk without O_PATH":
        monkeypatch.delattr(os, "O_PATH")
    yield request.param


USES: dict[str, Callable[[FileSystem, Path], object]] = {
    "read": lambda fs, path: fs.open(path, "r"),
    "write": lambda fs, path: fs.open(path, "r+"),
    "status": lambda fs, path: fs.status(path),
    "read bytes": lambda fs, path: fs.read_bytes(path),
    "set modified": lambda fs, path: fs.set_modified(path, 5),
    "copy attributes to": lambda fs, path: fs.copy_attributes(Path("/"), path),
    "copy attributes of": lambda fs, path: fs.copy_attributes(path, path),
    "free bytes": lambda fs, path: fs.free_bytes(path),
    "resolve": lambda fs, path: links.resolve(path),
}
ALONG: dict[str, Callable[[FileSystem, Path], object]] = {
    **USES,
    "create": lambda fs, path: fs.open(path, "create"),
    "create new": lambda fs, path: fs.open(path.with_name("new"), "create_new"),
    "status of the name": lambda fs, path: fs.status(path, follow=False),
    "rename from": lambda fs, path: fs.rename(path, Path("/nowhere/at/all")),
    "rename to": lambda fs, path: fs.rename(Path("/nowhere-at-all"), path),
    "remove": lambda fs, path: fs.remove(path),
    "make directory": lambda fs, path: fs.make_directory(path.with_name("made")),
    "make directories": lambda fs, path: fs.make_directory(path.with_name("made") / "more", parents=True),
    "remove directory": lambda fs, path: fs.remove_directory(path),
    "list": lambda fs, path: fs.list(path.parent),
    "sync directory": lambda fs, path: fs.sync_directory(path.parent),
    "link from": lambda fs, path: fs.link(path, path.parent.with_name("linked")),
    "link to": lambda fs, path: fs.link(Path("/nowhere-at-all"), path),
    "lock": lambda fs, path: DirectoryLock(path.parent).acquire(),
    "holder": lambda fs, path: holder_of(path.parent),
}


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A directory of root's, with a file in it."""
    directory = tmp_path / "precious"
    directory.mkdir()
    (directory / "file").write_bytes(b"precious")
    (directory / "file").chmod(0o640)
    return directory


def unharmed(precious: Path) -> bool:
    found = precious / "file"
    status = found.stat()
    is_ours = status.st_uid == os.geteuid() and status.st_mtime > 1e9 and status.st_mode == stat.S_IFREG | 0o640
    return is_ours and [*precious.iterdir()] == [found] and found.read_bytes() == b"precious"


@needs_root
@pytest.mark.parametrize("use", USES)
def test_a_planted_link_at_the_end_is_refused_by_name(tmp_path: Path, precious: Path, use: str) -> None:
    link = planted_link(tmp_path / "link", precious / "file")
    with pytest.raises(UntrustedLinkError, match=r"link: a symbolic link of nobody \(uid 65534\).*name its target"):
        USES[use](FS, link)
    assert unharmed(precious)


@needs_root
@pytest.mark.parametrize("use", ALONG)
@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_a_planted_link_on_the_way_is_refused_by_name(
    tmp_path: Path, precious: Path, use: str, relative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted_link(tmp_path / "topic-0", precious)
    monkeypatch.chdir(tmp_path)
    directory = Path("topic-0") if relative else tmp_path / "topic-0"
    with pytest.raises(UntrustedLinkError) as refused:
        ALONG[use](FS, directory / "file")
    assert refused.value.path in (directory, tmp_path / "topic-0")
    assert refused.value.target == precious
    assert unharmed(precious)


@needs_root
def test_a_link_that_a_followed_link_leads_to_is_refused_too(tmp_path: Path, precious: Path) -> None:
    planted_link(tmp_path / "theirs", precious)
    (tmp_path / "ours").symlink_to("theirs/file")
    with pytest.raises(UntrustedLinkError) as refused:
        FS.open(tmp_path / "ours", "r")
    assert refused.value.path == tmp_path / "theirs"


@needs_root
def test_a_second_name_of_a_link_of_root_is_not_followed(tmp_path: Path, precious: Path) -> None:
    (tmp_path / "ours").symlink_to(precious)
    os.link(tmp_path / "ours", tmp_path / "borrowed", follow_symlinks=False)
    with pytest.raises(UntrustedLinkError):
        FS.list(tmp_path / "borrowed")


def test_links_of_ones_own_are_followed_wherever_they_are(tmp_path: Path, precious: Path) -> None:
    (tmp_path / "disk").symlink_to(precious)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "up").symlink_to("../disk/./file")
    for path in (tmp_path / "disk" / "file", tmp_path / "below" / "up", tmp_path / "below" / ".." / "disk" / "file"):
        assert FS.read_bytes(path) == b"precious"
        status = FS.status(path)
        assert status is not None
        assert (status.size, status.is_link) == (8, False)
        assert links.resolve(path) == precious / "file"
    name = FS.status(tmp_path / "below" / "up", follow=False)
    assert name is not None
    assert name.is_link
    assert FS.list(tmp_path / "disk") == ["file"]
    FS.make_directory(tmp_path / "disk" / "made" / "deep", parents=True)
    assert (precious / "made" / "deep").is_dir()


def test_what_is_renamed_or_removed_is_the_link_not_what_it_leads_to(tmp_path: Path, precious: Path) -> None:
    (tmp_path / "link").symlink_to(precious / "file")
    FS.rename(tmp_path / "link", tmp_path / "moved")
    assert (tmp_path / "moved").is_symlink()
    FS.remove(tmp_path / "moved")
    assert unharmed(precious)


@pytest.mark.parametrize("mode", ["create", "create_new"])
def test_a_new_file_never_goes_through_a_link(tmp_path: Path, precious: Path, mode: str) -> None:
    """`create` takes the link's place; `create_new` finds that the name is taken, wherever the link leads."""
    for name, target in (("a", precious / "file"), ("b", tmp_path / "nowhere")):
        (tmp_path / name).symlink_to(target)
        if mode == "create_new":
            with pytest.raises(FileExistsError):
                FS.open(tmp_path / name, "create_new")
            continue
        with FS.open(tmp_path / name, "create") as file:
            file.write_at(0, b"new")
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_bytes() == b"new"
    assert unharmed(precious)
    assert not (tmp_path / "nowhere").exists()


def test_links_in_a_circle_and_missing_ends_are_what_they_are_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "gone").symlink_to("nothing/there")
    with pytest.raises(OSError) as circle:
        FS.status(tmp_path / "a")
    assert circle.value.errno == errno.ELOOP
    assert circle.value.filename == str(tmp_path / "a")
    assert FS.status(tmp_path / "gone") is None
    assert FS.status(tmp_path / "no" / "such") is None
    with pytest.raises(FileNotFoundError) as missing:
        FS.open(tmp_path / "gone", "r")
    assert missing.value.filename == str(tmp_path / "gone")
    with pytest.raises(ValueError, match=r"null (byte|character)"):  # Python words it
        FS.open(tmp_path / "a\0b", "r")


def test_resolving_is_what_pathlib_does_with_links_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real/deep")
    (tmp_path / "root").symlink_to("/")
    (tmp_path / "real" / "loose").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path / "real")
    for text in (
        ".", "..", "deep", "../link", "../link/..", "../link/../loose", "missing/a/b", "missing/../deep", "loose/x",
        "/", "/..", "../root/tmp", str(tmp_path / "link" / "x" / "y"), "../../..", "deep/../../link/new",
    ):  # fmt: skip
        assert links.resolve(Path(text)) == Path(text).resolve(), text


def test_a_name_is_that_of_what_the_path_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "link").symlink_to("orders-0")
    (tmp_path / "above").symlink_to("link")
    monkeypatch.chdir(tmp_path / "orders-0")
    for path in (".", "../link", "../above", "../orders-0", "../link/..", "..", "missing-1", "/"):
        assert links.name_of(Path(path)) == Path(path).resolve().name


def test_errors_name_the_path_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    for use in (
        lambda: FS.remove(path / "x"),
        lambda: FS.rename(path / "x", path),
        lambda: FS.make_directory(path / "x"),
        lambda: FS.list(path),
        lambda: FS.remove_directory(path),
        lambda: FS.sync_directory(path),
    ):
        with pytest.raises(NotADirectoryError) as caught:
            use()
        assert str(caught.value.filename).startswith(str(path))


@needs_root
def test_the_refusal_is_one_sentence_an_os_error_and_travels(tmp_path: Path) -> None:
    planted_link(tmp_path / "link", "/etc/passwd")
    with pytest.raises(UntrustedLinkError) as caught:
        FS.open(tmp_path / "link", "r")
    error = caught.value
    assert isinstance(error, RefusedError)
    assert isinstance(error, PermissionError)
    assert "\n" not in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


class Planter:
    """Swaps a directory, or a file in it, for a planted link ahead of the `moment`-th system call that takes names."""

    CALLS = ("open", "stat", "unlink", "mkdir", "rmdir", "replace", "link", "utime", "readlink")

    def __init__(self, moment: int, kind: str, directory: Path, precious: Path) -> None:
        self.moment, self.kind, self.directory, self.precious = moment, kind, directory, precious
        self.calls = 0

    def instead_of(self, function: Callable[..., int]) -> Callable[..., int]:
        def called(*arguments: object, **keywords: object) -> int:
            self.calls += 1
            if self.calls == self.moment:
                self._swap()
            return function(*arguments, **keywords)

        return called

    def _swap(self) -> None:
        place = self.directory if self.kind == "directory" else self.directory / "file"
        if os.path.lexists(place):
            place.rename(place.with_name("aside"))
        planted_link(place, self.precious if self.kind == "directory" else self.precious / "file")


@needs_root
@pytest.mark.parametrize("use", ALONG)
@pytest.mark.parametrize("kind", ["directory", "file"])
def test_a_link_planted_between_any_two_calls_leads_nobody_anywhere(
    tmp_path: Path, precious: Path, use: str, kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment, calls = 0, 1
    while moment < calls:
        moment += 1
        directory = tmp_path / f"{moment}" / "topic-0"
        directory.mkdir(parents=True)
        (directory / "file").write_bytes(b"theirs")
        os.lchown(directory, OTHER, OTHER)
        planter = Planter(moment, kind, directory, precious)
        with monkeypatch.context() as patch:
            for name in Planter.CALLS:
                patch.setattr(os, name, planter.instead_of(getattr(os, name)))
            if way == "openat2":
                call = links._openat2()
                assert call is not None
                counted = planter.instead_of(call)
                patch.setattr(links, "_openat2", lambda counted=counted: counted)
            try:
                result = ALONG[use](FS, directory / "file")
            except OSError as error:
                result = error
        if hasattr(result, "write_at") and use != "read":
            with contextlib.suppress(OSError):
                result.write_at(0, b"written")
        calls = planter.calls
        assert unharmed(precious), f"swapped ahead of call {moment} of {calls}"
    assert calls > 1 or way == "openat2"


def test_special_files_are_neither_opened_nor_replaced(tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_bytes(b"")
    for use in (
        lambda: FS.open(pipe, "r"),
        lambda: FS.open(pipe, "r+"),
        lambda: FS.open(pipe, "create"),
        lambda: FS.rename(file, pipe),
        lambda: FS.copy_attributes(file, pipe),
    ):
        with pytest.raises(OSError, match="Not a regular file"):
            use()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    status = FS.status(pipe)
    assert status is not None
    assert status.is_special
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "logs" / ".lock")
    with pytest.raises(OSError, match="Not a regular file"):
        DirectoryLock(tmp_path / "logs").acquire()


def test_a_file_with_other_names_is_not_written_in_place(tmp_path: Path) -> None:
    """The other name may be a backup's, or lead to a file of root (where the kernel lets others make hard links)."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"batches")
    os.link(path, tmp_path / "backup")
    with FS.open(path, "r+") as file:
        file.sync()
        with pytest.raises(RefusedError, match="has 2 names"):
            file.write_at(7, b"more")
        with pytest.raises(RefusedError, match="has 2 names"):
            file.truncate(0)
    with pytest.raises(OSError, match="Not a regular file"):
        FS.copy_attributes(tmp_path, path)
    with FS.open(path, "create") as file:
        file.write_at(0, b"new")
    assert (tmp_path / "backup").read_bytes() == b"batches"


@needs_root
def test_the_owner_of_a_directory_does_not_matter_only_that_of_links(tmp_path: Path) -> None:
    os.chown(tmp_path, OTHER, OTHER)
    with FS.open(tmp_path / "file", "create_new") as file:
        file.write_at(0, b"x")
    assert FS.read_bytes(tmp_path / "file") == b"x"


def test_the_name_of_a_url_is_its_last_part() -> None:
    assert links.name_of(parse_location("s3://bucket/logs/t-0")) == "t-0"
    assert links.resolve(parse_location("s3://bucket/logs/t-0")) == parse_location("s3://bucket/logs/t-0")
