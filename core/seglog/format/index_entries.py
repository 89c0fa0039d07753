"""Decodes the entries of the three index files into native columns with absolute offsets.

Kafka: OffsetIndex, TimeIndex, AbortedTxn. Nothing is validated here: offsets may descend and positions may be
negative. The index classes and the verifier check that.

A broker preallocates offset and time indexes with zeros, and trims them when it closes them. When Kafka opens an
existing file, it counts every whole entry, including the zeros of a preallocated file; `used_entries` tells how many
were really written. Bytes after the last whole entry belong to no entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seglog import layout
from seglog.format.checksum import byte_view

if TYPE_CHECKING:
    from seglog.format.checksum import ByteSource

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
    """Returns OFFSET_POSITION rows (absolute offset, byte position in the `.log`), one per whole entry of `data`."""
    entries = _whole_entries(data, layout.OFFSET_INDEX_ENTRY)
    rows = np.empty(len(entries), dtype=OFFSET_POSITION)
    rows["offset"] = entries["relative_offset"]
    rows["offset"] += np.int64(base_offset)
    rows["position"] = entries["position"]
    return rows


def decode_time_index(data: ByteSource, base_offset: int) -> np.ndarray:
    """Returns TIMESTAMP_OFFSET rows (epoch milliseconds, absolute offset), one per whole entry of `data`."""
    entries = _whole_entries(data, layout.TIME_INDEX_ENTRY)
    rows = np.empty(len(entries), dtype=TIMESTAMP_OFFSET)
    rows["timestamp"] = entries["timestamp"]
    rows["offset"] = entries["relative_offset"]
    rows["offset"] += np.int64(base_offset)
    return rows


def decode_transaction_index(data: ByteSource) -> np.ndarray:
    """Returns ABORTED_TRANSACTION rows, one per whole entry of `data`; its offsets are absolute on disk."""
    entries = _whole_entries(data, layout.TRANSACTION_INDEX_ENTRY)
    rows = np.empty(len(entries), dtype=ABORTED_TRANSACTION)
    for name in ABORTED_TRANSACTION.names or ():
        rows[name] = entries[name]
    return rows


def used_entries(rows: np.ndarray, base_offset: int) -> int:
    """Returns how many rows of an offset or time index were written; the rest is a zeroed tail.

    A zero entry reads (base offset, position 0) or (timestamp 0, base offset). No entry of an offset index has position
    0, so there a zero entry is always padding. The first entry of a time index may look like padding although it was
    written, for a batch of one record at timestamp 0. Counting it as padding does no harm: it tells no more than an
    empty index.
    """
    first, second = rows.dtype.names or ()
    zero = (base_offset, 0) if first == "offset" else (0, base_offset)
    if not len(rows) or rows[-1].item() != zero:
        return len(rows)
    written = np.flatnonzero((rows[first] != zero[0]) | (rows[second] != zero[1]))
    return int(written[-1]) + 1 if len(written) else 0


def _whole_entries(data: ByteSource, dtype: np.dtype[np.void]) -> np.ndarray:
    view = byte_view(data)
    return np.frombuffer(view[: len(view) // dtype.itemsize * dtype.itemsize], dtype=dtype)
