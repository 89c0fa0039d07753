"""A tree as archives and packages: the same bytes each time, installed and removed by the distributions' own tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from native.bundle import archives

DATE = 1_700_000_000
FILES = {"bin/seglog": 0o755, "python/start.py": 0o644, "python/lib/a b.py": 0o600, "share/man/man1/seglog.1": 0o664}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")


def tool(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")


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
    tool({"deb": "dpkg-deb", "rpm": "rpmbuild"}[kind])
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
def test_dpkg_installs_and_removes_the_package(tmp_path: Path) -> None:
    package = built("deb", tree(tmp_path), tmp_path / "made")
    root = tmp_path / "root"
    for name in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"):
        (root / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    dpkg = ["dpkg", f"--root={root}", "--force-depends", "--force-not-root"]
    subprocess.run([*dpkg, "--install", package], check=True, capture_output=True)
    assert installed(root) == EXPECTED
    assert (root / "usr/bin/seglog").read_text() == "bin/seglog"
    subprocess.run([*dpkg, "--remove", "seglog"], check=True, capture_output=True)
    assert not (root / "usr").exists()


@needs_root
def test_rpm_installs_and_removes_the_package(tmp_path: Path) -> None:
    package = built("rpm", tree(tmp_path), tmp_path / "made")
    root = tmp_path / "root"
    root.mkdir()
    rpm = ["rpm", "--root", str(root), "--nodeps", "--ignorearch"]
    subprocess.run([*rpm, "--install", str(package)], check=True, capture_output=True)
    assert installed(root) == EXPECTED
    assert (root / "usr/bin/seglog").read_text() == "bin/seglog"
    asked = ["rpm", "--root", str(root), "--query", "--requires", "seglog"]
    assert "glibc >= 2.17" in subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    subprocess.run(["rpm", "--root", str(root), "--erase", "seglog"], check=True, capture_output=True)
    assert installed(root) == {}
    assert not (root / "usr/lib/seglog").exists()
