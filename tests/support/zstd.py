"""zstd frames of any form, for readers: what other writers than Kafka's make."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def frame(data: bytes, *, told: bool = True, checked: bool = False) -> bytes:
    """One frame, with its content size if `told`, with a checksum if `checked`."""
    parameters = zstd.CompressionParameter
    options = {parameters.content_size_flag: int(told), parameters.checksum_flag: int(checked)}
    return zstd.compress(data, options=options)


def stream(data: bytes, window_log: int = 0) -> bytes:
    """One frame by a writer that does not know how much is to come; a window of 0 is the library's."""
    options = {zstd.CompressionParameter.window_log: window_log} if window_log else {}
    compressor = zstd.ZstdCompressor(options=options)
    return compressor.compress(data) + compressor.flush()
