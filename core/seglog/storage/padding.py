"""Reads what was written of a file that is filled from its front, without the zeros that a broker preallocates.

A broker makes the indexes of its active segment 10 MiB long (`segment.index.bytes`), and cuts them when it closes them.
After a kill they keep that length. Entries are written in order and none of them is zero, the first one aside; so the
first block of zeros ends them, and a few reads find it, whether the zeros take disk space or not.

Damage may follow such a block. `written_front` does not see it: an index is a hint, and readers check where it leads.
`written_bytes` sees it: it skips only holes, zeros for certain, and reads everything else. Neither holds the zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seglog.storage.filesystem import File

# A file of at most this size is read at once; also the first read of a larger one.
FRONT_BYTES = 64 << 10
_BLOCK = 4096
_PIECE = 64 << 10
_ZEROS = bytes(_PIECE)


def written_front(file: File, entry_bytes: int = 1) -> bytes:
    """Returns a file up to its first block of zeros, in whole entries. A small file comes as it is.

    If several blocks of zeros lie between others, it is the first one or a later one.
    """
    size = file.size()
    front = file.read_at(0, min(size, FRONT_BYTES))
    if size <= FRONT_BYTES:
        return front
    end = _first_zeros(front)
    if end < len(front):
        return front[: _rounded(front, end, entry_bytes)]
    blocks = -(-size // _BLOCK)
    written, zero = len(front) // _BLOCK - 1, blocks  # a block that was written, and one after which none was
    if _is_zero(file.read_at((blocks - 1) * _BLOCK, _BLOCK)):
        zero = blocks - 1
        while zero - written > 1:
            middle = (written + zero) // 2
            if _is_zero(file.read_at(middle * _BLOCK, _BLOCK)):
                zero = middle
            else:
                written = middle
    # the last entry may end with zeros, after that block
    data = front + file.read_at(len(front), min(size, zero * _BLOCK + entry_bytes) - len(front))
    return data[: _rounded(data, zero * _BLOCK, entry_bytes)] if zero < blocks else data


def last_entry(file: File, entry_bytes: int) -> tuple[int, bytes] | None:
    """Returns the number of whole entries of a file without padding, and the last one; None if only reading all tells.

    They are the entries of `written_front`. Two reads serve a file of any size.
    """
    size = file.size()
    count = size // entry_bytes
    if size <= FRONT_BYTES or _first_zeros(file.read_at(0, FRONT_BYTES)) < FRONT_BYTES:
        return None
    if _is_zero(file.read_at((size - 1) // _BLOCK * _BLOCK, _BLOCK)):
        return None
    entry = file.read_at((count - 1) * entry_bytes, entry_bytes)
    return None if _is_zero(entry) else (count, entry)


def written_bytes(file: File, entry_bytes: int = 1) -> bytes:
    """Returns a file up to its last byte that is not zero, in whole entries. A small file comes as it is."""
    front, size = written_front(file, entry_bytes), file.size()
    end = _last_after(file, len(front))
    return file.read_at(0, min(size, -(-end // entry_bytes) * entry_bytes)) if end else front


def last_written(file: File) -> int:
    """Returns the position after the last byte that is not zero, 0 if there is none."""
    front = written_front(file)
    return _last_after(file, len(front)) or len(front.rstrip(b"\0"))


def _last_after(file: File, front: int) -> int:
    """Returns the position after the last byte that is not zero and not in the written front; 0 if there is none."""
    end, size = 0, file.size()
    position = -(-front // _BLOCK) * _BLOCK  # the rest of that block has been seen
    while (position := file.next_data(position)) < size:
        piece = file.read_at(position, min(_PIECE - position % _PIECE, size - position))
        if not piece:  # it was cut meanwhile
            break
        if not _is_zero(piece):
            end = position + len(piece.rstrip(b"\0"))
        position += len(piece)
    return end


def _first_zeros(data: bytes) -> int:
    """Returns the position of the first block of zeros, the length if there is none."""
    for position in range(0, len(data), _BLOCK):
        if _is_zero(data[position : position + _BLOCK]):
            return position
    return len(data)


def _rounded(data: bytes, end: int, entry_bytes: int) -> int:
    """Returns the end of the last entry before `end` that is not zero; it may lie a few zeros after `end`."""
    written = len(data[:end].rstrip(b"\0"))
    return min(len(data), -(-written // entry_bytes) * entry_bytes)


def _is_zero(data: bytes) -> bool:
    return data == (_ZEROS if len(data) == _PIECE else _ZEROS[: len(data)])
