"""Bits in a uint8 array, the lowest of each byte first."""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import inlined, load_byte, store_byte


@inlined
def get_bit(bits: np.ndarray, i: int) -> int:
    """Bit `i`."""
    bit: int = load_byte(bits, i >> 3) >> (i & 7) & 1
    return bit


@inlined
def set_bit(bits: np.ndarray, i: int) -> None:
    """Sets bit `i`."""
    store_byte(bits, i >> 3, load_byte(bits, i >> 3) | 1 << (i & 7))


@inlined
def clear_bit(bits: np.ndarray, i: int) -> None:
    """Clears bit `i`."""
    store_byte(bits, i >> 3, load_byte(bits, i >> 3) & ~(1 << (i & 7)))
