"""The bundle that `python -m native --bundle dist` made, for tests of what is shipped.

No test builds it: that compiles CPython. SEGLOG_BUNDLE names another directory than `dist`. Commands run where little
is allowed: as another user, with an empty environment, from a read-only mount, with a /tmp from which nothing starts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from native.bundle import tree
from tests.support.command_line import ROOT
from tests.support.other_users import OTHER, given_to

DIRECTORY = Path(os.environ.get("SEGLOG_BUNDLE", ROOT / "dist"))
TOP = f"seglog-{tree.version()}-linux-x86_64"
# In a namespace of mounts of its own. What is below /tmp is bound to /mnt before another /tmp hides it.
_JAIL = f"""set -e
mount -t tmpfs tmpfs /mnt; mkdir /mnt/bundle /mnt/work
mount --bind "$1" /mnt/bundle; mount -o remount,ro,bind,nosuid /mnt/bundle
mount --bind "$2" /mnt/work
mount -t tmpfs -o noexec,nosuid,mode=1777 tmpfs /tmp
cd /mnt/work; shift 2
exec setpriv --reuid={OTHER} --regid={OTHER} --clear-groups env -i /mnt/bundle/bin/seglog "$@"
"""


def made(name: str) -> Path:
    """A file that the build made; the test skips if it is not there."""
    path = DIRECTORY / name
    if not path.is_file():
        pytest.skip(f"{path} is not there: `python -m native --bundle dist` makes it (core/BUILDING.md)")
    return path


def unpacked(names: list[str], folder: Path) -> Path:
    """The directory into which archives were unpacked, one over the other."""
    for name in names:
        subprocess.run(["tar", "-xf", made(name), "-C", folder], check=True)
    return folder / TOP


@dataclass(frozen=True)
class Jail:
    """A bundle where little is allowed; its commands work in a directory of another user."""

    bundle: Path
    work: Path

    def __post_init__(self) -> None:
        given_to(self.work)

    def command(self, *arguments: str) -> list[str]:
        """A command line of the bundle."""
        jail = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _JAIL, "sh"]
        return [*jail, str(self.bundle), str(self.work), *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command line of the bundle, ended."""
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False, timeout=120)


def needs_mounts() -> None:
    """Skips the test where this process may not mount."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--mount", "true"], check=False).returncode != 0:
        pytest.skip("only root, with the right to mount, puts a bundle on a read-only file system")
