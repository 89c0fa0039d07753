"""Work on files of any file system in pieces: reading and copying ranges, removing a directory tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seglog.errors import RefusedError
from seglog.storage.filesystem import File, FileSystem

PIECE_BYTES = 1 << 20


def pieces(file: File, start: int, end: int) -> Iterator[bytes]:
    """Yields the bytes from `start` to `end`, in order, a piece at a time; fewer if the file ends before."""
    position = start
    while position < end:
        piece = file.read_at(position, min(PIECE_BYTES, end - position))
        if not piece:
            return
        yield piece
        position += len(piece)


def copy_range(source: File, start: int, end: int, target: File, position: int) -> None:
    """Copies bytes `start` to `end` of `source` to `target` at `position`. Raises RefusedError if there are fewer."""
    left = end - start
    for piece in pieces(source, start, end):
        target.write_at(position, piece)
        position, left = position + len(piece), left - len(piece)
    if left > 0:
        raise RefusedError(f"{source.path} is shorter than it was")


def copy_bytes(fs: FileSystem, source: Path, target: Path, start: int, end: int) -> None:
    """Copies a part of a file into a new one, durably; pieces of zeros take no disk space."""
    with fs.open(source, "r") as reader, fs.open(target, "create") as writer:
        position = start
        for piece in pieces(reader, start, end):
            if piece.count(0) < len(piece):
                writer.write_at(position - start, piece)
            position += len(piece)
        if position < end:
            raise RefusedError(f"{source} is shorter than it was")
        writer.truncate(end - start)
        writer.sync()


def remove_tree(fs: FileSystem, directory: Path, last: str = "") -> int:
    """Removes a directory and its contents, the file `last` at the end; returns the bytes of its files.

    A link is removed, its target is not.
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
