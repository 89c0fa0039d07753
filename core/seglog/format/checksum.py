"""The two checksums of Kafka's files: CRC-32C (batches, producer snapshots) and CRC-32 (legacy messages).

Kafka: Crc32C, java.util.zip.CRC32. Both release the GIL. Many batches at once: `seglog.kernels.crc32c`.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from seglog.format.buffers import byte_view
from seglog.kernels import crc32c as _kernel
from seglog.kernels._mode import MODE, NATIVE

if TYPE_CHECKING:
    from seglog.format.buffers import ByteSource


def crc32c(data: ByteSource, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of `data`, unsigned; `value` is the checksum of the bytes before it."""
    view = byte_view(data)
    if value == 0 and MODE.name == NATIVE:
        return int(_kernel.crc32c(np.frombuffer(view, dtype=np.uint8), 0, len(view)))
    import crc32c as library  # importing it takes longer than most commands have for all their checksums

    return int(library.crc32c(view, value))


def crc32(data: ByteSource, value: int = 0) -> int:
    """CRC-32 (IEEE, as in zlib) of `data`, unsigned; `value` is the checksum of the bytes before it."""
    return zlib.crc32(byte_view(data), value)
