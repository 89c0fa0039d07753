"""snappy in the framing of xerial's streams. The raw blocks are cramjam's.

Kafka: SnappyCompression; snappy-java's SnappyOutputStream and SnappyInputStream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import cramjam

from seglog.format import payloads
from seglog.format.payloads import Codec, DecompressionError, Payload, Pieces, large_block, larger_than

_BIG_INT32 = struct.Struct(">i")
_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + struct.pack(">ii", 1, 1)
_MAGIC_AS_LENGTH = _BIG_INT32.unpack(_MAGIC[:4])[0]
_CHUNK_BYTES = 32 * 1024


def _stream(data: memoryview, _level: int, _magic: int) -> Iterator[bytes]:
    yield _HEADER
    for start in range(0, len(data), _CHUNK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _CHUNK_BYTES]))
        yield _BIG_INT32.pack(len(block))
        yield block


def _begins_stream(header: memoryview | bytes) -> bool:
    return len(header) == len(_HEADER) and header[: len(_MAGIC)] == _MAGIC


def _check_header(header: memoryview | bytes) -> None:
    """Checks the header of a stream that follows another. Kafka does not check the first header of a payload."""
    if not _begins_stream(header):
        raise DecompressionError("snappy: a second stream starts with an incomplete header")
    version = _BIG_INT32.unpack_from(header, len(_MAGIC))[0]
    if version < 1:
        raise DecompressionError(f"snappy: xerial stream of version {version}")


def _expand_into(data: memoryview, room: memoryview, _magic: int) -> int:
    """Expands one or several xerial streams in a row; data without their magic is one raw block."""
    if not _begins_stream(data[: len(_HEADER)]):
        return _block_into(data, room, 0)
    position, size = len(_HEADER), 0
    while len(data) - position >= _BIG_INT32.size:  # SnappyInputStream ends quietly within a length
        length = _BIG_INT32.unpack_from(data, position)[0]
        if length == _MAGIC_AS_LENGTH:
            _check_header(data[position : position + len(_HEADER)])
            position += len(_HEADER)
            continue
        position += _BIG_INT32.size
        if length < 0 or length > len(data) - position:
            raise _wrong_length(length, len(data) - position)
        size += _block_into(data[position : position + length], room, size)
        position += length
    return size


def _block_into(block: memoryview, room: memoryview, at: int) -> int:
    try:
        if cramjam.snappy.decompress_raw_len(block) > len(room) - at:
            raise larger_than(len(room))
        return int(cramjam.snappy.decompress_raw_into(block, room[at:]))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error


def _pieces(payload: Payload) -> Iterator[memoryview]:
    """Expands one or several xerial streams in a row; a payload without their magic is one raw block."""
    limit = payloads.BLOCK_LIMIT
    header = payload.read(len(_HEADER))
    if not _begins_stream(header):
        yield _block(memoryview(bytes(header) + bytes(payload.read(limit))))
        if len(payload.read(1)):
            raise large_block()
        return
    while len(field := payload.read(_BIG_INT32.size)) == _BIG_INT32.size:
        length = _BIG_INT32.unpack(field)[0]
        if length == _MAGIC_AS_LENGTH:
            _check_header(bytes(field) + bytes(payload.read(len(_HEADER) - len(field))))
            continue
        block = payload.read(max(0, min(length, limit)))
        if length < 0 or len(block) < min(length, limit):
            raise _wrong_length(length, len(block))
        if length > limit:
            raise large_block()
        yield _block(block)


def _block(block: memoryview) -> memoryview:
    try:
        if cramjam.snappy.decompress_raw_len(block) > payloads.BLOCK_LIMIT:
            raise large_block()
        return memoryview(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error


def _wrong_length(length: int, left: int) -> DecompressionError:
    return DecompressionError(f"snappy: a chunk of {length} bytes with {left} left")


CODEC = Codec(compress=_stream, expand=lambda payload, _magic: Pieces(_pieces(payload)), expand_into=_expand_into)
