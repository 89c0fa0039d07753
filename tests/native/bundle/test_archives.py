"""A tree as archives and packages: the same bytes each time, installed and removed by the distributions' own tools."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from native.bundle import archives
from tests.support.packages import INSTALLERS, needs_tool

DATE = 1_700_000_000
FILES = {"bin/seglog": 0o755, "python/start.py": 0o644, "python/lib/a b.py": 0o600, "share/man/man1/seglog.1": 0o664}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")


def tree(folder: Path) -> Path:
    top = folder / "seglog-1-linux-x86_64"
    for name, mode in FILES.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod(mode)
    (top / "python/empty").mkdir()
    return top


def built(kind: str, top: Path, place: Path) -> Path:
    place.mkdir(exist_ok=True)
    if kind == "tar":
        archives.tar_xz(top, place / "made.tar.xz", DATE)
        return place / "made.tar.xz"
    needs_tool({"deb": "dpkg-deb", "rpm": "rpmbuild"}[kind])
    make: Callable[..., Path] = {"deb": archives.deb, "rpm": archives.rpm}[kind]
    return make("seglog", "1", "x86_64", top, place, DATE, "2.17")


@pytest.mark.parametrize("kind", ["tar", "deb", "rpm"])
def test_the_same_tree_gives_the_same_bytes(kind: str, tmp_path: Path) -> None:
    one, other = tree(tmp_path / "one"), tree(tmp_path / "other place")
    (other / "bin/seglog").chmod(0o700)
    os.utime(other / "bin/seglog", (1, 1))
    assert built(kind, one, tmp_path / "a").read_bytes() == built(kind, other, tmp_path / "b").read_bytes()


def test_an_archive_has_one_directory_of_roots_files_in_order(tmp_path: Path) -> None:
    with tarfile.open(built("tar", tree(tmp_path), tmp_path)) as tar:
        members = tar.getmembers()
    names = [member.name for member in members]
    assert names == sorted(names, key=lambda name: Path(name).parts) and "seglog-1-linux-x86_64/python/empty" in names
    assert {member.name.partition("/")[0] for member in members} == {"seglog-1-linux-x86_64"}
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members} == {(0, 0, "root", DATE)}
    assert {member.mode for member in members if member.isfile()} == {0o755, 0o644}


def installed(root: Path) -> dict[str, int]:
    """The files below usr, with their modes."""
    return {
        str(path.relative_to(root)): path.stat().st_mode & 0o777
        for path in (root / "usr").rglob("*")
        if path.is_file() and not path.is_symlink()
    }


EXPECTED = {
    "usr/lib/seglog/bin/seglog": 0o755,
    "usr/lib/seglog/python/start.py": 0o644,
    "usr/lib/seglog/python/lib/a b.py": 0o644,
    "usr/share/man/man1/seglog.1": 0o644,
}


@needs_root
@pytest.mark.parametrize(("kind", "needed"), [("deb", "libc6 (>= 2.17)"), ("rpm", "glibc >= 2.17")])
def test_the_distributions_tool_installs_and_removes_the_package(kind: str, needed: str, tmp_path: Path) -> None:
    package, root = built(kind, tree(tmp_path), tmp_path / "made"), tmp_path / "root"
    installer = INSTALLERS[kind](root)
    installer.install(package)
    assert installed(root) == EXPECTED
    assert (root / "usr/bin/seglog").read_text() == "bin/seglog"
    assert needed in installer.needs("seglog")
    installer.remove("seglog")
    assert installed(root) == {}
    assert not (root / "usr/lib/seglog").exists()
