"""Builds messages and wrappers of magic 0 and 1 (Kafka: LegacyRecord, MemoryRecordsBuilder before 0.11).

A log entry is an offset, a size and a message. A wrapper is a message whose value is a compressed run of entries. It
has the offset of its last inner message; inner offsets are absolute in magic 0 and count from the first inner message
in magic 1. Kafka 4 no longer writes these; conversion and tests do.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from seglog import layout
from seglog.errors import AppendError, InvalidTimestampError
from seglog.format.compression import compress
from seglog.model import NO_TIMESTAMP, Compression, Record

_ENTRY = struct.Struct(">qi")
_SIZE = struct.Struct(">i")


def encode_message(
    record: Record,
    offset: int,
    magic: int,
    *,
    codec: Compression = Compression.NONE,
    append_time_ms: int | None = None,
) -> bytes:
    """Returns a log entry of `magic` 0 or 1; `codec` goes into the attributes, and the value is used as it is.

    With `append_time_ms` the message has that timestamp and the LogAppendTime bit (magic 1). Raises AppendError for a
    record with headers, which these formats lack, and InvalidTimestampError for a timestamp below -1.
    """
    if record.headers:
        raise AppendError(f"messages of magic {magic} have no headers")
    attributes = int(codec)
    stamp = b""
    if magic == 1:
        timestamp = NO_TIMESTAMP if record.timestamp is None else record.timestamp
        if append_time_ms is not None:
            attributes |= layout.TIMESTAMP_TYPE_MASK
            timestamp = append_time_ms
        if timestamp < NO_TIMESTAMP:
            raise InvalidTimestampError(f"timestamp {timestamp} is negative")
        stamp = struct.pack(">q", timestamp)
    body = bytes((magic, attributes)) + stamp + _sized(record.key) + _sized(record.value)
    message = zlib.crc32(body).to_bytes(4, "big") + body
    return _ENTRY.pack(offset, len(message)) + message


def encode_messages(
    records: Sequence[Record],
    offsets: Sequence[int],
    magic: int,
    codec: Compression,
    *,
    append_time_ms: int | None,
) -> bytes:
    """Returns `records` as log entries back to back, or with a codec as one wrapper that holds them.

    Inner messages keep their own timestamps; the wrapper has the largest of them, or the append time. In magic 1, inner
    offsets count from the first one and keep gaps.
    """
    if codec is not Compression.NONE and (magic < codec.least_magic or not records):
        raise AppendError(f"magic {magic} cannot wrap {len(records)} records with codec {codec.label}")
    begin = offsets[0] if codec is not Compression.NONE and magic == 1 else 0
    entries = b"".join(
        encode_message(record, offset - begin, magic, append_time_ms=append_time_ms)
        for record, offset in zip(records, offsets, strict=True)
    )
    if codec is Compression.NONE:
        return entries
    largest = max(NO_TIMESTAMP if record.timestamp is None else record.timestamp for record in records)
    wrapper = Record(value=compress(codec, entries, magic=magic), timestamp=largest)
    return encode_message(wrapper, offsets[-1], magic, codec=codec, append_time_ms=append_time_ms)


def _sized(data: bytes | None) -> bytes:
    return _SIZE.pack(-1) if data is None else _SIZE.pack(len(data)) + data
