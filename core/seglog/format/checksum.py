"""The two checksums of Kafka's files: CRC-32C (batches, producer snapshots) and CRC-32 (legacy messages).

Kafka: Crc32C, java.util.zip.CRC32. Both release the GIL. Many batches at once: `seglog.kernels.crc32c`.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import crc32c as _crc32c

from seglog.format.buffers import byte_view

if TYPE_CHECKING:
    from seglog.format.buffers import ByteSource


def crc32c(data: ByteSource, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of `data`, unsigned; `value` is the checksum of the bytes before it."""
    return int(_crc32c.crc32c(byte_view(data), value))


def crc32(data: ByteSource, value: int = 0) -> int:
    """CRC-32 (IEEE, as in zlib) of `data`, unsigned; `value` is the checksum of the bytes before it."""
    return zlib.crc32(byte_view(data), value)
