"""Finds where a broker sees the end of a segment that it does not recover (Kafka: LogSegment.readNextOffset).

1. The last slot of the offset index gives an offset; zero padding counts as entries.
2. The index is searched for that offset as Kafka does: the warm end first.
3. Batches are walked by their sizes alone from the position found. The last batch gives the next offset; without a
   batch it is the segment's base offset. A size below 14 fails the load, and with it the start.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from seglog import layout
from seglog.scan.listing import SegmentFiles
from seglog.storage.filesystem import File, FileSystem

_HEADER_UP_TO_MAGIC = 17
_LEAST_SIZE = 14
_HEADER = struct.Struct(">qi4xb")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_WARM_ENTRIES = 8192 // layout.OFFSET_INDEX_ENTRY.itemsize
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class KafkaEnd:
    """`next_offset`, and the position after the last batch a broker sees. `refusal` says why it would not start."""

    next_offset: int
    position: int
    refusal: str = ""


def kafka_end(fs: FileSystem, segment: SegmentFiles) -> KafkaEnd:
    """Returns what a broker takes for the end of `segment`. Raises OSError."""
    last, position = _indexed(fs, segment)
    with fs.open(segment.log, "r") as file:
        return _walked(file, segment.base_offset, last, max(0, position))  # Kafka: LogSegment.translateOffset


def _indexed(fs: FileSystem, segment: SegmentFiles) -> tuple[int, int]:
    """Returns the offset in the last slot of the index, and the position that a search for it gives."""
    size = layout.OFFSET_INDEX_ENTRY.itemsize
    status = None if segment.offset_index is None else fs.status(segment.offset_index)
    count = 0 if status is None else status.size // size
    if segment.offset_index is None or count == 0:
        return segment.base_offset, 0
    with fs.open(segment.offset_index, "r") as file:

        def slot(i: int) -> tuple[int, int]:
            relative, position = struct.unpack(">ii", file.read_at(i * size, size))
            return segment.base_offset + int(relative), int(position)

        target = slot(count - 1)[0]

        def search(first: int, last: int) -> int:
            while first < last:
                middle = (first + last + 1) >> 1
                found = slot(middle)[0]
                if found == target:
                    return middle
                first, last = (middle, last) if found < target else (first, middle - 1)
            return first

        warm = max(0, count - 1 - _WARM_ENTRIES)
        if slot(warm)[0] < target:
            return target, slot(search(warm, count - 1))[1]
        if slot(0)[0] > target:
            return target, 0
        return target, slot(search(0, warm))[1]


def _walked(file: File, base_offset: int, target: int, position: int) -> KafkaEnd:
    size, reached, next_offset = file.size(), False, base_offset
    buffer, begins = b"", 0
    while position < size - _HEADER_UP_TO_MAGIC:
        if not begins <= position <= begins + len(buffer) - layout.RECORD_BATCH_OVERHEAD:
            buffer, begins = file.read_at(position, _READ_BYTES), position
        offset, length, magic = _HEADER.unpack_from(buffer, position - begins)
        if length < _LEAST_SIZE:
            return KafkaEnd(next_offset, position, f"the batch at position {position} declares the size {length}")
        if position > size - layout.LOG_OVERHEAD - length:
            break
        last = int(offset)
        at = position - begins + layout.LAST_OFFSET_DELTA_OFFSET
        if magic >= 2 and at + 4 <= len(buffer):
            last += int(_LAST_OFFSET_DELTA.unpack_from(buffer, at)[0])
        position += layout.LOG_OVERHEAD + int(length)
        reached = reached or last >= target
        if reached:
            next_offset = last + 1
    return KafkaEnd(next_offset, position if reached else 0)
