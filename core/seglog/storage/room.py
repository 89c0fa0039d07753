"""Disk space: checking that there is enough before work begins, and advice on how to make room."""

from __future__ import annotations

from pathlib import Path

from seglog.errors import RefusedError
from seglog.escaping import command_line
from seglog.storage.filesystem import FileSystem

CLEANING_SLACK_BYTES = 16 << 20  # a round's output may exceed its sources by that, in checksums and indexes
_SPARE_PERCENT = 5
_INDEX_SHARE = 64  # indexes take at most 1/64 of their log
_INDEX_LEAST_BYTES = 64 << 10


def with_spare(needed: int) -> int:
    """Returns `needed` bytes and five percent more."""
    return needed + needed * _SPARE_PERCENT // 100


def require_room(fs: FileSystem, directory: Path, needed: int, purpose: str, way_out: str = "") -> None:
    """Raises RefusedError unless `needed` bytes are free in the file system of `directory`.

    `purpose` begins the sentence that says so, and names the bytes; `way_out` is advice, a sentence of its own.
    """
    free = fs.free_bytes(directory)
    if free < needed:
        advice = f". {way_out}" if way_out else ""
        raise RefusedError(f"{directory}: {purpose}, and {free} are free; nothing was changed{advice}")


def check_space(
    fs: FileSystem, directory: Path, needed: int, log_directory: Path | None = None, way_out: str = ""
) -> None:
    """Raises RefusedError unless `needed` bytes and five percent more are free in the file system of `directory`.

    `log_directory` is a log directory on the same disk that could give up segments; `way_out` is other advice.
    """
    wanted = with_spare(needed)
    advice = ([] if log_directory is None else [freeing(log_directory, wanted)]) + ([way_out] if way_out else [])
    require_room(fs, directory, wanted, f"{wanted} bytes of disk space are needed", ". ".join(advice))


def require_room_to_clean(fs: FileSystem, directory: Path, needed: int, way_out: str = "") -> None:
    """Raises RefusedError unless `needed` bytes are free for the output of a round in the log at `directory`."""
    purpose = f"cleaning writes {needed} bytes before it can free any"
    require_room(fs, directory, needed, purpose, way_out or freeing(directory.parent, needed))


def freeing(log_directory: Path, size: int) -> str:
    """Advises an operator how to free `size` bytes on the disk of a log directory."""
    command = command_line("seglog", "retain", "--free", str(size), log_directory)
    return f"`{command}` deletes the oldest closed segments to make room, and needs none itself"


def salvaging(directory: Path) -> str:
    """Advises an operator where retention finds nothing to delete: it leaves damaged logs alone."""
    command = command_line("seglog", "salvage", directory, "--output")
    return f"If only damaged logs are left, `{command} DIR` copies their good batches to another disk"


def room_for_indexes(log_bytes: int) -> int:
    """Returns the bytes that the indexes of a `.log` of this size may take."""
    return _INDEX_LEAST_BYTES + log_bytes // _INDEX_SHARE
