"""Is there room on the disk for what is to be kept and written?"""

from __future__ import annotations

from pathlib import Path

from seglog.errors import RefusedError
from seglog.storage.filesystem import FileSystem

_SPARE_PERCENT = 5


def check_space(fs: FileSystem, directory: Path, needed: int) -> None:
    """RefusedError unless `needed` bytes and five percent more are free in the file system of `directory`."""
    wanted = needed + needed * _SPARE_PERCENT // 100
    free = fs.free_bytes(directory)
    if free < wanted:
        raise RefusedError(f"{directory}: {wanted} bytes of disk space are needed and {free} are free")
