"""The good messages of a Kafka 0.7 file, joined. Positions are offsets there, so those after damage get new ones."""

from __future__ import annotations

from pathlib import Path

from seglog.format.message_07 import walk_messages
from seglog.storage.filesystem import File, FileSystem

_WINDOW_BYTES = 4 << 20


def copy_07(fs: FileSystem, path: Path, writer: File, position: int) -> tuple[int, int]:
    """Appends the good messages of `path` to `writer` at `position`; returns how many, and their bytes.

    After damage every byte is tried as the beginning of a message. Messages larger than 4 MiB are passed over:
    Kafka 0.7 takes none above one million bytes by default.
    """
    count = written = at = 0
    with fs.open(path, "r") as file:
        size = file.size()
        while at < size:
            data = file.read_at(at, min(_WINDOW_BYTES, size - at))
            good, end = _good_front(data)
            if end:
                writer.write_at(position + written, data[:end])
                count, written, at = count + good, written + end, at + end
            else:
                at += _next_message(data)
    return count, written


def _good_front(data: bytes) -> tuple[int, int]:
    """How many good messages `data` begins with, and where they end."""
    count = end = 0
    for message in walk_messages(data).messages:
        if not message.is_valid:
            break
        count, end = count + 1, message.next_position
    return count, end


def _next_message(data: bytes) -> int:
    """Where the next good message could begin; the length of `data` when none does."""
    for at in range(1, len(data) - 8):
        if data[at + 4] > 1 or data[at]:  # magic, and a size below 16 MiB
            continue
        declared = int.from_bytes(data[at : at + 4], "big") + 4
        piece = data[at : at + declared]
        if 10 <= declared <= len(data) - at and _good_front(piece)[1] == declared:
            return at
    return len(data)
