"""Decodes the records of a v2 batch into rows of `layout.RECORD` (Kafka: DefaultRecord, DefaultRecordBatch).

The records lie uncompressed in an arena. One row is filled per record:

1. The batch's record count is limited by what its bytes can hold: a record takes at least seven bytes.
2. Each record has length, attributes, timestamp and offset deltas, key, value and headers. The body must be exactly
   as long as declared, and the last record must end where the batch ends. A record of short numbers
   (`read_short_record`) is read without checking each bound; any other one number at a time.
3. The first broken rule ends the batch with a status. Its rows so far stay, and the next batch is decoded.
"""

from __future__ import annotations

import numpy as np

from seglog import layout
from seglog.kernels._jit import inlined, kernel, load_byte
from seglog.kernels.arrays import BatchRow, Bytes, WritableRecordRow, WritableRecords
from seglog.kernels.varint import read_varint, read_varlong
from seglog.model import NO_SEQUENCE

# Statuses of a batch. Those below DECOMPRESSION_FAILED come from kernels, the others from the decoder.
RECORDS_VALID = 0
COUNT_INVALID = 1  # negative, or more records than the bytes can hold
LENGTH_INVALID = 2  # a record's length does not fit what remains
FIELD_INVALID = 3  # a malformed varint, or a key or value that leaves the record
HEADERS_INVALID = 4  # header count or a header
BODY_INVALID = 5  # the body is shorter or longer than the record's length
TRAILING_BYTES = 6  # bytes after the last record
ENTRY_INVALID = 7  # legacy: a malformed entry
OFFSET_INVALID = 8  # legacy: a relative offset above the wrapper's
COMPRESSED_INSIDE = 9  # legacy: a compressed message inside a compressed one
DECOMPRESSION_FAILED = 10
DECOMPRESSION_TOO_LARGE = 11
CODEC_UNKNOWN = 12
RECORD_TOO_LARGE = 13

LEAST_RECORD_SIZE = 7

_SHORT_HEAD = 16  # bytes that must be there for `read_short_record`
_MOST_SHORT = (1 << 14) - 1  # the largest raw number of two bytes
_NO_SHORT_SIZE = ~(_MOST_SHORT - 1)  # bits that are clear in a raw number of two bytes that is not negative
_NO_COUNT_OF_A_BYTE = ~126  # bits that are clear in a raw number of one byte that is not negative
_NOT_SHORT = (-1, 0, 0, 0, 0, 0, 0, 0, 0, 0)

_TIMESTAMP_TYPE_MASK = layout.TIMESTAMP_TYPE_MASK
MAX_VARINT_BYTES = layout.MAX_VARINT_BYTES


@kernel
def _skip_headers(data: Bytes, p: int, end: int, count: int) -> int:
    """Returns the index after `count` headers, or -1 if one is malformed."""
    for _ in range(count):
        size, p = read_varint(data, p, end)
        if p < 0 or size < 0 or size > end - p:
            return -1
        p += size
        size, p = read_varint(data, p, end)
        if p < 0:
            return -1
        if size > 0:
            if size > end - p:
                return -1
            p += size
    return p


@inlined
def _decode_record(data: Bytes, p: int, end: int, row: WritableRecordRow) -> tuple[int, int, int]:
    """Fills the spans of `row` from the record body `data[p:end]`; returns (status, timestamp delta, offset delta)."""
    p += layout.RECORD_ATTRIBUTES_BYTES
    timestamp_delta, p = read_varlong(data, p, end)
    if p < 0:
        return FIELD_INVALID, 0, 0
    offset_delta, p = read_varint(data, p, end)
    if p < 0:
        return FIELD_INVALID, 0, 0
    key_size, p = read_varint(data, p, end)
    if p < 0 or key_size > end - p:
        return FIELD_INVALID, 0, 0
    row["key_position"] = p
    row["key_size"] = max(key_size, -1)
    p += max(key_size, 0)
    value_size, p = read_varint(data, p, end)
    if p < 0 or value_size > end - p:
        return FIELD_INVALID, 0, 0
    row["value_position"] = p
    row["value_size"] = max(value_size, -1)
    p += max(value_size, 0)
    header_count, p = read_varint(data, p, end)
    if p < 0 or header_count < 0 or header_count > end - p:
        return HEADERS_INVALID, 0, 0
    row["headers_position"] = p
    row["header_count"] = header_count
    if header_count > 0:
        p = _skip_headers(data, p, end, header_count)
        if p < 0:
            return HEADERS_INVALID, 0, 0
    return (RECORDS_VALID if p == end else BODY_INVALID), timestamp_delta, offset_delta


