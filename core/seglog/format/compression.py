"""Compression of record sets: writes the same framings as Kafka, and reads everything that Kafka reads.

Kafka: Compression, Lz4BlockInputStream, Lz4BlockOutputStream; snappy-java's SnappyInputStream. The raw codecs
are cramjam's, zlib's and zstandard's, which release the GIL; the xerial and LZ4 framings are implemented here.
zstandard handles zstd batches of ordinary size, because it keeps its context from batch to batch: measured on 16 KiB
batches, that takes half the time of a fresh context for each.

The caller's buffer or `limit` bounds the output: a stream that expands beyond it ends with
`DecompressionError.too_large`, and memory never grows beyond it.
"""

from __future__ import annotations

import struct
import threading
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING

import cramjam
import numpy as np
import numpy.typing as npt
import zstandard

from seglog.format.checksum import byte_view
from seglog.kernels import lz4
from seglog.kernels.runs import is_plain_zstd
from seglog.model import Compression

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seglog.format.checksum import ByteSource

_BIG_INT32 = struct.Struct(">i")
_LITTLE_UINT32 = struct.Struct("<I")

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_MAGIC_AS_LENGTH = _BIG_INT32.unpack(XERIAL_MAGIC[:4])[0]
_XERIAL_CHUNK_BYTES = 32 * 1024

_LZ4_MAGIC = _LITTLE_UINT32.pack(lz4.MAGIC)
_LZ4_DESCRIPTOR = bytes((lz4.FLAGS_WRITTEN, lz4.DESCRIPTOR_WRITTEN))
_LZ4_FAST_LEVEL = 9  # Kafka: level 9 names the fast compressor, the others the high-compression one

GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
GZIP_FORMAT = 16 + zlib.MAX_WBITS
_GZIP_STEP_BYTES = 1 << 20
_ZSTD_LEVEL = 3
_ZSTD_ORDINARY_RATIO = 16
_ZSTD_ORDINARY_BYTES = 4096
_ZSTD_COPIED_BYTES = 16 << 20

_OUTPUT_FULL = "failed to write whole buffer"  # how cramjam's streams report that the output is full


class DecompressionError(ValueError):
    """A record set cannot be decompressed; `too_large` if only its output did not fit."""

    def __init__(self, reason: str, *, too_large: bool = False) -> None:
        self.reason, self.too_large = reason, too_large
        super().__init__(reason)


class _DoesNotFitError(Exception):
    """A part of the stream does not fit the room given to it."""


def is_known_codec(codec: int, magic: int) -> bool:
    """True if batches of this magic may have this codec: zstd came with magic 2."""
    return codec < Compression.ZSTD or (codec == Compression.ZSTD and magic >= 2)


def decompress_into(
    codec: int, data: ByteSource, out: npt.NDArray[np.uint8], position: int = 0, *, magic: int = 2
) -> int:
    """Decompresses `data` into `out[position:]` and returns the number of bytes written.

    `magic` is that of the batch: writers of magic 0 computed a wrong LZ4 header checksum, which is therefore not
    checked. Bytes of `out` before `position` are never touched; those after the result are undefined. Raises
    `DecompressionError`, with `too_large` if the room is too small.
    """
    view = byte_view(data)
    room = byte_view(out)[position:]
    try:
        if codec == Compression.LZ4:
            return _lz4_into(view, room, magic)
        if codec == Compression.ZSTD:
            return _zstd_into(view, room)
        if codec == Compression.SNAPPY:
            return _snappy_into(view, room)
        if codec == Compression.GZIP:
            return _gzip_into(view, room)
    except cramjam.DecompressionError as error:
        if str(error) == _OUTPUT_FULL:
            raise _too_large(len(room)) from error
        raise DecompressionError(f"{Compression(codec).label}: {error}") from error
    except _DoesNotFitError:
        raise _too_large(len(room)) from None
    if codec != Compression.NONE:
        raise DecompressionError(f"unknown compression codec {codec}")
    if len(view) > len(room):
        raise _too_large(len(room))
    room[: len(view)] = view
    return len(view)


