"""The log of Kafka 0.7: `.kafka` files, where a message's offset is its byte position in the logical log.

Kafka 0.7: Message, ByteBufferMessageSet, CompressionUtils. An entry is an int32 size and a message of that size:

    magic 0   int8 magic, uint32 CRC-32 of the payload, payload
    magic 1   int8 magic, int8 attributes (bits 0-1: none, gzip, snappy), uint32 CRC-32 of the payload, payload

A compressed message's payload is compressed entries. They have no offsets of their own: a reader resumes at
the wrapper until it has taken all of them. There are no keys and no timestamps.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from seglog import layout
from seglog.format.buffers import byte_view
from seglog.format.checksum import crc32
from seglog.format.compression import DecompressionError, decompress
from seglog.model import Compression

if TYPE_CHECKING:
    from seglog.format.buffers import ByteSource

_SIZE = struct.Struct(">i")
_MAGIC_0 = struct.Struct(">bI")
_MAGIC_1 = struct.Struct(">bBI")
_CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY)
_DEEPEST = 4  # sets inside sets, which mirroring could give


class End07(Enum):
    """Why a walk ended; the value reads as part of a sentence."""

    COMPLETE = "the data ends with a whole message"
    TRUNCATED = "the last message is cut off"
    INVALID_SIZE = "a message's size is smaller than its header"
    INVALID_MAGIC = "a message's magic is neither 0 nor 1"


@dataclass(frozen=True, slots=True)
class Message07:
    """One entry. `position` counts in the data that was walked, `size` includes the four bytes of the size field.

    `payload` is a view of the data. `codec` is None for the unassigned number 3. `crc` is the stored checksum;
    it covers the payload alone, so that magic, attributes and size may be wrong though `is_valid`.
    """

    position: int
    size: int
    magic: int
    codec: Compression | None
    crc: int
    payload: memoryview

    @property
    def next_position(self) -> int:
        """The position just after it."""
        return self.position + self.size

    @property
    def is_valid(self) -> bool:
        """Whether the payload has the checksum that is stored."""
        return crc32(self.payload) == self.crc


@dataclass(frozen=True, slots=True)
class Walk07:
    """The entries of some data, the position after the last whole one, and why there are no more."""

    messages: tuple[Message07, ...]
    end_position: int
    end: End07


def walk_messages(data: ByteSource) -> Walk07:
    """All entries, compressed ones unopened and checksums not yet compared; never raises."""
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
    """What the message holds: its payload, or those of the compressed set, at most `limit` bytes of them.

    A set whose last entry is cut off gives the entries before it, as in Kafka. Raises `DecompressionError` for
    an unknown codec, data that does not decompress, or an invalid inner message.
    """
    return list(_payloads(message, [limit], 0))


def encode_message(payload: bytes, magic: int = 1, codec: Compression = Compression.NONE) -> bytes:
    """One entry. `payload` of a compressed one is compressed already; magic 0 has no codec (`ValueError`)."""
    if codec not in _CODECS or magic not in (0, 1) or (magic == 0 and codec != Compression.NONE):
        raise ValueError(f"Kafka 0.7 has no {codec.label} messages of magic {magic}")
    checksum = crc32(payload)
    header = _MAGIC_1.pack(1, codec, checksum) if magic else _MAGIC_0.pack(0, checksum)
    return _SIZE.pack(len(header) + len(payload)) + header + payload


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
