"""Bits in a uint8 array, the lowest of each byte first."""

from __future__ import annotations

from seglog.kernels._jit import inlined, load_byte, store_byte
from seglog.kernels.arrays import Bytes, WritableBytes


@inlined
def get_bit(bits: Bytes, i: int) -> int:
    """Bit `i`."""
    bit: int = load_byte(bits, i >> 3) >> (i & 7) & 1
    return bit


@inlined
def set_bit(bits: WritableBytes, i: int) -> None:
    """Sets bit `i`."""
    store_byte(bits, i >> 3, load_byte(bits, i >> 3) | 1 << (i & 7))


@inlined
def clear_bit(bits: WritableBytes, i: int) -> None:
    """Clears bit `i`."""
    store_byte(bits, i >> 3, load_byte(bits, i >> 3) & ~(1 << (i & 7)))
