"""Joins the good messages of Kafka 0.7 files. Positions are offsets there, so messages after damage get new ones."""

from __future__ import annotations

from pathlib import Path

from seglog.format.message_07 import walk_messages
from seglog.storage.filesystem import File, FileSystem

_LONGEST_MESSAGE = 4 << 20


def copy_07(fs: FileSystem, path: Path, writer: File, position: int) -> tuple[int, int]:
    """Writes the good messages of `path` to `writer` from `position` on; returns their number and bytes.

    After damage it tries every byte as the beginning of a message. It may skip messages larger than 4 MiB: Kafka 0.7
    takes none above one million bytes by default.
    """
    count = written = at = 0
    with fs.open(path, "r") as file:
        size = file.size()
        while at < size:
            data = file.read_at(at, min(2 * _LONGEST_MESSAGE, size - at))
            good, end = _good_front(data)
            if end:
                writer.write_at(position + written, data[:end])
                count, written, at = count + good, written + end, at + end
            else:  # a message that begins in the second half may not end in it
                at += _next_message(data, len(data) if at + len(data) == size else _LONGEST_MESSAGE)
    return count, written


def _good_front(data: bytes) -> tuple[int, int]:
    """Returns the number of good messages that `data` begins with, and where they end."""
    count = end = 0
    for message in walk_messages(data).messages:
        if not message.is_valid:
            break
        count, end = count + 1, message.next_position
    return count, end


def _next_message(data: bytes, limit: int) -> int:
    """Returns the position of the next good message after the first byte; `limit` if none begins below it."""
    for at in range(1, min(limit, len(data) - 8)):
        if data[at + 4] > 1 or data[at]:  # magic, and a size below 16 MiB
            continue
        declared = int.from_bytes(data[at : at + 4], "big") + 4
        piece = data[at : at + declared]
        if 10 <= declared <= len(data) - at and _good_front(piece)[1] == declared:
            return at
    return limit
