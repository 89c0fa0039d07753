"""Going through a file a piece at a time: memory does not grow with the file."""

from __future__ import annotations

from collections.abc import Iterator

from seglog.errors import RefusedError
from seglog.storage.filesystem import File

PIECE_BYTES = 1 << 20


def pieces(file: File, start: int, end: int) -> Iterator[bytes]:
    """The bytes from `start` to `end`, in order; fewer where the file ends before."""
    position = start
    while position < end:
        piece = file.read_at(position, min(PIECE_BYTES, end - position))
        if not piece:
            return
        yield piece
        position += len(piece)


def copy_range(source: File, start: int, end: int, target: File, position: int) -> None:
    """Writes `source`'s bytes from `start` to `end` into `target` at `position`. RefusedError when it ends before."""
    left = end - start
    for piece in pieces(source, start, end):
        target.write_at(position, piece)
        position, left = position + len(piece), left - len(piece)
    if left > 0:
        raise RefusedError(f"{source.path} is shorter than it was")
