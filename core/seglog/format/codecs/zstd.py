"""zstd, through the standard library's module, or its backport before Python 3.14. Formats: RFC 8878.

`zstd_library` gives kernels libzstd's own functions, for runs of batches. Kafka: ZstdCompression, zstd-jni's streams.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

from seglog.errors import UnsupportedError
from seglog.format.payloads import PIECE_BYTES, Codec, DecompressionError, MemoryPayload, Payload, Pieces, expanded_into
from seglog.kernels import runs

try:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
except ModuleNotFoundError as error:  # a Python that was built on a machine without zstd's headers
    raise UnsupportedError(f"this Python has no zstd ({error}): build it where libzstd's headers are") from error

__all__ = ["CODEC", "zstd"]

_FLAGS_AT = 4  # in a frame, after its magic number
_MOST_HEADER_BYTES = 18


class _Compressors(threading.local):
    """A thread's own compressors, one a level: a compressor serves one thread at a time."""

    def __init__(self) -> None:
        self._of_levels: dict[int, zstd.ZstdCompressor] = {}

    def of(self, level: int) -> zstd.ZstdCompressor:
        """Returns the compressor of a level. Like Kafka's, its frames have neither content size nor checksum."""
        if level not in self._of_levels:
            parameters = zstd.CompressionParameter
            self._of_levels[level] = zstd.ZstdCompressor(
                options={
                    parameters.compression_level: level,
                    parameters.content_size_flag: 0,
                    parameters.checksum_flag: 0,
                }
            )
        return self._of_levels[level]


_compressors = _Compressors()


def _frame(data: memoryview, level: int, _magic: int) -> Iterator[bytes]:
    yield _compressors.of(level).compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


class _Frames(Pieces):
    """The expansion of a payload, frame after frame."""

    def __init__(self, payload: Payload) -> None:
        self._windows = [0]  # a list, because a generator that knew this object would keep it in a cycle
        self._written = 0
        super().__init__(_frames(payload, self._windows))

    def read_into(self, out: memoryview) -> int:
        """Fills `out` from one frame after another."""
        filled = super().read_into(out)
        self._written += filled
        return filled

    @property
    def held_bytes(self) -> int:
        """The rest of the current piece, and the decoder's window."""
        return super().held_bytes + min(max(self._windows), self._written)


def _frames(payload: Payload, windows: list[int]) -> Iterator[memoryview]:
    """Expands frame after frame; adds the bytes of each one's window to `windows`."""
    rest = bytes(payload.read(PIECE_BYTES))
    while True:
        frame = zstd.ZstdDecompressor()
        try:
            windows[0] = max(windows[0], _window_bytes(rest))
            while not frame.eof:
                piece = frame.decompress(rest, PIECE_BYTES)
                rest = b""
                if piece:
                    yield memoryview(piece)
                if frame.needs_input and not (rest := bytes(payload.read(PIECE_BYTES))):
                    raise DecompressionError("zstd: the stream ends within a frame")
        except zstd.ZstdError as error:
            raise DecompressionError(f"zstd: {error}") from error
        rest = frame.unused_data
        if len(rest) < _MOST_HEADER_BYTES:
            rest += bytes(payload.read(PIECE_BYTES))
        if not rest:
            return


def _window_bytes(frame: bytes) -> int:
    """Returns the window of the frame that begins with these bytes; a single segment is its own window."""
    if len(frame) < _FLAGS_AT + 2:
        return 0  # it breaks off
    if frame[_FLAGS_AT] & runs.SINGLE_SEGMENT:
        return zstd.get_frame_info(frame).decompressed_size or 0
    window = frame[_FLAGS_AT + 1]
    base = 1 << (runs.LEAST_WINDOW_BITS + (window >> runs.WINDOW_MANTISSA_BITS))
    return base + (base >> runs.WINDOW_MANTISSA_BITS) * (window & runs.WINDOW_MANTISSA_MASK)


CODEC = Codec(
    compress=_frame,
    expand=lambda payload, _magic: _Frames(payload),
    expand_into=lambda data, room, _magic: expanded_into(_Frames(MemoryPayload(data)), room),
)
