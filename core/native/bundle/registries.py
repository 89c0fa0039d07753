"""Fetches what a bundle is made from, with each registry's own client, into a cache; every file has a pinned hash.

Sources come from Debian's archive by apt-get, which the system's own settings lead there, in a state of its own: the
system's lists stay as they are, and root is not needed. Wheels come from PyPI by pip. What is in the cache is not
fetched again; a file put there by hand serves as well, if its hash is right.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from native.building import BuildError

HERE = Path(__file__).parent
PYTHON = (3, 13)
CACHE_VARIABLE = "SEGLOG_BUNDLE_CACHE"
# The wheels' tags of an old glibc, the oldest last: pip takes a wheel with any of them.
_BASE_TAGS = ("manylinux_2_17", "manylinux2014", "manylinux_2_12", "manylinux2010", "manylinux_2_5", "manylinux1")
_EXTRAS_TAGS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_24", *_BASE_TAGS)
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True)
class Source:
    """A file of a Debian source package."""

    package: str
    version: str
    file: str
    sha256: str


def sources() -> dict[str, Source]:
    """Returns the pinned sources by their names in pins.toml."""
    tables = tomllib.loads((HERE / "pins.toml").read_text())
    return {name: Source(**table) for name, table in tables.items() if isinstance(table, dict)}


def suite() -> str:
    """Returns the Debian release that has the sources."""
    return str(tomllib.loads((HERE / "pins.toml").read_text())["suite"])


def cache() -> Path:
    """Returns the directory that keeps downloads and the compiled Python between builds."""
    asked = os.environ.get(CACHE_VARIABLE)
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(asked).absolute() if asked else home / "seglog-bundle"


def fetch_sources(wanted: Iterable[Source], folder: Path) -> None:
    """Puts the files of Debian's source packages into `folder`. Raises BuildError if one cannot be had."""
    folder.mkdir(parents=True, exist_ok=True)
    late = [source for source in wanted if not _is_whole(folder / source.file, source.sha256)]
    if not late:
        return
    if shutil.which("apt-get") is None:
        names = ", ".join(f"{source.file} (SHA-256 {source.sha256})" for source in late)
        raise BuildError(f"Debian's apt-get is not here; put these files of {suite()} into {folder}: {names}")
    apt = _Apt(folder / "apt")
    for source in late:
        apt.fetch(source, folder)
        if not _is_whole(folder / source.file, source.sha256):
            raise BuildError(f"{folder / source.file} has another SHA-256 than core/native/bundle/pins.toml says")


def fetch_wheels(requirements: Path, machine: str, folder: Path, extras: bool) -> None:
    """Downloads the wheels that a file of pinned requirements names, for a machine (`x86_64`, `aarch64`).

    Wheels of the base need glibc 2.17 at most, those of extras 2.28.
    """
    tags = _EXTRAS_TAGS if extras else _BASE_TAGS
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "-d", str(folder)]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", ".".join(map(str, PYTHON))]
    for abi in (f"cp{PYTHON[0]}{PYTHON[1]}", "abi3", "none"):
        command += ["--abi", abi]
    for tag in tags:
        command += ["--platform", f"{tag}_{machine}"]
    run([*command, "-r", str(requirements)])


def run(command: Sequence[str], directory: Path | None = None, variables: dict[str, str] | None = None) -> str:
    """Runs a tool and returns what it wrote. Raises BuildError, with the end of its output, if it fails."""
    merged = {**os.environ, **(variables or {})}
    done = subprocess.run(
        command,
        cwd=directory,
        env=merged,
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command[:6])} … failed ({done.returncode}):\n{done.stdout[-3000:]}")
    return done.stdout


def _is_whole(path: Path, sha256: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256


class _Apt:
    """apt-get with lists of its own, which know the sources of one Debian release."""

    def __init__(self, state: Path) -> None:
        for name in ("lists/partial", "archives/partial"):
            (state / name).mkdir(parents=True, exist_ok=True)
        listing = state / "sources.list"
        self._options = [
            *("-o", f"Dir::State::lists={state / 'lists'}", "-o", f"Dir::Cache={state}"),
            *("-o", f"Dir::Etc::sourcelist={listing}", "-o", "Dir::Etc::sourceparts=/dev/null"),
            *("-o", "APT::Sandbox::User=root"),  # files that only this user may read
        ]
        listing.write_text(f"deb-src [signed-by={_KEYRING}] {self._archive()} {suite()} main\n")
        run(["apt-get", *self._options, "update"])

    def fetch(self, source: Source, folder: Path) -> None:
        """Downloads the source package that has the file."""
        stanzas = run(["apt-cache", *self._options, "showsrc", "--only-source", source.package]).split("\n\n")
        having = [stanza for stanza in stanzas if f" {source.file}\n" in stanza]
        versions = re.findall(r"^Version: (.+)$", "\n".join(having), re.MULTILINE)
        if not versions:
            raise BuildError(f"{suite()} has no {source.file} any more: raise {source.package} in pins.toml")
        wanted = f"{source.package}={versions[-1]}"
        # Debian's own part of the package is not wanted, and a mirror may have it in another version than the list.
        only = ["--download-only", "--tar-only", "--only-source"]
        run(["apt-get", *self._options, "source", *only, wanted], directory=folder)

    @staticmethod
    def _archive() -> str:
        """Returns the address of Debian's archive as the system's settings have it."""
        command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
        listed = run(command).split()
        if not listed:
            raise BuildError("apt knows no archive of Debian: run `apt-get update` on a Debian system first")
        return listed[0]
