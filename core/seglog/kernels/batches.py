"""Walks the log entries of every magic in a buffer.

Follows Kafka's FileLogInputStream and RecordBatchIterator (specification §2.3): the size field decides the framing,
an entry of magic below 2 (negative included) is read as a message, any other as a record batch. Checksums are not
checked here.
"""

from __future__ import annotations

import numpy as np

from seglog import layout
from seglog.kernels._jit import inlined, kernel, load_byte, load_int8, load_int16, load_int32, load_int64, load_uint32
from seglog.kernels.arrays import Bytes, WritableBatches, WritableBatchRow
from seglog.model import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP

# Why a walk stopped.
WALK_COMPLETE = 0  # exactly at `end`
WALK_FULL = 1  # no room for another row
WALK_PARTIAL = 2  # the rest is shorter than a header, or than the entry it declares
WALK_BAD_SIZE = 3  # a size that no entry can have
WALK_BAD_HEADER = 4  # an entry too small for a batch header, or with an offset that no other can follow

_LOG_OVERHEAD = layout.LOG_OVERHEAD
_LEAST_ENTRY_SIZE = layout.LEAST_ENTRY_SIZE
_RECORD_BATCH_OVERHEAD = layout.RECORD_BATCH_OVERHEAD
_HEADER_UP_TO_MAGIC = layout.HEADER_UP_TO_MAGIC
_MOST_OFFSET = (1 << 63) - 2  # the next offset must be an int64 as well


@kernel
def read_batch_row(data: Bytes, p: int, size: int, file_position: int, row: WritableBatchRow) -> None:
    """Fills `row` (layout.BATCH) from the record batch of `size` bytes at `p`."""
    base_offset = load_int64(data, p + layout.BASE_OFFSET_OFFSET)
    row["position"] = file_position
    row["base_offset"] = base_offset
    row["last_offset"] = base_offset + load_int32(data, p + layout.LAST_OFFSET_DELTA_OFFSET)
    row["base_timestamp"] = load_int64(data, p + layout.BASE_TIMESTAMP_OFFSET)
    row["max_timestamp"] = load_int64(data, p + layout.MAX_TIMESTAMP_OFFSET)
    row["producer_id"] = load_int64(data, p + layout.PRODUCER_ID_OFFSET)
    row["crc"] = load_uint32(data, p + layout.CRC_OFFSET)
    row["size"] = size
    row["count"] = load_int32(data, p + layout.RECORDS_COUNT_OFFSET)
    row["leader_epoch"] = load_int32(data, p + layout.PARTITION_LEADER_EPOCH_OFFSET)
    row["base_sequence"] = load_int32(data, p + layout.BASE_SEQUENCE_OFFSET)
    row["producer_epoch"] = load_int16(data, p + layout.PRODUCER_EPOCH_OFFSET)
    row["attributes"] = load_byte(data, p + layout.ATTRIBUTES_LOW_OFFSET)
    row["magic"] = load_int8(data, p + layout.MAGIC_OFFSET)


@kernel
def read_message_row(data: Bytes, p: int, size: int, file_position: int, row: WritableBatchRow) -> None:
    """Fills `row` (layout.BATCH) from the entry of `size` bytes at `p`, of magic 0, 1, or negative (read as 1)."""
    offset = load_int64(data, p + layout.OFFSET_OFFSET)
    magic = load_int8(data, p + layout.MESSAGE_MAGIC_OFFSET)
    timestamp = np.int64(NO_TIMESTAMP)
    if magic != 0:
        timestamp = load_int64(data, p + layout.MESSAGE_TIMESTAMP_OFFSET)
    row["position"] = file_position
    row["base_offset"] = offset
    row["last_offset"] = offset
    row["base_timestamp"] = timestamp
    row["max_timestamp"] = timestamp
    row["producer_id"] = NO_PRODUCER_ID
    row["crc"] = load_uint32(data, p + layout.MESSAGE_CRC_OFFSET)
    row["size"] = size
    row["count"] = layout.COUNT_UNKNOWN
    row["leader_epoch"] = NO_LEADER_EPOCH
    row["base_sequence"] = NO_SEQUENCE
    row["producer_epoch"] = NO_PRODUCER_EPOCH
    row["attributes"] = load_byte(data, p + layout.MESSAGE_ATTRIBUTES_OFFSET)
    row["magic"] = magic


@kernel
def _last_offset_exists(data: Bytes, p: int) -> bool:
    """True if the last offset of the record batch at `p`, and the offset after it, fit an int64."""
    base_offset = load_int64(data, p + layout.BASE_OFFSET_OFFSET)
    delta = load_int32(data, p + layout.LAST_OFFSET_DELTA_OFFSET)
    return base_offset <= _MOST_OFFSET - delta if delta >= 0 else base_offset >= -_MOST_OFFSET - delta


@inlined
def header_valid(data: Bytes, p: int, size: int) -> bool:
    """True if the entry of `size` bytes at `p` has room for its header, and an offset that another can follow."""
    if load_int8(data, p + layout.MAGIC_OFFSET) >= 2:
        return size >= _RECORD_BATCH_OVERHEAD and _last_offset_exists(data, p)
    return bool(load_int64(data, p + layout.OFFSET_OFFSET) <= _MOST_OFFSET)


@kernel
def walk_batches(data: Bytes, start: int, end: int, file_position: int, out: WritableBatches) -> tuple[int, int, int]:
    """Fills `out` (layout.BATCH) with the entries of `data[start:end]`; `data[start]` lies at `file_position`.

    Returns (rows filled, index in `data` after the last whole entry, WALK_* status).
    """
    rows = 0
    p = start
    while p < end:
        if rows == len(out):
            return rows, p, WALK_FULL
        if end - p <= _HEADER_UP_TO_MAGIC:
            return rows, p, WALK_PARTIAL
        length = load_int32(data, p + layout.LENGTH_OFFSET)
        if length < _LEAST_ENTRY_SIZE:
            return rows, p, WALK_BAD_SIZE
        size = length + _LOG_OVERHEAD
        if size > end - p:
            return rows, p, WALK_PARTIAL
        if not header_valid(data, p, size):
            return rows, p, WALK_BAD_HEADER
        if load_int8(data, p + layout.MAGIC_OFFSET) >= 2:
            read_batch_row(data, p, size, file_position + (p - start), out[rows])
        else:
            read_message_row(data, p, size, file_position + (p - start), out[rows])
        rows += 1
        p += size
    return rows, p, WALK_COMPLETE
