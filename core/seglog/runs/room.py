"""Is there room on the disk for what is to be kept and written?"""

from __future__ import annotations

from pathlib import Path

from seglog.errors import RefusedError
from seglog.storage.filesystem import FileSystem

_SPARE_PERCENT = 5
_INDEX_SHARE = 64  # indexes take at most this share of their log
_INDEX_LEAST_BYTES = 64 << 10


def check_space(fs: FileSystem, directory: Path, needed: int) -> None:
    """RefusedError unless `needed` bytes and five percent more are free in the file system of `directory`."""
    wanted = needed + needed * _SPARE_PERCENT // 100
    free = fs.free_bytes(directory)
    if free < wanted:
        raise RefusedError(f"{directory}: {wanted} bytes of disk space are needed and {free} are free")


def room_for_indexes(log_bytes: int) -> int:
    """Bytes that the indexes of a `.log` of this size may take."""
    return _INDEX_LEAST_BYTES + log_bytes // _INDEX_SHARE