@inlined
def read_short_record(data: Bytes, p: int, end: int) -> tuple[int, int, int, int, int, int, int, int, int, int]:
    """Reads the record at `p`, which must end by `end`, if its numbers have one or two bytes, as nearly all do.

    Returns (end of the record, timestamp delta, position after that delta, offset delta, key position, key size, value
    position, value size, position of the header count, header count). The size of a null is -1. An end of -1 means that
    the record has a longer number or is invalid, and must be read number by number. Since _SHORT_HEAD bytes are there,
    no bound is checked before the key's end: without loops and bounds, decoding takes 0.68 of the time.
    """
    if end - p < _SHORT_HEAD:
        return _NOT_SHORT
    length = load_byte(data, p)
    p += 1
    if length >= 128:
        length += (load_byte(data, p) - 1) << 7
        p += 1
    stop = p + (length >> 1)
    if length & _NO_SHORT_SIZE != 0 or stop > end:
        return _NOT_SHORT
    p += layout.RECORD_ATTRIBUTES_BYTES
    timestamp_delta = load_byte(data, p)
    p += 1
    if timestamp_delta >= 128:
        timestamp_delta += (load_byte(data, p) - 1) << 7
        p += 1
    after = p
    delta = load_byte(data, p)
    p += 1
    if delta >= 128:
        delta += (load_byte(data, p) - 1) << 7
        p += 1
    key_size = load_byte(data, p)
    p += 1
    if key_size >= 128:
        key_size += (load_byte(data, p) - 1) << 7
        p += 1
    if (timestamp_delta | delta | key_size) > _MOST_SHORT:
        return _NOT_SHORT
    key_position = p
    if key_size & 1 == 0:
        key_size >>= 1
        p += key_size
    elif key_size == 1:
        key_size = -1
    else:
        return _NOT_SHORT
    if p > stop - 2:
        return _NOT_SHORT
    value_size = load_byte(data, p)
    p += 1
    if value_size >= 128:
        value_size += (load_byte(data, p) - 1) << 7
        p += 1
    value_position = p
    if value_size & 1 == 0:
        value_size >>= 1
        p += value_size
    elif value_size == 1:
        value_size = -1
    else:
        return _NOT_SHORT
    if value_size > _MOST_SHORT >> 1 or p >= stop:
        return _NOT_SHORT
    count_position = p
    headers = load_byte(data, p)
    p += 1
    if headers != 0:
        if headers & _NO_COUNT_OF_A_BYTE != 0:
            return _NOT_SHORT
        headers >>= 1
        p = _skip_headers(data, p, stop, headers)
    if p != stop:
        return _NOT_SHORT
    timestamp = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
    delta = (delta >> 1) ^ -(delta & 1)
    return stop, timestamp, after, delta, key_position, key_size, value_position, value_size, count_position, headers


@kernel
def whole_records(data: Bytes, start: int, end: int, most: int) -> tuple[int, int, int]:
    """Finds at most `most` records that lie whole in `data[start:end]`, by their lengths alone.

    Returns (index after the last one, number of records, known bytes of the next record). The last is 0 if nothing of
    that record is there, and -1 if its length is impossible.
    """
    p = start
    for n in range(most):
        if p == end:
            return p, n, 0
        length, body = read_varint(data, p, end)
        if body < 0:
            return p, n, -1 if end - p >= MAX_VARINT_BYTES else end - p + 1
        if length < LEAST_RECORD_SIZE - 1:
            return p, n, -1
        if length > end - body:
            return p, n, body + length - p
        p = body + length
    return p, most, 0


@kernel
def decode_batch(
    data: Bytes, start: int, end: int, batch: BatchRow, number: int, out: WritableRecords, n: int
) -> tuple[int, int]:
    """Decodes the records of one batch in `data[start:end]` into `out[n:]`, with `number` in column `batch`.

    Returns (n after the last row, status). `out` must have room for `rows_needed`.
    """
    count = np.int64(batch["count"])
    if count < 0 or count * LEAST_RECORD_SIZE > end - start:
        return n, COUNT_INVALID
    base_offset = np.int64(batch["base_offset"])
    base_timestamp = np.int64(batch["base_timestamp"])
    max_timestamp = np.int64(batch["max_timestamp"])
    append_time = np.int64(batch["attributes"]) & _TIMESTAMP_TYPE_MASK != 0
    base_sequence = np.int64(batch["base_sequence"])
    p = start
    for _ in range(count):
        row = out[n]
        short = read_short_record(data, p, end)
        stop, timestamp_delta, _, delta, key_position, key_size, value_position, value_size, count_position, headers = (
            short
        )
        if stop >= 0:
            row["key_position"] = key_position
            row["key_size"] = key_size
            row["value_position"] = value_position
            row["value_size"] = value_size
            row["headers_position"] = count_position + 1
            row["header_count"] = headers
        else:
            length, body = read_varint(data, p, end)
            if body < 0 or length < LEAST_RECORD_SIZE - 1 or length > end - body:
                return n, LENGTH_INVALID
            stop = body + length
            status, timestamp_delta, delta = _decode_record(data, body, stop, row)
            if status != RECORDS_VALID:
                return n, status
        row["offset"] = base_offset + delta
        row["timestamp"] = max_timestamp if append_time else base_timestamp + timestamp_delta
        row["position"] = p
        row["size"] = stop - p
        row["batch"] = number
        row["sequence"] = NO_SEQUENCE if base_sequence < 0 else (base_sequence + delta) & layout.INT32_MAX
        n += 1
        p = stop
    if count > 0 and p != end:
        return n, TRAILING_BYTES
    return n, RECORDS_VALID
