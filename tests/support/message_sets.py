"""Sets of old messages as producers sent them: messages of magic 0 and 1 back to back, or one wrapper of them."""

from __future__ import annotations

from collections.abc import Sequence

from seglog.format.message_set import encode_messages
from seglog.model import Compression, Record


def encode_message_set(
    records: Sequence[Record],
    base_offset: int,
    magic: int,
    codec: Compression = Compression.NONE,
    *,
    append_time_ms: int | None = None,
) -> bytes:
    """`records` as log entries back to back, or as one wrapper when there is a codec."""
    offsets = range(base_offset, base_offset + len(records))
    return encode_messages(records, offsets, magic, codec, append_time_ms=append_time_ms)
