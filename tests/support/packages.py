"""Installing and removing packages below another root, by the distributions' own tools."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def needs_tool(name: str) -> None:
    """Skips the test where a tool is missing."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")


class Dpkg:
    """Debian's packages below a root that knows no others."""

    def __init__(self, root: Path) -> None:
        needs_tool("dpkg")
        for name in ("info", "updates", "triggers"):
            (root / "var/lib/dpkg" / name).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        self._command = ["dpkg", f"--root={root}", "--force-depends", "--force-not-root"]

    def install(self, package: Path) -> None:
        """Unpacks and configures the package in a file."""
        self._run("--install", str(package))

    def remove(self, name: str) -> None:
        """Removes a package by its name."""
        self._run("--remove", name)

    def needs(self, name: str) -> str:
        """What a package depends on, as it was installed."""
        listing = self._command[1].removeprefix("--root=") + "/var/lib/dpkg"
        command = ["dpkg-query", f"--admindir={listing}", "--show", "--showformat=${Depends}", name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def _run(self, *arguments: str) -> None:
        subprocess.run([*self._command, *arguments], check=True, capture_output=True)


class Rpm:
    """RPM packages below a root that knows no others."""

    def __init__(self, root: Path) -> None:
        needs_tool("rpm")
        root.mkdir(parents=True)
        self._command = ["rpm", "--root", str(root)]

    def install(self, package: Path) -> None:
        """Installs the package in a file."""
        self._run("--nodeps", "--ignorearch", "--install", str(package))

    def remove(self, name: str) -> None:
        """Removes a package by its name."""
        self._run("--erase", name)

    def needs(self, name: str) -> str:
        """What a package depends on, as it was installed."""
        return self._run("--query", "--requires", name)

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._command, *arguments], check=True, capture_output=True, text=True).stdout


INSTALLERS = {"deb": Dpkg, "rpm": Rpm}
