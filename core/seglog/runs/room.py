"""Is there room on the disk for what a run keeps and writes?"""

from __future__ import annotations

from pathlib import Path

from seglog.errors import RefusedError
from seglog.storage.filesystem import FileSystem

_SPARE_PERCENT = 5


def check_space(fs: FileSystem, log_directory: Path, needed: int) -> None:
    """RefusedError unless `needed` bytes and five percent more are free."""
    wanted = needed + needed * _SPARE_PERCENT // 100
    free = fs.free_bytes(log_directory)
    if free < wanted:
        raise RefusedError(f"{log_directory}: {wanted} bytes of disk space are needed and {free} are free")
