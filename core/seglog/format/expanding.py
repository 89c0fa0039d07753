"""Expands compressed payloads piece by piece, for batches too large to be held: `compression` as a stream.

It accepts and refuses the same streams as `compression.decompress_into`, in the memory of a piece. Sizes stated by a
frame or a block are trusted up to `BLOCK_LIMIT`. A `Payload` supplies the bytes, from memory or from a file.

In addition to a piece, the codecs hold: gzip 32 KiB; LZ4 a block (at most 4 MiB) and its expansion; snappy a block,
which writers make of 32 KiB, or a whole payload without framing; zstd its window, at most 128 MiB and no more than it
has written.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Protocol

import cramjam
import numpy as np
import zstandard

from seglog.format.checksum import byte_view
from seglog.format.compression import (
    GZIP_FORMAT,
    GZIP_HEADER,
    XERIAL_HEADER,
    XERIAL_MAGIC,
    XERIAL_MAGIC_AS_LENGTH,
    DecompressionError,
    check_xerial_version,
)
from seglog.kernels import lz4, runs
from seglog.model import Compression

if TYPE_CHECKING:
    from seglog.format.checksum import ByteSource

# The most bytes that a single block may expand to, and that a payload may have if it must be read whole.
BLOCK_LIMIT = 128 << 20

_READ_BYTES = 256 << 10
_LITTLE_UINT32 = struct.Struct("<I")
_BIG_INT32 = struct.Struct(">i")
_LZ4_RUN_BYTES = 1 << 20
_MOST_ZSTD_WINDOW = 1 << runs.MOST_WINDOW_BITS
_ZSTD_MAGIC_BYTES = 4
_ZSTD_SKIPPABLE, _ZSTD_SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0  # magic numbers of skippable frames
_ZSTD_SKIPPABLE_SIZE_BYTES = 4
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_TWO_BYTE_SIZE_BASE = 256  # added to a content size of two bytes


class Payload(Protocol):
    """The bytes of a payload, from first to last."""

    def read(self, size: int) -> memoryview:
        """Returns the next `size` bytes, fewer only at the end."""
        ...

    def read_into(self, out: memoryview) -> int:
        """Fills `out` with the next bytes; returns their number, smaller only at the end."""
        ...


class ReadInto(Protocol):
    """The part of `storage.filesystem.File` that is needed here."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fills a buffer from `position`; returns the number of bytes read, smaller only at the end."""
        ...


class MemoryPayload:
    """A payload in memory."""

    def __init__(self, data: ByteSource) -> None:
        self._rest = byte_view(data)

    def read(self, size: int) -> memoryview:
        """Returns a view of the next `size` bytes."""
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece

    def read_into(self, out: memoryview) -> int:
        """Copies the next bytes."""
        piece = self.read(len(out))
        out[: len(piece)] = piece
        return len(piece)


class FilePayload:
    """A payload of `size` bytes at `position` of a file."""

    def __init__(self, file: ReadInto, position: int, size: int) -> None:
        self._file, self._position, self._left = file, position, size

    def read(self, size: int) -> memoryview:
        """Returns a copy of the next `size` bytes."""
        piece = memoryview(bytearray(min(size, self._left)))
        return piece[: self.read_into(piece)]

    def read_into(self, out: memoryview) -> int:
        """Reads the next bytes directly into `out`."""
        filled = self._file.read_into(self._position, out[: self._left])
        self._position += filled
        self._left -= filled
        return filled


class Expansion(Protocol):
    """The expanded bytes of a payload, in order."""

    def read_into(self, out: memoryview) -> int:
        """Fills `out`; returns the number of bytes, smaller only at the end. Raises `DecompressionError`."""
        ...

    @property
    def held_bytes(self) -> int:
        """The bytes it holds in addition to a piece."""
        ...


def expanded(codec: int, payload: Payload, magic: int) -> Expansion:
    """Returns the expansion of a payload. Raises `DecompressionError` for an unknown codec."""
    if codec == Compression.NONE:
        return _Stored(payload)
    if codec == Compression.GZIP:
        return _Pieces(_gzip(payload))
    if codec == Compression.SNAPPY:
        return _Pieces(_snappy(payload))
    if codec == Compression.LZ4:
        return _Pieces(_lz4(payload, magic))
    if codec == Compression.ZSTD:
        return _ZstdFrames(payload)
    raise DecompressionError(f"unknown compression codec {codec}")


class _Stored:
    """A payload that is not compressed, read directly into the caller's buffer."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload

    def read_into(self, out: memoryview) -> int:
        return self._payload.read_into(out)

    @property
    def held_bytes(self) -> int:
        return 0


class _Pieces:
    """An expansion made of pieces of any size."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def read_into(self, out: memoryview) -> int:
        filled = 0
        while filled < len(out):
            if not len(self._rest):
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._rest = piece
            size = min(len(self._rest), len(out) - filled)
            out[filled : filled + size] = self._rest[:size]
            self._rest = self._rest[size:]
            filled += size
        return filled

    @property
    def held_bytes(self) -> int:
        return self._rest.nbytes


