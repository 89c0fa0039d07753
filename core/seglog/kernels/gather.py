"""Copies spans of an arena into Arrow's layout: adjacent values, int32 offsets, a validity bitmap.

In a segment, values lie between record headers, but Arrow's `binary` needs them adjacent: every reader pays for at
least one copy. Callers size the outputs with `measure_headers` or by summing sizes. A span that does not fit its arena
or its output becomes null; nothing outside is read or written.
"""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import copy_bytes, kernel
from seglog.kernels.arrays import Bytes, Int32Column, Int32s, WritableBytes, WritableInt32s
from seglog.kernels.bits import set_bit
from seglog.kernels.varint import read_varint


@kernel
def gather_spans(
    arena: Bytes,
    positions: Int32Column,
    sizes: Int32Column,
    out: WritableBytes,
    offsets: WritableInt32s,
    validity: WritableBytes,
) -> int:
    """Copies the spans of `sizes[i]` bytes at `positions[i]` into `out`, back to back; a negative size is null.

    `positions` and `sizes` are int32 (n, any stride), `offsets` int32 (n + 1), `validity` uint8 (at least n / 8
    bytes, zeroed; bit i is set for a value). Returns the number of nulls.
    """
    at = np.int64(0)
    nulls = 0
    offsets[0] = 0
    for i in range(len(positions)):
        position = np.int64(positions[i])
        size = np.int64(sizes[i])
        if size < 0 or position < 0 or size > len(arena) - position or size > len(out) - at:
            nulls += 1
        else:
            copy_bytes(arena, position, out, at, size)
            at += size
            set_bit(validity, i)
        offsets[i + 1] = at
    return nulls


@kernel
def measure_headers(arena: Bytes, positions: Int32Column, counts: Int32Column, ends: Int32s) -> tuple[int, int, int]:
    """Returns (number of headers, bytes of their keys, bytes of their values) of decoded records.

    For each record, `positions` is its first header, `counts` its number of headers, `ends` where the record ends.
    Malformed headers end the count of a record.
    """
    headers = np.int64(0)
    key_bytes = np.int64(0)
    value_bytes = np.int64(0)
    for i in range(len(positions)):
        p = np.int64(positions[i])
        end = min(np.int64(ends[i]), len(arena))
        if p < 0:
            continue
        for _ in range(counts[i]):
            size, p = read_varint(arena, p, end)
            if p < 0 or size < 0 or size > end - p:
                break
            key_size = size
            p += size
            size, p = read_varint(arena, p, end)
            if p < 0 or size > end - p:
                break
            headers += 1
            key_bytes += key_size
            value_bytes += max(size, 0)
            p += max(size, 0)
    return headers, key_bytes, value_bytes


@kernel
def gather_headers(
    arena: Bytes,
    positions: Int32Column,
    counts: Int32Column,
    ends: Int32s,
    list_offsets: WritableInt32s,
    list_validity: WritableBytes,
    keys: WritableBytes,
    key_offsets: WritableInt32s,
    values: WritableBytes,
    value_offsets: WritableInt32s,
    value_validity: WritableBytes,
) -> int:
    """Copies the headers of a run of records into a list of (key, value); returns the number of records without any.

    Outputs are sized by `measure_headers`; the bitmaps are zeroed. A record without headers is null, as in
    Spark's kafka source.
    """
    found = np.int64(0)
    without = 0
    key_at = np.int64(0)
    value_at = np.int64(0)
    list_offsets[0] = 0
    key_offsets[0] = 0
    value_offsets[0] = 0
    for i in range(len(positions)):
        p = np.int64(positions[i])
        end = min(np.int64(ends[i]), len(arena))
        before = found
        for _ in range(counts[i] if p >= 0 else 0):
            size, p = read_varint(arena, p, end)
            if p < 0 or size < 0 or size > end - p or size > len(keys) - key_at:
                break
            value_size, after_size = read_varint(arena, p + size, end)
            if after_size < 0 or value_size > end - after_size or value_size > len(values) - value_at:
                break
            copy_bytes(arena, p, keys, key_at, size)
            key_at += size
            p = after_size
            if value_size >= 0:
                copy_bytes(arena, p, values, value_at, value_size)
                value_at += value_size
                p += value_size
                set_bit(value_validity, found)
            found += 1
            key_offsets[found] = key_at
            value_offsets[found] = value_at
        if found > before:
            set_bit(list_validity, i)
        else:
            without += 1
        list_offsets[i + 1] = found
    return without