def decompress(codec: int, data: ByteSource, *, magic: int = 2, limit: int) -> memoryview:
    """Returns the decompressed bytes of `data`; a result above `limit` bytes raises an error with `too_large`."""
    view = byte_view(data)
    if codec == Compression.NONE and len(view) <= limit:
        return view
    capacity = min(limit, max(256, 4 * len(view)))
    while True:
        out = np.empty(capacity, dtype=np.uint8)
        try:
            size = decompress_into(codec, view, out, magic=magic)
        except DecompressionError as error:
            if not error.too_large or capacity >= limit:
                raise
            capacity = min(limit, capacity * 4)
        else:
            return byte_view(out)[:size]


def compress(codec: int, data: ByteSource, *, magic: int = 2, level: int | None = None) -> bytes:
    """Returns `data` as one compressed stream in Kafka's framing; a `level` of None is Kafka's default for the codec.

    Levels are 1 to 9 (or -1) for gzip, 1 to 17 for lz4, and the library's for zstd; snappy has none. A `magic` of 0
    gives LZ4 the header checksum that brokers before 0.10 wrote. Raises `ValueError` for an unknown codec.
    """
    return b"".join(compressed_pieces(codec, data, magic=magic, level=level))


def compressed_pieces(codec: int, data: ByteSource, *, magic: int = 2, level: int | None = None) -> Iterator[bytes]:
    """Yields the result of `compress` piece by piece; of a large stream only the current piece is held."""
    view = byte_view(data)
    if codec == Compression.LZ4:
        return _lz4_frame(view, magic, _LZ4_FAST_LEVEL if level is None else level)
    if codec == Compression.ZSTD:
        return iter((_zstd.compressor(_ZSTD_LEVEL if level is None else level).compress(view),))
    if codec == Compression.SNAPPY:
        return _xerial_stream(view)
    if codec == Compression.GZIP:
        return _gzip_member(view, -1 if level is None else level)
    if codec == Compression.NONE:
        return iter((bytes(view),))
    raise ValueError(f"unknown compression codec {codec}")


def _too_large(limit: int) -> DecompressionError:
    return DecompressionError(f"the decompressed data is larger than {limit} bytes", too_large=True)


# --- gzip -----------------------------------------------------------------------------------------------


def _gzip_member(data: memoryview, level: int) -> Iterator[bytes]:
    compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    yield GZIP_HEADER
    for start in range(0, len(data), _GZIP_STEP_BYTES):
        yield compressor.compress(data[start : start + _GZIP_STEP_BYTES])
    yield compressor.flush()
    yield struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _gzip_into(data: memoryview, out: memoryview) -> int:
    try:
        return int(cramjam.gzip.decompress_into(data, out))
    except cramjam.DecompressionError as error:
        if str(error) == _OUTPUT_FULL:
            raise
    return _gzip_members_into(data, out)


def _gzip_members_into(data: memoryview, out: memoryview) -> int:
    """Decompresses member by member. Like GZIPInputStream, ignores bytes after a member that do not begin another."""
    size = 0
    rest: memoryview | bytes = data
    while True:
        member = zlib.decompressobj(GZIP_FORMAT)
        try:
            # Asking for one byte more than fits tells whether the member continues or ends here.
            piece = member.decompress(rest, len(out) - size + 1)
        except zlib.error as error:
            raise DecompressionError(f"gzip: {error}") from error
        if len(piece) > len(out) - size:
            raise _DoesNotFitError
        if not member.eof:
            raise DecompressionError("gzip: the stream ends too soon")
        out[size : size + len(piece)] = piece
        size += len(piece)
        rest = member.unused_data
        if rest[:3] != GZIP_HEADER[:3]:
            return size


# --- snappy ---------------------------------------------------------------------------------------------


def _xerial_stream(data: memoryview) -> Iterator[bytes]:
    yield XERIAL_HEADER
    for start in range(0, len(data), _XERIAL_CHUNK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_CHUNK_BYTES]))
        yield _BIG_INT32.pack(len(block))
        yield block


