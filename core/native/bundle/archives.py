"""A tree as archives whose bytes depend on the tree and a date alone: .tar.xz, .deb and .rpm.

Owners are root, modes 755 and 644, dates those of the commit; files come in the order of their names.
"""

from __future__ import annotations

import io
import lzma
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from native.bundle.registries import run

# Where a distribution's package has the tree; its `share` goes to /usr/share.
HOME = Path("usr/lib/seglog")
_LEVEL = 6  # of xz: the highest makes a tenth less in three times the time
_SUMMARY = "Apache Kafka's log engine outside the broker"
_DESCRIPTION = "Reads, verifies, repairs, recovers, retains and cleans the logs of Kafka's brokers. Has its own Python."
_NEEDS_DEB = "libc6 (>= {glibc}), libgcc-s1 | libgcc1, libstdc++6, zlib1g"
_NEEDS_RPM = "glibc >= {glibc}, libgcc, libstdc++, zlib"
_DEB_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_SPEC = """Name: {name}
Version: {version}
Release: 1
Summary: {summary}
License: Apache-2.0
Requires: {needs}
AutoReqProv: no
%description
{description}
%files
{files}
"""
_MACROS = {
    "_build_id_links": "none",
    "__os_install_post": "%{nil}",
    "_buildhost": "seglog",
    "use_source_date_epoch_as_buildtime": "1",
    "clamp_mtime_to_source_date_epoch": "1",
    "_binary_payload": f"w{_LEVEL}.xzdio",
}


def tar_xz(top: Path, archive: Path, date: int) -> None:
    """Writes a directory, under its own name, to an archive."""
    partial = archive.with_name(f".{archive.name}")
    with (
        lzma.open(partial, "wb", preset=_LEVEL) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for path in [top, *sorted(top.rglob("*"))]:
            _add(tar, path, path.relative_to(top.parent), date)
    partial.replace(archive)


def _add(tar: tarfile.TarFile, path: Path, name: Path, date: int) -> None:
    entry = tar.gettarinfo(str(path), str(name))
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = date
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    tar.addfile(entry, io.BytesIO(path.read_bytes()) if entry.isreg() else None)


def staged(top: Path, folder: Path, date: int) -> None:
    """Lays a tree out as a package installs it: below /usr/lib/seglog, `share` in /usr/share, a link in /usr/bin."""
    shutil.copytree(top, folder / HOME, ignore=lambda where, _: ["share"] if Path(where) == top else [])
    if (top / "share").is_dir():
        shutil.copytree(top / "share", folder / "usr/share")
    if (top / "bin" / "seglog").is_file():
        (folder / "usr/bin").mkdir()
        (folder / "usr/bin/seglog").symlink_to(Path("..") / HOME.relative_to("usr") / "bin/seglog")
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        os.utime(path, (date, date), follow_symlinks=False)


def deb(name: str, version: str, machine: str, top: Path, place: Path, date: int, glibc: str, after: str = "") -> Path:
    """Makes a Debian package of a tree in the directory `place`; `after` is a package that it extends."""
    made = place / f"{name}_{version}_{_DEB_MACHINES[machine]}.deb"
    needs = f"{after} (= {version})" if after else _NEEDS_DEB.format(glibc=glibc)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "package"
        staged(top, folder, date)
        size = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) // 1024
        fields = {"Package": name, "Version": version, "Architecture": _DEB_MACHINES[machine], "Depends": needs}
        fields |= {"Maintainer": "seglog <root@localhost>", "Section": "admin", "Priority": "optional"}
        fields |= {"Installed-Size": str(size), "Description": f"{_SUMMARY}\n {_DESCRIPTION}"}
        (folder / "DEBIAN").mkdir()
        (folder / "DEBIAN/control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", f"-z{_LEVEL}", "--build", str(folder), str(made)]
        run(command, variables={"SOURCE_DATE_EPOCH": str(date)})
    return made


def rpm(name: str, version: str, machine: str, top: Path, place: Path, date: int, glibc: str, after: str = "") -> Path:
    """Makes an RPM package of a tree in the directory `place`; `after` is a package that it extends."""
    needs = f"{after} = {version}" if after else _NEEDS_RPM.format(glibc=glibc)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "root"
        staged(top, folder, date)
        paths = sorted(path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
        lines = [f'%attr(-,root,root) "/{path.relative_to(folder)}"' for path in paths]
        ours = [path for path in [folder / HOME, *sorted((folder / HOME).rglob("*"))] if path.is_dir()]
        lines += [f'%dir %attr(755,root,root) "/{path.relative_to(folder)}"' for path in ours]
        values = {"name": name, "version": version, "summary": _SUMMARY, "needs": needs, "description": _DESCRIPTION}
        (Path(work) / "seglog.spec").write_text(_SPEC.format(files="\n".join(lines), **values))
        macros = {**_MACROS, "_topdir": work, "_rpmdir": f"{work}/made", "_rpmfilename": "package.rpm"}
        command = ["rpmbuild", "-bb", "--quiet", "--target", f"{machine}-linux", "--buildroot", str(folder)]
        for macro, value in macros.items():
            command += ["--define", f"{macro} {value}"]
        run([*command, f"{work}/seglog.spec"], variables={"SOURCE_DATE_EPOCH": str(date)})
        made = place / f"{name}-{version}-1.{machine}.rpm"
        shutil.copyfile(Path(work) / "made/package.rpm", made)
    return made
