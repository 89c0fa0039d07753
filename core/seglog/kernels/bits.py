"""Bits in a uint8 array, lowest bit of each byte first."""

from __future__ import annotations

from seglog.kernels._jit import inlined, load_byte, load_little_int64, store_byte
from seglog.kernels.arrays import Bytes, WritableBytes


@inlined
def get_bit(bits: Bytes, i: int) -> int:
    """Returns bit `i`."""
    bit: int = load_byte(bits, i >> 3) >> (i & 7) & 1
    return bit


@inlined
def any_bit(bits: Bytes, first: int, count: int) -> bool:
    """True if one of the bits [`first`, `first + count`) is set; `count` is at least 1."""
    last = first + count - 1
    from_first = 0xFF << (first & 7) & 0xFF
    to_last = 0xFF >> (7 - (last & 7))
    if first >> 3 == last >> 3:
        return bool(load_byte(bits, first >> 3) & from_first & to_last != 0)
    met = load_byte(bits, first >> 3) & from_first | load_byte(bits, last >> 3) & to_last
    i = (first >> 3) + 1
    while (last >> 3) - i >= 8:
        met |= load_little_int64(bits, i)
        i += 8
    while i < last >> 3:
        met |= load_byte(bits, i)
        i += 1
    return bool(met != 0)


@inlined
def set_bit(bits: WritableBytes, i: int) -> None:
    """Sets bit `i`."""
    store_byte(bits, i >> 3, load_byte(bits, i >> 3) | 1 << (i & 7))


@inlined
def clear_bit(bits: WritableBytes, i: int) -> None:
    """Clears bit `i`."""
    store_byte(bits, i >> 3, load_byte(bits, i >> 3) & ~(1 << (i & 7)))
