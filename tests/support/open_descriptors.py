"""What of a directory this process has open.

Never count all descriptors of a process before and after: others come and go, for a collection of garbage closes
what another test left.
"""

from __future__ import annotations

from pathlib import Path

import pytest

DESCRIPTORS = Path("/proc/self/fd")
needs_descriptors = pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="only Linux names open files")


def open_below(directory: Path) -> list[Path]:
    """The files and directories at and below `directory` that this process has open, one for each descriptor."""
    root, paths = directory.resolve(), []
    for descriptor in DESCRIPTORS.iterdir():
        try:
            path = descriptor.readlink()
        except FileNotFoundError:  # the descriptor that listed the directory, or one closed since
            continue
        if path.is_relative_to(root):
            paths.append(path)
    return paths