def _snappy_into(data: memoryview, out: memoryview) -> int:
    """Decompresses one or several xerial streams in a row; data without their magic is one raw block."""
    if len(data) < len(XERIAL_HEADER) or data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _snappy_block_into(data, out)
    position, size = len(XERIAL_HEADER), 0
    while len(data) - position >= _BIG_INT32.size:  # SnappyInputStream ends quietly within a length
        length = _BIG_INT32.unpack_from(data, position)[0]
        if length == XERIAL_MAGIC_AS_LENGTH:
            header = data[position : position + len(XERIAL_HEADER)]
            if len(header) < len(XERIAL_HEADER) or header[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
                raise DecompressionError("snappy: a second stream starts with an incomplete header")
            check_xerial_version(header)
            position += len(XERIAL_HEADER)
            continue
        position += _BIG_INT32.size
        if length < 0 or length > len(data) - position:
            raise DecompressionError(f"snappy: a chunk of {length} bytes with {len(data) - position} left")
        size += _snappy_block_into(data[position : position + length], out[size:])
        position += length
    return size


def check_xerial_version(header: memoryview) -> None:
    """Raises DecompressionError for a version below 1. Kafka does not check the first header of a payload."""
    version = _BIG_INT32.unpack_from(header, len(XERIAL_MAGIC))[0]
    if version < 1:
        raise DecompressionError(f"snappy: xerial stream of version {version}")


def _snappy_block_into(block: memoryview, out: memoryview) -> int:
    if cramjam.snappy.decompress_raw_len(block) > len(out):
        raise _DoesNotFitError
    return int(cramjam.snappy.decompress_raw_into(block, out))


# --- zstd -----------------------------------------------------------------------------------------------


class _ZstdContexts(threading.local):
    """A thread's own contexts; a context serves one thread at a time."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        """Returns the compressor of a level. Like Kafka's, its frames have neither content size nor checksum."""
        if level not in self.compressors:
            self.compressors[level] = zstandard.ZstdCompressor(
                level=level, write_content_size=False, write_checksum=False
            )
        return self.compressors[level]


_zstd = _ZstdContexts()


def _zstd_into(data: memoryview, room: memoryview) -> int:
    """Decompresses a single frame of ordinary expansion with the kept context, anything else as a stream.

    The kept context is faster, but needs room for the result twice.
    """
    expected = min(len(room), _ZSTD_ORDINARY_RATIO * len(data) + _ZSTD_ORDINARY_BYTES)
    if not is_plain_zstd(np.frombuffer(data, dtype=np.uint8), 0, len(data)):
        return int(cramjam.zstd.decompress_into(data, room))  # zstandard would silently end after the first frame
    try:
        if zstandard.frame_content_size(data) > expected or expected > _ZSTD_COPIED_BYTES:
            return int(cramjam.zstd.decompress_into(data, room))
        out = _zstd.decompressor.decompress(data, max_output_size=expected)
    except zstandard.ZstdError:
        # More output than expected, or damage: the stream decoder tells them apart.
        return int(cramjam.zstd.decompress_into(data, room))
    room[: len(out)] = out
    return len(out)


# --- lz4 ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _lz4_header_checksum(hashed: bytes) -> int:
    return int(lz4.header_checksum(np.frombuffer(hashed, dtype=np.uint8), 0, len(hashed)))


def _lz4_frame(data: memoryview, magic: int, level: int) -> Iterator[bytes]:
    # Kafka: KAFKA-3160, writers of magic 0 hashed the frame's magic number too.
    hashed = _LZ4_MAGIC + _LZ4_DESCRIPTOR if magic == 0 else _LZ4_DESCRIPTOR
    yield _LZ4_MAGIC + _LZ4_DESCRIPTOR + bytes([_lz4_header_checksum(hashed)])
    for start in range(0, len(data), lz4.BLOCK_BYTES):
        source = data[start : start + lz4.BLOCK_BYTES]
        block = _lz4_block(source, level)
        if len(block) < len(source):
            yield _LITTLE_UINT32.pack(len(block))
            yield block
        else:
            yield _LITTLE_UINT32.pack(len(source) | lz4.STORED)
            yield bytes(source)
    yield _LITTLE_UINT32.pack(lz4.END_MARK)


def _lz4_block(source: memoryview, level: int) -> bytes:
    if level == _LZ4_FAST_LEVEL:
        return bytes(cramjam.lz4.compress_block(source, store_size=False))
    return bytes(cramjam.lz4.compress_block(source, mode="high_compression", compression=level, store_size=False))


def _lz4_into(data: memoryview, room: memoryview, magic: int) -> int:
    source, out = np.frombuffer(data, dtype=np.uint8), np.frombuffer(room, dtype=np.uint8)
    size = lz4.decompress_frame(source, 0, len(source), magic > 0, out, 0, len(out))
    if size == lz4.NO_ROOM:
        raise _DoesNotFitError
    if size < 0:
        raise DecompressionError(f"lz4: {lz4.REASONS[size]}")
    return int(size)
