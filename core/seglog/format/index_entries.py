"""Entries of the three index files: bytes to native columns with absolute offsets.

Kafka: OffsetIndex, TimeIndex, AbortedTxn. Nothing is validated here: offsets may descend, positions may be
negative; the index classes and the verifier judge.

A broker preallocates offset and time indexes with zeros and trims them when it closes them. When Kafka opens
an existing file, every whole entry in it counts, zeros of a preallocated file included; `used_entries` tells
how many were really written. Bytes after the last whole entry belong to no entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seglog import layout
from seglog.format.buffers import byte_view

if TYPE_CHECKING:
    from seglog.format.buffers import ByteSource

# Columns in native byte order.
OFFSET_POSITION = np.dtype([("offset", np.int64), ("position", np.int32)], align=True)
TIMESTAMP_OFFSET = np.dtype([("timestamp", np.int64), ("offset", np.int64)], align=True)
ABORTED_TRANSACTION = np.dtype(
    [
        ("producer_id", np.int64),
        ("first_offset", np.int64),
        ("last_offset", np.int64),
        ("last_stable_offset", np.int64),
        ("version", np.int16),
    ],
    align=True,
)


def decode_offset_index(data: ByteSource, base_offset: int) -> np.ndarray:
    """OFFSET_POSITION rows (absolute offset, byte position in the `.log`), one a whole entry of `data`."""
    entries = _whole_entries(data, layout.OFFSET_INDEX_ENTRY)
    rows = np.empty(len(entries), dtype=OFFSET_POSITION)
    rows["offset"] = entries["relative_offset"]
    rows["offset"] += np.int64(base_offset)
    rows["position"] = entries["position"]
    return rows


def decode_time_index(data: ByteSource, base_offset: int) -> np.ndarray:
    """TIMESTAMP_OFFSET rows (epoch milliseconds, absolute offset), one a whole entry of `data`."""
    entries = _whole_entries(data, layout.TIME_INDEX_ENTRY)
    rows = np.empty(len(entries), dtype=TIMESTAMP_OFFSET)
    rows["timestamp"] = entries["timestamp"]
    rows["offset"] = entries["relative_offset"]
    rows["offset"] += np.int64(base_offset)
    return rows


def decode_transaction_index(data: ByteSource) -> np.ndarray:
    """ABORTED_TRANSACTION rows, one a whole entry of `data`; its offsets are absolute on disk already."""
    entries = _whole_entries(data, layout.TRANSACTION_INDEX_ENTRY)
    rows = np.empty(len(entries), dtype=ABORTED_TRANSACTION)
    for name in ABORTED_TRANSACTION.names or ():
        rows[name] = entries[name]
    return rows


def used_entries(rows: np.ndarray, base_offset: int) -> int:
    """How many of the rows of an offset or time index were written; the rest is a zeroed tail.

    A zero entry reads (base offset, position 0) or (timestamp 0, base offset). The first entry of an offset
    index never has position 0, so that a zero entry is always padding there. In a time index the very first
    entry may be genuine (a batch of one record at timestamp 0), which looks like padding; being
    counted as padding does no harm, as it says nothing that an empty index would not.
    """
    if rows.dtype == OFFSET_POSITION:
        padding = (rows["offset"] == base_offset) & (rows["position"] == 0)
    else:
        padding = (rows["timestamp"] == 0) & (rows["offset"] == base_offset)
    written = np.flatnonzero(~padding)
    return int(written[-1]) + 1 if len(written) else 0


def padding_entries(rows: np.ndarray, base_offset: int) -> int:
    """How many rows of an offset or time index are a zeroed tail.

    The only entry of a time index is taken for genuine: a segment of one record at timestamp 0 has it.
    """
    if rows.dtype == TIMESTAMP_OFFSET and len(rows) == 1:
        return 0
    return len(rows) - used_entries(rows, base_offset)


def _whole_entries(data: ByteSource, dtype: np.dtype[np.void]) -> np.ndarray:
    view = byte_view(data)
    return np.frombuffer(view[: len(view) // dtype.itemsize * dtype.itemsize], dtype=dtype)
