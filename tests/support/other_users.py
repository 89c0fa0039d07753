"""Files of other users, for tests of what root may be led to: links planted, directories owned by somebody else."""

from __future__ import annotations

import os
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
