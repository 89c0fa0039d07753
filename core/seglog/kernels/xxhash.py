"""xxHash32 with seed 0 (the XXH32 specification by Yann Collet), for the header and block checksums of an LZ4 frame."""

from __future__ import annotations

from seglog.kernels._jit import kernel
from seglog.kernels.arrays import Bytes

_PRIME_1 = 0x9E3779B1
_PRIME_2 = 0x85EBCA77
_PRIME_3 = 0xC2B2AE3D
_PRIME_4 = 0x27D4EB2F
_PRIME_5 = 0x165667B1
_MASK = 0xFFFFFFFF


@kernel
def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


@kernel
def _word(data: Bytes, p: int) -> int:
    return int(data[p]) | int(data[p + 1]) << 8 | int(data[p + 2]) << 16 | int(data[p + 3]) << 24


@kernel
def _lane(lane: int, word: int) -> int:
    return _rotate((lane + word * _PRIME_2) & _MASK, 13) * _PRIME_1 & _MASK


@kernel
def xxh32(data: Bytes, start: int, end: int) -> int:
    """Returns the xxHash32 of `data[start:end]`, unsigned. The caller checks the bounds."""
    p = start
    if end - start >= 16:
        first, second, third, fourth = (_PRIME_1 + _PRIME_2) & _MASK, _PRIME_2, 0, -_PRIME_1 & _MASK
        while end - p >= 16:
            first = _lane(first, _word(data, p))
            second = _lane(second, _word(data, p + 4))
            third = _lane(third, _word(data, p + 8))
            fourth = _lane(fourth, _word(data, p + 12))
            p += 16
        total = _rotate(first, 1) + _rotate(second, 7) + _rotate(third, 12) + _rotate(fourth, 18)
    else:
        total = _PRIME_5
    total = (total + end - start) & _MASK
    while end - p >= 4:
        total = _rotate((total + _word(data, p) * _PRIME_3) & _MASK, 17) * _PRIME_4 & _MASK
        p += 4
    while p < end:
        total = _rotate((total + int(data[p]) * _PRIME_5) & _MASK, 11) * _PRIME_1 & _MASK
        p += 1
    total = (total ^ total >> 15) * _PRIME_2 & _MASK
    total = (total ^ total >> 13) * _PRIME_3 & _MASK
    return total ^ total >> 16
