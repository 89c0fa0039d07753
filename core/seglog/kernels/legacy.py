"""Decodes messages of magic 0 and 1 into rows of `layout.RECORD`, and computes their CRC-32.

Follows Kafka's LegacyRecord and AbstractLegacyRecordBatch. A log entry holds a message, or a *wrapper*: a message whose
value is a compressed run of entries. In a wrapper of magic 1, inner offsets count from its first inner message; the
wrapper has the offset of its last one, which gives the base.

As in Kafka, a message of any magic but 0 has the fields of magic 1, and only a wrapper must be of magic 0 or 1.
"""

from __future__ import annotations

import numpy as np

from seglog import layout
from seglog.kernels._jit import inlined, kernel, load_byte, load_int8, load_int32, load_int64
from seglog.kernels.arrays import Batches, BatchRow, Bytes, WritableInt64s, WritableRecordRow, WritableRecords
from seglog.kernels.records import (
    COMPRESSED_INSIDE,
    ENTRY_INVALID,
    OFFSET_INVALID,
    RECORDS_VALID,
)
from seglog.model import NO_SEQUENCE, NO_TIMESTAMP

LEAST_ENTRY = layout.LOG_OVERHEAD + layout.LEAST_ENTRY_SIZE
OUT_OF_BOUNDS = -2  # as a size; that of a null is -1

_LOG_OVERHEAD = layout.LOG_OVERHEAD
_SIZE_BYTES = layout.MESSAGE_SIZE_BYTES
_CODEC_MASK = layout.CODEC_MASK
_TIMESTAMP_TYPE_MASK = layout.TIMESTAMP_TYPE_MASK


def _crc32_tables() -> np.ndarray:
    """Returns the register after a byte and k zero bytes, int64 (8, 256), for eight bytes at a time."""
    tables = np.zeros((8, 256), dtype=np.int64)
    tables[0] = np.arange(256)
    for _ in range(8):
        tables[0] = (tables[0] >> 1) ^ np.where(tables[0] & 1, 0xEDB88320, 0)
    for k in range(1, 8):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0][tables[k - 1] & 0xFF]
    return tables


_CRC32 = _crc32_tables()


@kernel
def crc32(data: Bytes, start: int, end: int) -> int:
    """Returns the CRC-32 (zlib's) of `data[start:end]`, eight bytes per step. The caller checks the bounds."""
    crc = np.int64(0xFFFFFFFF)
    p = start
    while end - p >= 8:
        crc = (
            _CRC32[7, (crc ^ load_byte(data, p)) & 0xFF]
            ^ _CRC32[6, ((crc >> 8) ^ load_byte(data, p + 1)) & 0xFF]
            ^ _CRC32[5, ((crc >> 16) ^ load_byte(data, p + 2)) & 0xFF]
            ^ _CRC32[4, ((crc >> 24) ^ load_byte(data, p + 3)) & 0xFF]
            ^ _CRC32[3, load_byte(data, p + 4)]
            ^ _CRC32[2, load_byte(data, p + 5)]
            ^ _CRC32[1, load_byte(data, p + 6)]
            ^ _CRC32[0, load_byte(data, p + 7)]
        )
        p += 8
    while p < end:
        crc = (crc >> 8) ^ _CRC32[0, (crc ^ load_byte(data, p)) & 0xFF]
        p += 1
    return crc ^ 0xFFFFFFFF


@kernel
def message_checksums(data: Bytes, batches: Batches, file_position: int, out: WritableInt64s) -> None:
    """Fills `out` (int64) with the CRC-32 of each legacy entry and leaves other rows alone.

    Rows whose bytes are not all in `data` get -1. `data[0]` lies at `file_position`.
    """
    for i in range(len(batches)):
        if batches[i]["magic"] < 2:
            start = batches[i]["position"] - file_position
            end = start + batches[i]["size"]
            if start < 0 or end > len(data) or end - start < LEAST_ENTRY:
                out[i] = -1
            else:
                out[i] = crc32(data, start + layout.MESSAGE_MAGIC_OFFSET, end)


@inlined
def _key_at(data: Bytes, p: int) -> int:
    """Returns the position of the key's size in the entry at `p`: after the timestamp, which only magic 0 lacks."""
    if load_byte(data, p + layout.MESSAGE_MAGIC_OFFSET) == 0:
        return p + layout.MESSAGE_V0_KEY_SIZE_OFFSET
    return p + layout.MESSAGE_V1_KEY_SIZE_OFFSET


@kernel
def value_span(data: Bytes, p: int, end: int) -> tuple[int, int]:
    """Returns (position, size) of the value of the entry `data[p:end]`.

    A size of -1 is null; OUT_OF_BOUNDS means that a field leaves the entry.
    """
    key_at = _key_at(data, p)
    if end - key_at < 2 * _SIZE_BYTES:
        return 0, OUT_OF_BOUNDS
    key_size = load_int32(data, key_at)
    if key_size > end - key_at - 2 * _SIZE_BYTES:
        return 0, OUT_OF_BOUNDS
    value_at = key_at + _SIZE_BYTES + max(key_size, 0)
    value_size = load_int32(data, value_at)
    if value_size > end - value_at - _SIZE_BYTES:
        return 0, OUT_OF_BOUNDS
    return value_at + _SIZE_BYTES, max(value_size, -1)


