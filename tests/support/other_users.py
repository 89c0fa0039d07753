"""Files of other users, for tests of what root may be led to: links planted, directories owned by somebody else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER = 65534  # nobody
ANOTHER = 65533

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


def planted_link(link: Path, target: Path | str, owner: int = OTHER) -> Path:
    """A symbolic link that another user made."""
    link.symlink_to(target)
    os.lchown(link, owner, owner)
    return link


def given_to(path: Path, owner: int = OTHER) -> Path:
    """`path`, and all below it, as another user's."""
    for each in (path, *path.rglob("*")):
        os.lchown(each, owner, owner)
    return path


@contextmanager
def acting_as_user(owner: int = OTHER) -> Iterator[None]:
    """This process reads and writes files as another user while the `with` lasts; only root can."""
    os.seteuid(owner)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def open_directory() -> Iterator[Path]:
    """A temporary directory that other users get at, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="seglog-") as directory:
        path = Path(directory)
        path.chmod(0o755)
        yield path
