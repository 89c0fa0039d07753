"""Views of bytes, and the two checksums of Kafka's files.

CRC-32C covers batches and producer snapshots, CRC-32 legacy messages (Kafka: Crc32C, java.util.zip.CRC32). Both release
the GIL. For many batches at once there is `seglog.kernels.crc32c`.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from seglog.kernels import crc32c as _kernel
from seglog.kernels._mode import MODE, NATIVE

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    # numpy's stubs declare arrays as buffers only from Python 3.12 on.
    ByteSource: TypeAlias = ReadableBuffer | npt.NDArray[np.uint8]


def byte_view(data: ByteSource) -> memoryview:
    """Returns a flat view of `data` whose items are bytes (0 to 255); copies nothing."""
    view = memoryview(cast(Any, data))
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def crc32c(data: ByteSource, value: int = 0) -> int:
    """Returns the CRC-32C (Castagnoli) of `data`, unsigned; `value` is the checksum of the bytes before it."""
    view = byte_view(data)
    if value == 0 and MODE.name == NATIVE:
        return int(_kernel.crc32c(np.frombuffer(view, dtype=np.uint8), 0, len(view)))
    import crc32c as library  # imported late: that takes longer than most commands need for all their checksums

    return int(library.crc32c(view, value))


def crc32(data: ByteSource, value: int = 0) -> int:
    """Returns the CRC-32 (IEEE, as in zlib) of `data`, unsigned; `value` is the checksum of the bytes before it."""
    return zlib.crc32(byte_view(data), value)
