"""The interface between kernels and the way they run (`_mode`): `@kernel`, `@inlined`, loads, stores, instructions.

One source runs three ways. In the native library and under numba's JIT a kernel is machine code, without the GIL and
without Python objects. Interpreted, it is the Python function as written. The native library exports every marked
function whose name has no leading underscore; the others are compiled into their callers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

from seglog.kernels import _interpreted
from seglog.kernels._mode import INTERPRETED, JIT, MODE, NATIVE

F = TypeVar("F", bound=Callable[..., Any])

COMPILED = MODE.name != INTERPRETED

_parts: Any = importlib.import_module("seglog.kernels._numba") if MODE.name == JIT else _interpreted

# True if the processor has an instruction for CRC-32C. The native library is not loaded without it.
HAS_CRC32C_INSTRUCTION = MODE.name == NATIVE or (MODE.name == JIT and _parts.CRC32C_FUNCTION is not None)


APART: set[str] = set()  # names (`native_name`) of the functions marked `apart`


def kernel(function: F) -> F:
    """Marks a function that Python calls, or that kernels call outside their innermost loops."""
    return _found(function, nogil=True)


def inlined(function: F) -> F:
    """Marks a function that kernels call in their innermost loop: it is compiled into each caller.

    Otherwise LLVM leaves a call that passes seven words for each array, which costs more than reading a varint.
    """
    return _found(function, nogil=True, forceinline=True)


def apart(function: F) -> F:
    """Marks a kernel whose loop needs all registers: it is never inlined.

    LLVM inlines a function that has a single caller; the loop's values would then spill to memory.
    """
    APART.add(native_name(function))
    return kernel(function)


def native_name(function: Callable[..., Any]) -> str:
    """Returns the function's name in the native library: its module within this package, then its own name."""
    module = function.__module__.removeprefix(f"{__package__}.").replace(".", "__")
    return f"{module}__{function.__name__}"


def _found(function: F, **options: bool) -> F:
    if MODE.name == NATIVE:
        return cast(F, getattr(MODE.library, native_name(function), function))
    if MODE.name == JIT:
        return cast(F, _parts.njit(**options)(function))
    return function


# CRC-32C of one 8-byte word; `crc` is the running register (not inverted).
crc32c_word: Any = _parts.crc32c_word if HAS_CRC32C_INSTRUCTION else _interpreted.crc32c_word

# Asks the processor to fetch `array[index]`, which will soon be read or written.
prefetch: Any = _parts.prefetch

# The 128-bit product of two unsigned words: `multiply_high` gives the upper half (maps a hash to a range),
# `multiply_fold` both halves XORed (mixes bits, as in wyhash). Arguments and results are int64.
multiply_high: Any = _parts.multiply_high
multiply_fold: Any = _parts.multiply_fold

trailing_zeros: Any = _parts.trailing_zeros

# Calls the C function at `address` as f(context, target + j, room, source + i, size). Its result is a size_t, here an
# int64, so that zstd's error codes are negative. `target[j:j + room]` and `source[i:i + size]` must lie inside their
# buffers.
call_codec: Any = _parts.call_codec

# Integers at byte `i` of a contiguous uint8 buffer, as int64. Unlike `data[i]`, a load neither counts negative indices
# from the end nor checks a bound: it is one machine instruction (and a byte swap). The kernel checks the bounds.
load_byte: Any = _parts.load_byte
load_int8: Any = _parts.load_int8
load_int16: Any = _parts.load_int16
load_int32: Any = _parts.load_int32
load_uint32: Any = _parts.load_uint32
load_int64: Any = _parts.load_int64
load_little_int64: Any = _parts.load_little_int64

# Big-endian stores of the low bits of an integer, and memcpy between two different buffers. Unchecked, like the loads.
store_byte: Any = _parts.store_byte
store_int16: Any = _parts.store_int16
store_int32: Any = _parts.store_int32
store_int64: Any = _parts.store_int64
copy_bytes: Any = _parts.copy_bytes
# memmove: the two ranges may overlap.
move_bytes: Any = _parts.move_bytes