@kernel
def _decode_message(data: Bytes, p: int, end: int, row: WritableRecordRow) -> int:
    """Fills the spans, offset and stored timestamp of `row` from the entry `data[p:end]`; returns a status."""
    value_position, value_size = value_span(data, p, end)
    if value_size == OUT_OF_BOUNDS:
        return ENTRY_INVALID
    key_at = _key_at(data, p)
    row["offset"] = load_int64(data, p + layout.OFFSET_OFFSET)
    has_timestamp = load_byte(data, p + layout.MESSAGE_MAGIC_OFFSET) != 0
    row["timestamp"] = load_int64(data, p + layout.MESSAGE_TIMESTAMP_OFFSET) if has_timestamp else NO_TIMESTAMP
    row["position"] = p
    row["size"] = end - p
    row["key_position"] = key_at + _SIZE_BYTES
    row["key_size"] = max(load_int32(data, key_at), -1)
    row["value_position"] = value_position
    row["value_size"] = value_size
    row["headers_position"] = end
    row["header_count"] = 0
    row["sequence"] = NO_SEQUENCE
    return RECORDS_VALID


@kernel
def _decode_inner(
    data: Bytes, start: int, end: int, append_time: int, number: int, out: WritableRecords, n: int
) -> tuple[int, int]:
    """Decodes the entries in `data[start:end]`; an `append_time` above -1 replaces the timestamps of magic 1."""
    p = start
    while end - p >= LEAST_ENTRY:
        length = load_int32(data, p + layout.SIZE_OFFSET)
        if length < layout.LEAST_ENTRY_SIZE:
            return n, ENTRY_INVALID
        if length > end - p - _LOG_OVERHEAD:
            return n, RECORDS_VALID  # Kafka silently drops a truncated last entry
        if load_byte(data, p + layout.MESSAGE_ATTRIBUTES_OFFSET) & _CODEC_MASK != 0:
            return n, COMPRESSED_INSIDE
        row = out[n]
        status = _decode_message(data, p, p + _LOG_OVERHEAD + length, row)
        if status != RECORDS_VALID:
            return n, status
        if append_time > -1 and load_int8(data, p + layout.MESSAGE_MAGIC_OFFSET) == 1:
            row["timestamp"] = append_time
        row["batch"] = number
        n += 1
        p += _LOG_OVERHEAD + length
    return n, RECORDS_VALID


@kernel
def whole_entries(data: Bytes, start: int, end: int, most: int) -> tuple[int, int, int]:
    """Finds at most `most` messages that lie whole in `data[start:end]`; returns the same as `records.whole_records`.

    A rest that is shorter than any message counts as nothing: Kafka silently drops a truncated last one.
    """
    p = start
    for n in range(most):
        if end - p < LEAST_ENTRY:
            return p, n, 0
        length = load_int32(data, p + layout.SIZE_OFFSET)
        if length < layout.LEAST_ENTRY_SIZE:
            return p, n, -1
        if length > end - p - _LOG_OVERHEAD:
            return p, n, _LOG_OVERHEAD + length
        p += _LOG_OVERHEAD + length
    return p, most, 0


@kernel
def decode_entry(
    data: Bytes, start: int, end: int, batch: BatchRow, number: int, out: WritableRecords, n: int
) -> tuple[int, int]:
    """Decodes one log entry. `data[start:end]` is the entry itself, or a wrapper's decompressed value.

    Returns (n after the last row, status).
    """
    attributes = np.int64(batch["attributes"])
    magic = np.int64(batch["magic"])
    if attributes & _CODEC_MASK == 0:
        status = _decode_message(data, start, end, out[n])
        if status != RECORDS_VALID:
            return n, status
        out[n]["batch"] = number
        return n + 1, RECORDS_VALID
    if magic != 0 and magic != 1:
        return n, ENTRY_INVALID
    append_time = np.int64(-1)
    if magic == 1 and attributes & _TIMESTAMP_TYPE_MASK != 0:
        append_time = np.int64(batch["max_timestamp"])
    first = n
    n, status = _decode_inner(data, start, end, append_time, number, out, n)
    if status != RECORDS_VALID:
        return first if magic == 1 else n, status  # without the last message, the offsets of the others are unknown
    if n == first:
        return n, ENTRY_INVALID
    if magic == 1:
        wrapper_offset = np.int64(batch["last_offset"])
        last = np.int64(out[n - 1]["offset"])
        base = wrapper_offset - last
        if wrapper_offset == 0:
            base = np.int64(0)  # old versions of librdkafka left the wrapper's offset at 0
        elif wrapper_offset < last:
            return first, OFFSET_INVALID
        for k in range(first, n):
            out[k]["offset"] += base
    return n, RECORDS_VALID
