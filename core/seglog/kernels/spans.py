"""Reads one v2 record in place, for kernels that need its key but no row (Kafka: DefaultRecord).

It applies the rules of `records.decode_batch`, which fills a whole row: both refuse the same records.
"""

from __future__ import annotations

from seglog import layout
from seglog.kernels._jit import inlined, kernel, load_byte, load_int64
from seglog.kernels.arrays import Bytes
from seglog.kernels.records import (
    BODY_INVALID,
    FIELD_INVALID,
    HEADERS_INVALID,
    LEAST_RECORD_SIZE,
    LENGTH_INVALID,
    RECORDS_VALID,
    _skip_headers,
    read_short_record,
)
from seglog.kernels.varint import read_varint, read_varlong

_INT64_BYTES = 8


@inlined
def read_record(data: Bytes, p: int, end: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Reads the spans of the record at `p`, which must end by `end`.

    Returns (status, end of the record, timestamp delta, position after that delta, offset delta, key position,
    key size, value size, position of the header count). The size of a null is -1.
    """
    stop, timestamp_delta, after_delta, offset_delta, key_position, key_size, _, value_size, count_position, _ = (
        read_short_record(data, p, end)
    )
    if stop >= 0:
        return (
            RECORDS_VALID,
            stop,
            timestamp_delta,
            after_delta,
            offset_delta,
            key_position,
            key_size,
            value_size,
            count_position,
        )
    length, body = read_varint(data, p, end)
    if body < 0 or length < LEAST_RECORD_SIZE - 1 or length > end - body:
        return LENGTH_INVALID, 0, 0, 0, 0, 0, 0, 0, 0
    stop = body + length
    timestamp_delta, after_delta = read_varlong(data, body + layout.RECORD_ATTRIBUTES_BYTES, stop)
    if after_delta < 0:
        return FIELD_INVALID, 0, 0, 0, 0, 0, 0, 0, 0
    offset_delta, p = read_varint(data, after_delta, stop)
    if p < 0:
        return FIELD_INVALID, 0, 0, 0, 0, 0, 0, 0, 0
    key_size, key_position = read_varint(data, p, stop)
    if key_position < 0 or key_size > stop - key_position:
        return FIELD_INVALID, 0, 0, 0, 0, 0, 0, 0, 0
    p = key_position + max(key_size, 0)
    value_size, p = read_varint(data, p, stop)
    if p < 0 or value_size > stop - p:
        return FIELD_INVALID, 0, 0, 0, 0, 0, 0, 0, 0
    count_position = p + max(value_size, 0)
    header_count, p = read_varint(data, count_position, stop)
    if p < 0 or header_count < 0 or header_count > stop - p:
        return HEADERS_INVALID, 0, 0, 0, 0, 0, 0, 0, 0
    if header_count > 0:
        p = _skip_headers(data, p, stop, header_count)
        if p < 0:
            return HEADERS_INVALID, 0, 0, 0, 0, 0, 0, 0, 0
    if p != stop:
        return BODY_INVALID, 0, 0, 0, 0, 0, 0, 0, 0
    return (
        RECORDS_VALID,
        stop,
        timestamp_delta,
        after_delta,
        offset_delta,
        key_position,
        max(key_size, -1),
        max(value_size, -1),
        count_position,
    )


@kernel
def header_as_int64(data: Bytes, p: int, end: int, name: Bytes) -> tuple[int, int]:
    """Returns (1, value) of the last header called `name` if its value has the size of an int64, else (0, 0).

    `p` is the position of the header count of a record that `read_record` has accepted; the record ends at `end`.
    """
    present = 0
    value = 0
    count, p = read_varint(data, p, end)
    for _ in range(count):
        size, p = read_varint(data, p, end)
        same = size == len(name)
        k = 0
        while same and k < size:
            same = load_byte(data, p + k) == load_byte(name, k)
            k += 1
        p += size
        size, p = read_varint(data, p, end)
        if same:
            present = 0
            value = 0
            if size == _INT64_BYTES:
                present = 1
                value = load_int64(data, p)
        p += max(size, 0)
    return present, value
