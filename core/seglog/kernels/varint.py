"""Zig-zag varints, as in protocol buffers and Kafka's ByteUtils.

A decoder returns (value, index after it). An index of -1 means that the number does not end, or has too many bytes.
Like Kafka, decoders accept over-long forms and overflowing high bits: bits beyond the type are dropped.
"""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import inlined, kernel, load_byte, store_byte
from seglog.kernels.arrays import Bytes, WritableBytes


@inlined
def read_unsigned_varint(data: Bytes, p: int, end: int) -> tuple[int, int]:
    """Reads the unsigned LEB128 number of at most 5 bytes at `p`, as 32 bits; (0, -1) if it does not end by `end`."""
    value = np.int64(0)
    shift = 0
    while p < end:
        byte = load_byte(data, p)
        p += 1
        if shift == 28:
            # Kafka: "Varint is too long" as soon as the fifth byte announces a sixth
            if byte >= 128:
                return 0, -1
            return (value | (byte << 28)) & 0xFFFFFFFF, p
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, p
        shift += 7
    return 0, -1


@inlined
def read_varint(data: Bytes, p: int, end: int) -> tuple[int, int]:
    """Reads the zig-zag varint (int32) at `p`; (0, -1) if it is malformed or does not end before `end`."""
    if p < end:
        byte = load_byte(data, p)
        if byte < 128:
            return (byte >> 1) ^ -(byte & 1), p + 1
        if p + 1 < end:  # two bytes, as for sizes from 64 to 8191: no loop
            second = load_byte(data, p + 1)
            if second < 128:
                return (second << 6 | (byte & 0x7F) >> 1) ^ -(byte & 1), p + 2
    raw, p = read_unsigned_varint(data, p, end)
    return (raw >> 1) ^ -(raw & 1), p


@inlined
def read_varlong(data: Bytes, p: int, end: int) -> tuple[int, int]:
    """Reads the zig-zag varlong (int64) at `p`; (0, -1) if it is malformed or does not end before `end`."""
    low = np.int64(0)  # bits 0 to 62 of the raw value
    top = np.int64(0)  # bit 63
    shift = 0
    while p < end:
        byte = load_byte(data, p)
        p += 1
        if shift == 63:
            if byte >= 128:
                return 0, -1
            top = byte & 1
            return (low >> 1 | top << 62) ^ -(low & 1), p
        low |= (byte & 0x7F) << shift
        if byte < 128:
            return (low >> 1) ^ -(low & 1), p
        shift += 7
    return 0, -1


@inlined
def varint_size(value: int) -> int:
    """Returns the bytes of the zig-zag varint of an int64 in its shortest form."""
    magnitude = ~value if value < 0 else value  # zig-zag is 2 * magnitude (+ 1): one more bit
    if magnitude < 1 << 6:
        return 1
    if magnitude < 1 << 13:
        return 2
    size = 3
    magnitude >>= 20
    while magnitude > 0:
        magnitude >>= 7
        size += 1
    return size


@kernel
def write_varint(data: WritableBytes, p: int, value: int) -> int:
    """Writes the shortest zig-zag varint of an int64 at `p`; returns the index after it."""
    sign = 1 if value < 0 else 0
    magnitude = ~value if value < 0 else value
    low = (magnitude & 0x3F) << 1 | sign
    magnitude >>= 6
    while magnitude > 0:
        store_byte(data, p, low | 0x80)
        p += 1
        low = magnitude & 0x7F
        magnitude >>= 7
    store_byte(data, p, low)
    return p + 1
