"""Compressed payloads, the bytes that they expand to, and what a codec is: the terms in which `codecs` is written.

A `Payload` supplies compressed bytes from memory or from a file; an `Expansion` gives the expanded ones piece by piece,
in the memory of a piece. Sizes stated by a frame or a block are trusted up to `BLOCK_LIMIT`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from seglog.format.checksum import byte_view

if TYPE_CHECKING:
    from seglog.format.checksum import ByteSource

# The most bytes that a single block may expand to, and that a payload may have if it must be read whole.
BLOCK_LIMIT = 128 << 20
# How much of a payload is read at once, and how much is expanded at once by codecs without blocks.
PIECE_BYTES = 256 << 10


class DecompressionError(ValueError):
    """A record set cannot be decompressed; `too_large` if only its output did not fit."""

    def __init__(self, reason: str, *, too_large: bool = False) -> None:
        self.reason, self.too_large = reason, too_large
        super().__init__(reason)


def larger_than(limit: int) -> DecompressionError:
    """Returns the error of data that does not fit."""
    return DecompressionError(f"the decompressed data is larger than {limit} bytes", too_large=True)


def large_block() -> DecompressionError:
    """Returns the error of a block that claims more than BLOCK_LIMIT."""
    return DecompressionError(f"a block expands to more than {BLOCK_LIMIT} bytes", too_large=True)


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


class StoredPayload:
    """The expansion of a payload that is not compressed, read directly into the caller's buffer."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload

    def read_into(self, out: memoryview) -> int:
        """Fills `out` from the payload."""
        return self._payload.read_into(out)

    @property
    def held_bytes(self) -> int:
        """Nothing."""
        return 0


class Pieces:
    """An expansion made of pieces of any size."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def read_into(self, out: memoryview) -> int:
        """Fills `out` from one piece after another."""
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
        """The rest of the current piece."""
        return self._rest.nbytes


def expanded_into(expansion: Expansion, room: memoryview) -> int:
    """Expands all of it into `room`; returns the number of bytes. Raises `DecompressionError`, also if it is more."""
    size = expansion.read_into(room)
    if size == len(room) and expansion.read_into(memoryview(bytearray(1))):
        raise larger_than(len(room))
    return size


@dataclass(frozen=True)
class Codec:
    """How a codec writes and reads a payload. Its number, name, levels and least magic are `model.Compression`'s.

    `compress(data, level, magic)` yields Kafka's framing piece by piece. `expand(payload, magic)` accepts whatever
    Kafka reads, in the memory of a piece. `expand_into(data, room, magic)` gives and refuses the same, at once: it
    returns the number of bytes put into `room`. Both raise `DecompressionError`.
    """

    compress: Callable[[memoryview, int, int], Iterator[bytes]]
    expand: Callable[[Payload, int], Expansion]
    expand_into: Callable[[memoryview, memoryview, int], int]
