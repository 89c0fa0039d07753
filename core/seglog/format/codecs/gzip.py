"""gzip, through zlib: Kafka's header, and members in a row.

Kafka: GzipOutputStream, Java's GZIPInputStream.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from seglog.format.payloads import PIECE_BYTES, Codec, DecompressionError, MemoryPayload, Payload, Pieces, expanded_into

_HEADER = bytes.fromhex("1f8b08000000000000ff")
_FORMAT = 16 + zlib.MAX_WBITS
_STEP_BYTES = 1 << 20


def _member(data: memoryview, level: int, _magic: int) -> Iterator[bytes]:
    compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    yield _HEADER
    for start in range(0, len(data), _STEP_BYTES):
        yield compressor.compress(data[start : start + _STEP_BYTES])
    yield compressor.flush()
    yield struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _members(payload: Payload) -> Iterator[memoryview]:
    """Expands member by member. Like GZIPInputStream, ignores bytes after a member that do not begin another."""
    rest = bytes(payload.read(PIECE_BYTES))
    while True:
        member = zlib.decompressobj(_FORMAT)
        while not member.eof:
            try:
                piece = member.decompress(rest, PIECE_BYTES)
            except zlib.error as error:
                raise DecompressionError(f"gzip: {error}") from error
            rest = member.unconsumed_tail
            if len(piece):
                yield memoryview(piece)
            elif not member.eof and not rest:
                rest = bytes(payload.read(PIECE_BYTES))
                if not rest:
                    raise DecompressionError("gzip: the stream ends too soon")
        rest = member.unused_data
        if len(rest) < len(_HEADER):
            rest += bytes(payload.read(PIECE_BYTES))
        if rest[:3] != _HEADER[:3]:
            return


CODEC = Codec(
    compress=_member,
    expand=lambda payload, _magic: Pieces(_members(payload)),
    expand_into=lambda data, room, _magic: expanded_into(Pieces(_members(MemoryPayload(data))), room),
)
