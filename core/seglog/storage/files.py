"""Work on files of any file system: replacing a small file, copying in pieces, removing a directory tree."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.errors import RefusedError
from seglog.storage.filesystem import Access, File, FileSystem

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

TEMPORARY_SUFFIX = ".tmp"
PIECE_BYTES = 1 << 20


def write_atomically(fs: FileSystem, path: Path, data: ReadableBuffer, access: Access | None = None) -> None:
    """Replaces the contents of `path`: readers and crashes see the old contents or the new, never a mixture.

    1. Create `<name>.tmp` beside the file, with `access`, else the owner and mode of the old file. A file of that name,
       left over or planted, is removed first: nothing is ever written through it.
    2. Write and fsync it.
    3. Rename it over the file.
    4. Fsync the directory, so that the rename itself survives.

    An error or a signal leaves the old contents in place and no temporary file. A crash may leave `<name>.tmp`,
    which Kafka and seglog overwrite the next time.

    Kafka: CheckpointFile.write, ProducerStateManager.writeSnapshot, Utils.atomicMoveWithFallback.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with fs.open(temporary, "create") as file:
            old = fs.status(path, follow=False)
            if access is None and old is not None and not old.is_link:
                access = Access.of(old)
            if access is not None:
                file.give(access)
            file.write_at(0, data)
            file.sync()
        fs.rename(temporary, path)
    except BaseException:  # a signal, too
        with contextlib.suppress(OSError):
            fs.remove(temporary)
        raise
    fs.sync_directory(path.parent)


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
