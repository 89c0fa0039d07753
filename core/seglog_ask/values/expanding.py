"""Values that were compressed by themselves, expanded within bounds: a few bytes may claim to be gigabytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

from seglog_ask.values.schemas import NotDecodedError

MOST_EXPANDED = 64 << 20  # of one value, in bytes
_GZIP, _BARE = 16 + zlib.MAX_WBITS, -zlib.MAX_WBITS
_GZIP_BEGINS = b"\x1f\x8b"


class Expanding(Protocol):
    """A decompressor of Python's library: zlib's, bz2's or lzma's."""

    @property
    def eof(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def gunzipped(data: bytes) -> bytes:
    """Returns what gzip has compressed, all of its members. Raises NotDecodedError for anything else."""
    return b"".join(_members(data))


def _members(data: bytes) -> Iterator[bytes]:
    left = MOST_EXPANDED
    while data:
        if not data.startswith(_GZIP_BEGINS):
            problem = "it is not compressed by gzip" if left == MOST_EXPANDED else f"{len(data)} bytes follow"
            raise NotDecodedError(problem)
        member = zlib.decompressobj(_GZIP)
        expanded = expanded_by(member, data, left, "gzip")
        yield expanded
        left, data = left - len(expanded), member.unused_data


def inflated(data: bytes) -> bytes:
    """Returns what deflate has compressed, without a frame. Raises NotDecodedError for anything else."""
    return expanded_by(zlib.decompressobj(_BARE), data, MOST_EXPANDED, "deflate")


def expanded_by(decompressor: Expanding, data: bytes, most: int, named: str) -> bytes:
    """Returns what a new decompressor makes of data, at most so many bytes. Raises NotDecodedError if that is not all
    of it, or more.
    """
    try:
        expanded = decompressor.decompress(data, most + 1)
    except Exception as error:
        raise NotDecodedError(f"it is not compressed by {named}: {error}") from error
    if len(expanded) > most:
        raise NotDecodedError(f"it expands to more than {MOST_EXPANDED} bytes")
    if not decompressor.eof:
        raise NotDecodedError(f"what {named} has compressed ends early")
    return expanded
