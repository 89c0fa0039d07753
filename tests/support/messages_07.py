"""Writes messages of Kafka 0.7: seglog only reads them."""

from __future__ import annotations

import struct
import zlib

from seglog.model import Compression


def encode_message(payload: bytes, magic: int = 1, codec: Compression = Compression.NONE) -> bytes:
    """Returns an entry, whose `payload` is already compressed; magic 0 has no codec."""
    attributes = bytes([magic, codec] if magic else [magic])
    body = attributes + struct.pack(">I", zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body
