"""The log of Kafka 0.7: `.kafka` files, in which a message's offset is its byte position in the whole log.

Kafka 0.7: Message, ByteBufferMessageSet, CompressionUtils. An entry is an int32 size and a message of that size:

    magic 0   int8 magic, uint32 CRC-32 of the payload, payload
    magic 1   int8 magic, int8 attributes (bits 0-1: none, gzip, snappy), uint32 CRC-32 of the payload, payload

The payload of a compressed message is a run of compressed entries. They have no offsets of their own: a reader resumes
at the wrapper until it has read all of them. There are no keys and no timestamps.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from seglog import layout
from seglog.format.checksum import byte_view, crc32
from seglog.format.compression import decompress
from seglog.format.payloads import DecompressionError
from seglog.model import Compression

if TYPE_CHECKING:
    from seglog.format.checksum import ByteSource

_SIZE = struct.Struct(">i")
_MAGIC_0 = struct.Struct(">bI")
_MAGIC_1 = struct.Struct(">bBI")
_CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY)
_DEEPEST = 4  # compressed sets inside compressed sets, which mirroring could produce


class End07(Enum):
    """The reason why a walk ended; the value is part of a sentence."""

    COMPLETE = "the data ends with a whole message"
    TRUNCATED = "the last message is cut off"
    INVALID_SIZE = "a message's size is smaller than its header"
    INVALID_MAGIC = "a message's magic is neither 0 nor 1"


@dataclass(frozen=True, slots=True)
class Message07:
    """One entry. `position` counts within the walked data; `size` includes the four bytes of the size field.

    `payload` is a view of the data. `codec` is None for the unassigned number 3. `crc` is the stored checksum. It
    covers only the payload, so magic, attributes and size may be wrong even if `is_valid`.
    """

    position: int
    size: int
    magic: int
    codec: Compression | None
    crc: int
    payload: memoryview

    @property
    def next_position(self) -> int:
        """The position after it."""
        return self.position + self.size

    @property
    def is_valid(self) -> bool:
        """True if the payload has the stored checksum."""
        return crc32(self.payload) == self.crc


@dataclass(frozen=True, slots=True)
class Walk07:
    """The entries of some data, the position after the last whole one, and the reason why there are no more."""

    messages: tuple[Message07, ...]
    end_position: int
    end: End07


def walk_messages(data: ByteSource) -> Walk07:
    """Returns all entries, without decompressing them or comparing checksums. Never raises."""
    view = byte_view(data)
    messages: list[Message07] = []
    position = 0
    while True:
        found = _entry(view, position)
        if isinstance(found, End07):
            return Walk07(tuple(messages), position, found)
        messages.append(found)
        position = found.next_position


def payloads(message: Message07, limit: int) -> list[memoryview]:
    """Returns the message's payload, or those of its compressed set, at most `limit` bytes.

    Like Kafka, returns the entries before a last one that is cut off. Raises `DecompressionError` for an unknown codec,
    data that cannot be decompressed, or an invalid inner message.
    """
    return list(_payloads(message, [limit], 0))


def _entry(view: memoryview, position: int) -> Message07 | End07:
    left = len(view) - position
    if left <= 0:
        return End07.COMPLETE
    if left < _SIZE.size:
        return End07.TRUNCATED
    size = _SIZE.unpack_from(view, position)[0]
    if size < layout.MESSAGE_07_MAGIC_0_HEADER:
        return End07.INVALID_SIZE
    if size > left - _SIZE.size:
        return End07.TRUNCATED
    start, end = position + _SIZE.size, position + _SIZE.size + size
    magic, codec = view[start], 0
    if magic == 0:
        crc = _MAGIC_0.unpack_from(view, start)[1]
        payload = view[start + layout.MESSAGE_07_MAGIC_0_HEADER : end]
    elif magic == 1:
        if size < layout.MESSAGE_07_MAGIC_1_HEADER:
            return End07.INVALID_SIZE
        _, attributes, crc = _MAGIC_1.unpack_from(view, start)
        codec = attributes & layout.MESSAGE_07_CODEC_MASK
        payload = view[start + layout.MESSAGE_07_MAGIC_1_HEADER : end]
    else:
        return End07.INVALID_MAGIC
    known = _CODECS[codec] if codec < len(_CODECS) else None
    return Message07(position, end - position, magic, known, crc, payload)


def _payloads(message: Message07, budget: list[int], depth: int) -> Iterator[memoryview]:
    if message.codec is None:
        raise DecompressionError("unknown compression codec 3")
    if message.codec == Compression.NONE:
        yield message.payload
        return
    if depth == _DEEPEST:
        raise DecompressionError(f"compressed sets are nested more than {_DEEPEST} deep")
    inner = decompress(message.codec, message.payload, magic=1, limit=budget[0])
    budget[0] -= len(inner)
    walk = walk_messages(inner)
    for each in walk.messages:
        if not each.is_valid:
            raise DecompressionError(f"the checksum of the inner message at byte {each.position} is wrong")
        yield from _payloads(each, budget, depth + 1)
    if walk.end is End07.INVALID_MAGIC:
        raise DecompressionError(f"at byte {walk.end_position} of the set {walk.end.value}")
