"""Removing a directory with all that is in it, and nothing else."""

from __future__ import annotations

from pathlib import Path

from seglog.storage.filesystem import FileSystem


def remove_tree(fs: FileSystem, directory: Path, last: str = "") -> int:
    """Removes a directory and what is in it, the file `last` at the end; returns the bytes of its files.

    A link is removed, what it leads to is not.
    """
    freed = 0
    for name in sorted(fs.list(directory), key=lambda each: each == last):
        status = fs.status(directory / name, follow=False)
        if status is not None and status.is_directory:
            freed += remove_tree(fs, directory / name)
        elif status is not None:
            freed += status.size
            fs.remove(directory / name)
    fs.remove_directory(directory)
    return freed
