"""Avro's object container files as values (extra `schemas`): the schema is in front, blocks of records follow.

Apache Avro 1.12, "Object Container Files". A block is decoded as an array of the file's schema, so that what bounds
values of a registry's schemas bounds these, too.
"""

from __future__ import annotations

import bz2
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import cramjam

from seglog.escaping import json_value
from seglog_ask.values import avro
from seglog_ask.values.expanding import MOST_EXPANDED, expanded_by, inflated
from seglog_ask.values.schemas import AVRO, NotDecodedError, Reader, RemarkedText, Schema, Text

_MAGIC, _SYNC_BYTES = b"Obj\x01", 16
_SCHEMA, _CODEC = "avro.schema", "avro.codec"
_MOST_METADATA = 1000  # entries
_MOST_VARINT = 10  # bytes of a number


def records(data: bytes) -> Text:
    """Returns the records of a file as a JSON list. Raises NotDecodedError for anything else."""
    file = _File(data)
    metadata = file.metadata()
    expand = _codec(metadata)
    try:
        items = json.loads(metadata[_SCHEMA]) if _SCHEMA in metadata else None
    except (ValueError, RecursionError) as error:
        raise NotDecodedError(f"the schema of the file is not JSON: {error}") from error
    if items is None:
        raise NotDecodedError("the file has no schema")
    reader = avro.reader_of(Schema(AVRO, json.dumps({"type": "array", "items": items})), {})
    texts, remark = [], ""
    for text in _blocks(file, expand, reader):
        if isinstance(text, RemarkedText):
            remark = remark or text.why
        texts.append((text.text if isinstance(text, RemarkedText) else text)[1:-1])
    items_text = f"[{','.join(text for text in texts if text)}]"
    return RemarkedText(items_text, remark) if remark else items_text


class _Block(NamedTuple):
    records: int
    data: bytes


class _File:
    """Reads a file's parts in order. Raises NotDecodedError where they end early."""

    def __init__(self, data: bytes) -> None:
        if not data.startswith(_MAGIC):
            raise NotDecodedError("it is not an Avro file")
        self._data, self._at = data, len(_MAGIC)

    def metadata(self) -> Mapping[str, bytes]:
        """Reads what precedes the blocks."""
        entries: dict[str, bytes] = {}
        while count := self._number():
            if count < 0:
                count = -count
                self._number()  # the bytes of these entries
            if len(entries) + count > _MOST_METADATA:
                raise NotDecodedError(f"the file has more than {_MOST_METADATA} properties")
            for _ in range(count):
                name = self._bytes(self._number()).decode("utf-8", "replace")
                entries[name] = self._bytes(self._number())
        self._sync = self._bytes(_SYNC_BYTES)
        return entries

    def blocks(self) -> Iterator[_Block]:
        """Reads the blocks."""
        while self._at < len(self._data):
            count, size = self._number(), self._number()
            data = self._bytes(size)
            if self._bytes(_SYNC_BYTES) != self._sync:
                raise NotDecodedError(f"the mark of the file is not behind its block that ends at byte {self._at}")
            yield _Block(count, data)

    def _bytes(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise NotDecodedError(f"the file ends early: byte {self._at} begins {size} bytes of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self) -> int:
        value = 0
        for shift in range(0, 7 * _MOST_VARINT, 7):
            byte = self._bytes(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise NotDecodedError(f"the number that ends at byte {self._at} is too long")


def _blocks(file: _File, expand: Callable[[bytes], bytes], reader: Reader) -> Iterator[str | RemarkedText]:
    left = MOST_EXPANDED
    for block in file.blocks():
        data = expand(block.data)
        left -= len(data)
        if left < 0:
            raise NotDecodedError(f"it expands to more than {MOST_EXPANDED} bytes")
        if block.records < 0:
            raise NotDecodedError(f"a block of the file has {block.records} records")
        text = reader.text((_varint(block.records) + data if block.records else data) + b"\0")
        if isinstance(text, NotDecodedError):
            raise text
        yield text


def _varint(number: int) -> bytes:
    """Returns a whole number that is not negative, as Avro writes it."""
    left, written = number << 1, bytearray()
    while left >= 0x80:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*written, left])


# --- codecs -------------------------------------------------------------------------------------------------------


def _codec(metadata: Mapping[str, bytes]) -> Callable[[bytes], bytes]:
    name = metadata.get(_CODEC, b"null").decode("utf-8", "replace")
    if name not in _CODECS:
        raise NotDecodedError(f"the file has the codec {json_value(name)}, not one of {', '.join(_CODECS)}")
    return _CODECS[name]


def _snappy(data: bytes) -> bytes:
    """Returns a block that snappy has compressed; a CRC-32 of the rest follows it."""
    try:
        size = cramjam.snappy.decompress_raw_len(data[:-4])
        if size > MOST_EXPANDED:
            raise NotDecodedError(f"it expands to more than {MOST_EXPANDED} bytes")
        expanded = bytes(cramjam.snappy.decompress_raw(data[:-4]))
    except cramjam.DecompressionError as error:
        raise NotDecodedError(f"it is not compressed by snappy: {error}") from error
    if zlib.crc32(expanded) != int.from_bytes(data[-4:], "big"):
        raise NotDecodedError("the checksum of a block of the file is wrong")
    return expanded


def _xz(data: bytes) -> bytes:
    return expanded_by(lzma.LZMADecompressor(memlimit=MOST_EXPANDED), data, MOST_EXPANDED, "xz")


def _bzip2(data: bytes) -> bytes:
    return expanded_by(bz2.BZ2Decompressor(), data, MOST_EXPANDED, "bzip2")


def _zstandard(data: bytes) -> bytes:
    from seglog.format.codecs.zstd import zstd

    return expanded_by(zstd.ZstdDecompressor(), data, MOST_EXPANDED, "zstandard")


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": inflated,
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": _bzip2,
    "xz": _xz,
}
