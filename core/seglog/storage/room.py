"""Is there room on the disk for what is to be kept and written, and what makes some?"""

from __future__ import annotations

import shlex
from pathlib import Path

from seglog.errors import RefusedError
from seglog.storage.filesystem import FileSystem

_SPARE_PERCENT = 5
_INDEX_SHARE = 64  # indexes take at most this share of their log
_INDEX_LEAST_BYTES = 64 << 10


def check_space(
    fs: FileSystem, directory: Path, needed: int, log_directory: Path | None = None, way_out: str = ""
) -> None:
    """RefusedError unless `needed` bytes and five percent more are free in the file system of `directory`.

    `log_directory` is one on the same disk, from which segments could go; `way_out` is what else an operator can do.
    """
    wanted = needed + needed * _SPARE_PERCENT // 100
    free = fs.free_bytes(directory)
    if free < wanted:
        hints = "" if log_directory is None else f"; nothing was changed. {freeing(log_directory, wanted)}"
        also = f". {way_out}" if way_out else ""
        raise RefusedError(f"{directory}: {wanted} bytes of disk space are needed and {free} are free{hints}{also}")


def freeing(log_directory: Path, size: int) -> str:
    """What an operator can do where `size` bytes are not free on the disk of a log directory."""
    command = shlex.join(["seglog", "retain", "--free", str(size), str(log_directory)])
    return f"`{command}` takes the oldest closed segments to make room, and needs none itself"


def salvaging(directory: Path) -> str:
    """What an operator can do where retention finds nothing to take: it leaves damaged logs alone."""
    command = shlex.join(["seglog", "salvage", str(directory), "--output"])
    return f"Where only damaged logs are left, `{command} DIR` copies their good batches to another disk"


def room_for_indexes(log_bytes: int) -> int:
    """Bytes that the indexes of a `.log` of this size may take."""
    return _INDEX_LEAST_BYTES + log_bytes // _INDEX_SHARE
