"""Compression of record sets: writes the same framings as Kafka, and reads everything that Kafka reads.

The caller's buffer or `limit` bounds the output: a stream that expands beyond it ends with
`DecompressionError.too_large`, and memory never grows beyond it.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from seglog.format.checksum import byte_view
from seglog.format.payloads import Codec, DecompressionError, Expansion, Payload
from seglog.model import Compression

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seglog.format.checksum import ByteSource

_NUMBERS = frozenset(Compression)


def is_known_codec(codec: int, magic: int) -> bool:
    """True if batches of this magic, which is negative in some damaged ones, may have this codec."""
    return codec in _NUMBERS and max(magic, 0) >= Compression(codec).least_magic


@cache
def _codec(number: int) -> Codec | None:
    """Returns a codec, or None for an unknown number. Imports its module, and so the library that it uses."""
    if number not in _NUMBERS:
        return None
    codec: Codec = importlib.import_module(f"seglog.format.codecs.{Compression(number).label}").CODEC
    return codec


def _reading(number: int) -> Codec:
    codec = _codec(number)
    if codec is None:
        raise DecompressionError(f"unknown compression codec {number}")
    return codec


def decompress_into(
    codec: int, data: ByteSource, out: npt.NDArray[np.uint8], position: int = 0, *, magic: int = 2
) -> int:
    """Decompresses `data` into `out[position:]` and returns the number of bytes written.

    `magic` is that of the batch: writers of magic 0 computed a wrong LZ4 header checksum, which is therefore not
    checked. Bytes of `out` before `position` are never touched; those after the result are undefined. Raises
    `DecompressionError`, with `too_large` if the room is too small.
    """
    return _reading(codec).expand_into(byte_view(data), byte_view(out)[position:], magic)


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


def expanded(codec: int, payload: Payload, magic: int) -> Expansion:
    """Returns the expansion of a payload, for batches too large to be held. Raises `DecompressionError` for an unknown
    codec. It accepts and refuses the same streams as `decompress_into`.
    """
    return _reading(codec).expand(payload, magic)


def compress(codec: int, data: ByteSource, *, magic: int = 2, level: int | None = None) -> bytes:
    """Returns `data` as one compressed stream in Kafka's framing; a `level` of None is Kafka's default for the codec.

    `Compression.levels` has the levels. A `magic` of 0 gives LZ4 the header checksum that brokers before 0.10 wrote.
    Raises `ValueError` for an unknown codec.
    """
    return b"".join(compressed_pieces(codec, data, magic=magic, level=level))


def compressed_pieces(codec: int, data: ByteSource, *, magic: int = 2, level: int | None = None) -> Iterator[bytes]:
    """Yields the result of `compress` piece by piece; of a large stream only the current piece is held."""
    writing = _codec(codec)
    if writing is None:
        raise ValueError(f"unknown compression codec {codec}")
    levels = Compression(codec).levels
    if level is None:
        level = levels.usual if levels is not None else 0
    return writing.compress(byte_view(data), level, magic)
