"""The building blocks of kernels in plain Python: loads, stores and instructions that check every bound.

Compiled, they check nothing. Here a kernel that reads or writes outside a buffer raises an error instead of crashing.
"""

from __future__ import annotations

from typing import Any, Literal

_WORD = (1 << 64) - 1


def _as_int64(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def crc32c_word(crc: int, word: int) -> int:
    """Computes it bit by bit; `crc` is the running register (not inverted)."""
    register = (int(crc) ^ int(word)) & _WORD
    for _ in range(64):
        register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register


def prefetch(array: Any, index: int) -> None:
    """Does nothing: interpreted code cannot give the processor's cache a hint."""


def multiply_high(a: int, b: int) -> int:
    """Uses Python's integers."""
    return _as_int64(((int(a) & _WORD) * (int(b) & _WORD)) >> 64)


def multiply_fold(a: int, b: int) -> int:
    """Uses Python's integers."""
    product = (int(a) & _WORD) * (int(b) & _WORD)
    return _as_int64((product ^ product >> 64) & _WORD)


def trailing_zeros(word: int) -> int:
    """Returns the number of trailing zero bits of a word other than 0."""
    return (int(word) & -int(word)).bit_length() - 1


def _check(data: Any, i: int, size: int) -> None:
    if i < 0 or size < 0 or i + size > len(data):
        raise IndexError(f"bytes {i} to {i + size} of a buffer of {len(data)}")


def _make_load(size: int, order: Literal["big", "little"], signed: bool) -> Any:
    def load(data: Any, i: int) -> int:
        _check(data, i, size)
        return int.from_bytes(data[i : i + size].tobytes(), order, signed=signed)

    return load


def _make_store(size: int) -> Any:
    def store(data: Any, i: int, value: int) -> None:
        _check(data, i, size)
        for k in range(size):
            data[i + k] = (int(value) >> (8 * (size - 1 - k))) & 0xFF

    return store


def copy_bytes(source: Any, i: int, target: Any, j: int, size: int) -> None:
    """Copies a slice."""
    _check(source, i, size)
    _check(target, j, size)
    target[j : j + size] = source[i : i + size]


move_bytes = copy_bytes  # numpy handles an overlap itself


def call_codec(address: int, context: int, target: Any, j: int, room: int, source: Any, i: int, size: int) -> int:
    """Calls it through ctypes."""
    import ctypes

    _check(target, j, room)
    _check(source, i, size)
    pointer, count = ctypes.c_void_p, ctypes.c_size_t
    function = ctypes.CFUNCTYPE(count, pointer, pointer, count, pointer, count)(int(address))
    result = function(int(context), target.ctypes.data + int(j), int(room), source.ctypes.data + int(i), int(size))
    return _as_int64(result)


load_byte = _make_load(1, "big", False)
load_int8 = _make_load(1, "big", True)
load_int16 = _make_load(2, "big", True)
load_int32 = _make_load(4, "big", True)
load_uint32 = _make_load(4, "big", False)
load_int64 = _make_load(8, "big", True)
load_little_int64 = _make_load(8, "little", True)

store_byte = _make_store(1)
store_int16 = _make_store(2)
store_int32 = _make_store(4)
store_int64 = _make_store(8)