def _gzip(payload: Payload) -> Iterator[memoryview]:
    """Expands member by member. Like GZIPInputStream, ignores bytes after a member that do not begin another."""
    rest = bytes(payload.read(_READ_BYTES))
    while True:
        member = zlib.decompressobj(GZIP_FORMAT)
        while not member.eof:
            try:
                piece = member.decompress(rest, _READ_BYTES)
            except zlib.error as error:
                raise DecompressionError(f"gzip: {error}") from error
            rest = member.unconsumed_tail
            if len(piece):
                yield memoryview(piece)
            elif not member.eof and not rest:
                rest = bytes(payload.read(_READ_BYTES))
                if not rest:
                    raise DecompressionError("gzip: the stream ends too soon")
        rest = member.unused_data
        if len(rest) < len(GZIP_HEADER):
            rest += bytes(payload.read(_READ_BYTES))
        if rest[:3] != GZIP_HEADER[:3]:
            return


def _snappy(payload: Payload) -> Iterator[memoryview]:
    """Expands one or several xerial streams in a row; a payload without their magic is one raw block."""
    header = payload.read(len(XERIAL_HEADER))
    if len(header) < len(XERIAL_HEADER) or header[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield _snappy_block(memoryview(bytes(header) + bytes(payload.read(BLOCK_LIMIT))))
        if len(payload.read(1)):
            raise _too_large()
        return
    # Like SnappyInputStream, it ends quietly within a length.
    while len(field := payload.read(_BIG_INT32.size)) == _BIG_INT32.size:
        length = _BIG_INT32.unpack(field)[0]
        if length == XERIAL_MAGIC_AS_LENGTH:
            header = memoryview(bytes(field) + bytes(payload.read(len(XERIAL_HEADER) - len(field))))
            if len(header) < len(XERIAL_HEADER) or header[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
                raise DecompressionError("snappy: a second stream starts with an incomplete header")
            check_xerial_version(header)
            continue
        block = payload.read(max(0, min(length, BLOCK_LIMIT)))
        if length < 0 or len(block) < min(length, BLOCK_LIMIT):
            raise DecompressionError(f"snappy: a chunk of {length} bytes with {len(block)} left")
        if length > BLOCK_LIMIT:
            raise _too_large()
        yield _snappy_block(block)


def _snappy_block(block: memoryview) -> memoryview:
    try:
        if cramjam.snappy.decompress_raw_len(block) > BLOCK_LIMIT:
            raise _too_large()
        return memoryview(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error


def _lz4(payload: Payload, magic: int) -> Iterator[memoryview]:
    """Expands run after run of blocks; the kernel gets each run as a frame of its own."""
    header = bytes(payload.read(lz4.LEAST_HEADER_BYTES))
    largest, flags = 0, 0
    if len(header) == lz4.LEAST_HEADER_BYTES:
        largest, flags = lz4.largest_block(header[lz4.DESCRIPTOR_AT] & lz4.DESCRIPTOR_MASK), header[lz4.FLAGS_AT]
    if flags & lz4.CONTENT_SIZE:
        header += bytes(payload.read(lz4.CONTENT_SIZE_BYTES))
    block_checksum = lz4.CHECKSUM_BYTES if flags & lz4.BLOCK_CHECKSUMS else 0
    content_checksum = lz4.CHECKSUM_BYTES if flags & lz4.CONTENT_CHECKSUM else 0
    at_end = False
    while not at_end:
        run: list[bytes | memoryview] = [header]
        blocks = 0
        while blocks * largest < _LZ4_RUN_BYTES and not at_end:
            field = payload.read(lz4.BLOCK_SIZE_BYTES)
            size = _LITTLE_UINT32.unpack(field)[0] & lz4.SIZE_MASK if len(field) == lz4.BLOCK_SIZE_BYTES else 0
            at_end = size == lz4.END_MARK or size > largest
            run.append(field)
            if at_end:
                run.append(payload.read(content_checksum))
            else:
                run.append(payload.read(size + block_checksum))
                blocks += 1
        if not at_end:
            run.append(bytes(lz4.BLOCK_SIZE_BYTES + content_checksum))  # in place of the frame's own end
        source, out = np.frombuffer(b"".join(run), dtype=np.uint8), np.empty((blocks + 1) * largest, dtype=np.uint8)
        size = lz4.decompress_frame(source, 0, len(source), magic > 0, out, 0, len(out))
        if size < 0:
            raise DecompressionError(f"lz4: {lz4.REASONS.get(size, lz4.REASONS[lz4.BLOCK_SIZE_WRONG])}")
        yield byte_view(out)[:size]


def _too_large() -> DecompressionError:
    return DecompressionError(f"a block expands to more than {BLOCK_LIMIT} bytes", too_large=True)


# --- zstd -------------------------------------------------------------------------------------------------------------


class _ZstdFrames:
    """Frame after frame. The library does not report a payload that ends within a frame, so `_FrameWalk` follows it."""

    def __init__(self, payload: Payload) -> None:
        self._walk = _FrameWalk(payload)
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MOST_ZSTD_WINDOW)
        source: IO[bytes] = self._walk  # type: ignore[assignment]  # all that it asks for is `read`
        self._reader = decompressor.stream_reader(source, read_size=_READ_BYTES, read_across_frames=True)
        self._written = 0

    def read_into(self, out: memoryview) -> int:
        filled = 0
        try:
            while filled < len(out):
                size = self._reader.readinto(out[filled:])
                if size == 0:
                    if not self._walk.complete:
                        raise DecompressionError("zstd: the stream ends within a frame")
                    break
                filled += size
        except zstandard.ZstdError as error:
            raise DecompressionError(f"zstd: {error}") from error
        self._written += filled
        return filled

    @property
    def held_bytes(self) -> int:
        return min(self._walk.largest_window, self._written)


class _FrameWalk:
    """Passes on a payload and follows its frames by their headers (RFC 8878), to tell if it ends after a frame."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        # Handles the next field. A function, because a bound method would leave this object and its payload in a cycle.
        self._field: Callable[[_FrameWalk, int], None] = _FrameWalk._magic
        self._wanted, self._skip = _ZSTD_MAGIC_BYTES, 0  # bytes of that field, and bytes before it
        self._fields = 0, 0  # of a frame header: bytes of its next fields
        self._head = b""
        self._has_checksum = False
        self._frames = 0
        self.largest_window = 0

    @property
    def complete(self) -> bool:
        """True if the bytes read so far end after a frame."""
        return self._frames > 0 and self._field is _FrameWalk._magic and not self._head and not self._skip

    def read(self, size: int) -> memoryview:
        """Returns the next bytes, for the library."""
        piece = self._payload.read(size)
        at = 0
        while at < len(piece):
            if self._skip:
                step = min(self._skip, len(piece) - at)
                self._skip -= step
            else:
                step = min(self._wanted - len(self._head), len(piece) - at)
                self._head += piece[at : at + step]
                if len(self._head) == self._wanted:
                    head, self._head = int.from_bytes(self._head, "little"), b""
                    self._field(self, head)
            at += step
        return piece

    def _next(self, field: Callable[[_FrameWalk, int], None], wanted: int, skip: int = 0) -> None:
        self._field, self._wanted, self._skip = field, wanted, skip

    def _magic(self, head: int) -> None:
        if head & _ZSTD_SKIPPABLE_MASK == _ZSTD_SKIPPABLE:
            self._next(_FrameWalk._skippable, _ZSTD_SKIPPABLE_SIZE_BYTES)
        else:
            self._next(_FrameWalk._descriptor, 1)  # if it is not a frame, the library will say so

    def _skippable(self, head: int) -> None:
        self._next(_FrameWalk._magic, _ZSTD_MAGIC_BYTES, head)

    def _descriptor(self, head: int) -> None:
        single = head & runs.SINGLE_SEGMENT != 0
        size_code = head >> runs.CONTENT_SIZE_SHIFT
        size_bytes = 1 << size_code if size_code or single else 0
        dictionary_bytes = _DICTIONARY_ID_BYTES[head & runs.DICTIONARY]
        self._has_checksum = head & runs.CONTENT_CHECKSUM != 0
        if single:
            self._fields = dictionary_bytes, size_bytes
            self._next(_FrameWalk._content_size, dictionary_bytes + size_bytes)
        else:
            self._fields = 1, dictionary_bytes + size_bytes
            self._next(_FrameWalk._window, 1)

    def _window(self, head: int) -> None:
        base = 1 << (runs.LEAST_WINDOW_BITS + (head >> runs.WINDOW_MANTISSA_BITS))
        step = base >> runs.WINDOW_MANTISSA_BITS
        self.largest_window = max(self.largest_window, base + step * (head & runs.WINDOW_MANTISSA_MASK))
        self._next(_FrameWalk._block, runs.BLOCK_HEADER_BYTES, self._fields[1])

    def _content_size(self, head: int) -> None:
        dictionary_bytes, size_bytes = self._fields
        size = (head >> 8 * dictionary_bytes) + (_TWO_BYTE_SIZE_BASE if size_bytes == 2 else 0)
        self.largest_window = max(self.largest_window, size)  # a single segment is its own window
        self._next(_FrameWalk._block, runs.BLOCK_HEADER_BYTES)

    def _block(self, head: int) -> None:
        size = int(runs.block_bytes(head))
        if head & runs.LAST_BLOCK:
            self._frames += 1
            checksum_bytes = runs.CONTENT_CHECKSUM_BYTES if self._has_checksum else 0
            self._next(_FrameWalk._magic, _ZSTD_MAGIC_BYTES, size + checksum_bytes)
        else:
            self._next(_FrameWalk._block, runs.BLOCK_HEADER_BYTES, size)
