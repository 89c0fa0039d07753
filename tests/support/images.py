"""Building an image by buildah without a registry and without a daemon, in storage below one directory.

The image to begin from is made of this system's own files: a shell and the few programs that a Dockerfile runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAMS = ("sh", "cp", "ls", "head", "mkdir", "mv", "chmod", "find", "touch")


class Builder:
    """buildah with storage of its own."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("buildah") is None:
            pytest.skip("buildah is not installed: nothing here builds images")
        where = ["--root", str(folder / "images"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]
        self._command = ["buildah", *where]

    def run(self, *arguments: str) -> str:
        """Runs a subcommand of buildah and returns what it printed; the test fails if that fails."""
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def imported(self, root: Path, name: str) -> str:
        """Makes an image of a directory, and returns its name."""
        container = self.run("from", "scratch").strip()
        self.run("add", container, str(root), "/")
        self.run("commit", container, f"localhost/{name}")
        return f"localhost/{name}"


def small_debian(folder: Path, libraries: list[str]) -> Path:
    """A root directory with PROGRAMS and C libraries of this system, which must be Debian on x86-64."""
    place = Path("lib/x86_64-linux-gnu")
    if not Path("/", place, "libc.so.6").exists():
        pytest.skip("the image begins from a Debian on x86-64, and this system has its libraries elsewhere")
    for name in ("bin", "lib64", place, "tmp", "root"):
        (folder / name).mkdir(parents=True)
    (folder / "usr").symlink_to(".")
    shutil.copy("/lib64/ld-linux-x86-64.so.2", folder / "lib64")
    for name in PROGRAMS:
        program = shutil.which(name)
        assert program is not None, name
        shutil.copy(program, folder / "bin" / name)
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        libraries = libraries + re.findall(r"=> (/\S+)", listed)
    for library in set(libraries):
        source = Path(library) if library.startswith("/") else Path("/", place, library)
        shutil.copy(source, folder / place)
    return folder
