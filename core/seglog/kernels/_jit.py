"""The single door to numba: `@kernel` compiles a function, or leaves it as it is.

One source runs at two speeds. `SEGLOG_JIT=0`, or a Python without numba, runs kernels interpreted: right,
and some hundred times slower, so the second case is announced once. Compiled code is cached under
`<user cache>/seglog/<digest>`, where the digest covers every kernel source and `layout.py`: numba's own
cache looks at one file only and would keep machine code whose helper changed. Where no cache can be written
(read-only executors), kernels compile in memory.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_logger = logging.getLogger(__name__)


def _wanted() -> bool:
    return os.environ.get("SEGLOG_JIT", "1").lower() not in ("0", "false", "no", "off")


def _cache_directory() -> Path:
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for source in [*sorted(folder.glob("*.py")), folder.parent / "layout.py"]:
        digest.update(source.read_bytes())
    root = os.environ.get("SEGLOG_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "seglog" / digest.hexdigest()[:16]


try:
    if not _wanted():
        raise ImportError("SEGLOG_JIT=0")
    import numba

    COMPILED = True
except ImportError as _error:
    COMPILED = False
    if _wanted():
        _logger.warning("numba is not usable (%s): kernels run interpreted, some hundred times slower", _error)


def _writable_cache() -> str | None:
    try:
        directory = _cache_directory()
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except (OSError, RuntimeError) as error:
        _logger.info("kernels compile in memory, because no cache can be written: %s", error)
        return None
    return str(directory)


_CACHE = _writable_cache() if COMPILED else None


def kernel(function: F) -> F:
    """Compiles `function` to run without the GIL and without Python objects, or returns it when interpreted."""
    return _compiled(function, nogil=True)


def inlined(function: F) -> F:
    """A kernel that other kernels call in their innermost loop: compiled into each caller.

    Without it LLVM leaves a call whose array arguments travel as seven words each; it costs more than a varint.
    """
    return _compiled(function, nogil=True, forceinline=True)


def _compiled(function: F, **options: bool) -> F:
    if not COMPILED:
        return function
    if _CACHE is None:
        return cast(F, numba.njit(**options)(function))
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _CACHE
    try:
        return cast(F, _loading_lean(numba.njit(cache=True, **options)(function)))
    except (OSError, RuntimeError) as error:
        _logger.info("kernel %s compiles in memory: %s", function.__name__, error)
        return cast(F, numba.njit(**options)(function))
    finally:
        numba.config.CACHE_DIR = before


def _loading_lean(dispatcher: Any) -> Any:
    """Lets a compiled kernel come out of the cache without numba's registries of everything it can compile.

    numba fills them before it looks into the cache, which takes a tenth of a second of every command; a compiler
    that is really needed fills them itself. Where numba is built otherwise than expected, nothing is changed.
    """
    cache = dispatcher._cache
    if not all(hasattr(cache, name) for name in ("_load_overload", "_guard_against_spurious_io_errors")):
        return dispatcher

    def load_overload(signature: Any, target_context: Any) -> Any:
        from numba.core.runtime import rtsys

        rtsys.initialize(target_context)
        with cache._guard_against_spurious_io_errors():
            return cache._load_overload(signature, target_context)

    cache.load_overload = load_overload
    return dispatcher


def _cpu_instruction(names: dict[str, tuple[str, str]]) -> str | None:
    """LLVM's name of an instruction on this processor, by (architecture, feature), or None where there is none."""
    if not COMPILED:
        return None
    import platform

    from llvmlite import binding

    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    feature, name = names.get(machine, ("", ""))
    return name if feature and binding.get_host_cpu_features().get(feature) else None


_CRC32C_INSTRUCTION = _cpu_instruction(
    {"x86_64": ("sse4.2", "llvm.x86.sse42.crc32.64.64"), "aarch64": ("crc", "llvm.aarch64.crc32cx")}
)
HAS_CRC32C_INSTRUCTION = _CRC32C_INSTRUCTION is not None


def _crc32c_word_interpreted(crc: int, word: int) -> int:
    """CRC-32C of eight little-endian bytes, bit by bit; `crc` is the running register (not inverted)."""
    register = (int(crc) ^ int(word)) & 0xFFFFFFFFFFFFFFFF
    for _ in range(64):
        register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register


def _prefetch_interpreted(array: Any, index: int) -> None:
    """A hint to the processor's cache, which interpreted code cannot give."""


def _multiply_high_interpreted(a: int, b: int) -> int:
    """The upper 64 bits of the product of two unsigned words, as int64."""
    word = ((int(a) & 0xFFFFFFFFFFFFFFFF) * (int(b) & 0xFFFFFFFFFFFFFFFF)) >> 64
    return word - (1 << 64) if word >> 63 else word


def _multiply_fold_interpreted(a: int, b: int) -> int:
    """Both halves of the 128-bit product of two unsigned words, XORed, as int64."""
    product = (int(a) & 0xFFFFFFFFFFFFFFFF) * (int(b) & 0xFFFFFFFFFFFFFFFF)
    word = (product ^ product >> 64) & 0xFFFFFFFFFFFFFFFF
    return word - (1 << 64) if word >> 63 else word


def _trailing_zeros_interpreted(word: int) -> int:
    """How many low bits of a word that is not 0 are 0."""
    return (int(word) & -int(word)).bit_length() - 1


def _check(data: Any, i: int, size: int) -> None:
    """Interpreted loads and stores check what compiled ones trust, so tests without the JIT find a missing bound."""
    if i < 0 or size < 0 or i + size > len(data):
        raise IndexError(f"bytes {i} to {i + size} of a buffer of {len(data)}")


def _make_interpreted_load(size: int, order: Literal["big", "little"], signed: bool) -> Any:
    def load(data: Any, i: int) -> int:
        _check(data, i, size)
        return int.from_bytes(data[i : i + size].tobytes(), order, signed=signed)

    return load


def _make_interpreted_store(size: int) -> Any:
    def store(data: Any, i: int, value: int) -> None:
        _check(data, i, size)
        for k in range(size):
            data[i + k] = (int(value) >> (8 * (size - 1 - k))) & 0xFF

    return store


def _copy_bytes_interpreted(source: Any, i: int, target: Any, j: int, size: int) -> None:
    _check(source, i, size)
    _check(target, j, size)
    target[j : j + size] = source[i : i + size]


def _call_codec_interpreted(
    address: int, context: int, target: Any, j: int, room: int, source: Any, i: int, size: int
) -> int:
    import ctypes

    _check(target, j, room)
    _check(source, i, size)
    pointer, count = ctypes.c_void_p, ctypes.c_size_t
    function = ctypes.CFUNCTYPE(count, pointer, pointer, count, pointer, count)(int(address))
    result = function(int(context), target.ctypes.data + int(j), int(room), source.ctypes.data + int(i), int(size))
    return result - (1 << 64) if result >> 63 else result


if COMPILED:
    from llvmlite import ir as _ir
    from numba.core import cgutils as _cgutils
    from numba.core import types as _types
    from numba.extending import intrinsic as _intrinsic

    @_intrinsic
    def _prefetch_compiled(typing_context: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array_type, _ = signature.args
            view = context.make_array(array_type)(context, builder, arguments[0])
            pointer = builder.bitcast(builder.gep(view.data, [arguments[1]]), _ir.IntType(8).as_pointer())
            i32 = _ir.IntType(32)
            signature_ir = _ir.FunctionType(_ir.VoidType(), [_ir.IntType(8).as_pointer(), i32, i32, i32])
            function = _cgutils.get_or_insert_function(builder.module, signature_ir, "llvm.prefetch.p0")
            # for writing, highest locality, data cache
            builder.call(function, [pointer, _ir.Constant(i32, 1), _ir.Constant(i32, 3), _ir.Constant(i32, 1)])
            return context.get_dummy_value()

        return _types.void(array, _types.int64), generate

    def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any) -> Any:
        # only contiguous uint8 buffers enter a kernel: the address is base + index
        view = context.make_array(array_type)(context, builder, array)
        return builder.bitcast(builder.gep(view.data, [index]), kind.as_pointer())

    def _make_compiled_load(size: int, order: str, signed: bool) -> Any:
        @_intrinsic
        def load(typing_context: Any, data: Any, i: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                kind, i64 = _ir.IntType(8 * size), _ir.IntType(64)
                pointer = _address(context, builder, signature.args[0], arguments[0], arguments[1], kind)
                value = builder.load(pointer)
                value.align = 1
                if size > 1 and order != sys.byteorder:
                    value = builder.bswap(value)
                if size == 8:
                    return value
                return builder.sext(value, i64) if signed else builder.zext(value, i64)

            return _types.int64(data, _types.int64), generate

        return load

    def _make_compiled_store(size: int) -> Any:
        @_intrinsic
        def store(typing_context: Any, data: Any, i: Any, value: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                kind = _ir.IntType(8 * size)
                pointer = _address(context, builder, signature.args[0], arguments[0], arguments[1], kind)
                low = arguments[2] if size == 8 else builder.trunc(arguments[2], kind)
                if size > 1 and sys.byteorder == "little":
                    low = builder.bswap(low)
                builder.store(low, pointer).align = 1
                return context.get_dummy_value()

            return _types.void(data, _types.int64, _types.int64), generate

        return store

    @_intrinsic
    def _copy_bytes_compiled(typing_context: Any, source: Any, i: Any, target: Any, j: Any, size: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            byte = _ir.IntType(8)
            origin = _address(context, builder, signature.args[0], arguments[0], arguments[1], byte)
            goal = _address(context, builder, signature.args[2], arguments[2], arguments[3], byte)
            _cgutils.raw_memcpy(builder, goal, origin, arguments[4], itemsize=1)
            return context.get_dummy_value()

        return _types.void(source, _types.int64, target, _types.int64, _types.int64), generate

    @_intrinsic
    def _call_codec_compiled(
        typing_context: Any, address: Any, context: Any, target: Any, j: Any, room: Any, source: Any, i: Any, size: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            i64, pointer = _ir.IntType(64), _ir.IntType(8).as_pointer()
            function_type = _ir.FunctionType(i64, [pointer, pointer, i64, pointer, i64])
            function = builder.inttoptr(arguments[0], function_type.as_pointer())
            goal = _address(context, builder, signature.args[2], arguments[2], arguments[3], _ir.IntType(8))
            origin = _address(context, builder, signature.args[5], arguments[5], arguments[6], _ir.IntType(8))
            state = builder.inttoptr(arguments[1], pointer)
            return builder.call(function, [state, goal, arguments[4], origin, arguments[7]])

        word = _types.int64
        return word(word, word, target, word, word, source, word, word), generate

    @_intrinsic
    def _trailing_zeros_compiled(typing_context: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], _ir.Constant(_ir.IntType(1), 1))

        return _types.int64(_types.int64), generate

    def _make_multiply(fold: bool) -> Any:
        @_intrinsic
        def multiply(typing_context: Any, a: Any, b: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                i64, i128 = _ir.IntType(64), _ir.IntType(128)
                product = builder.mul(*(builder.zext(argument, i128) for argument in arguments))
                high = builder.trunc(builder.lshr(product, _ir.Constant(i128, 64)), i64)
                return builder.xor(high, builder.trunc(product, i64)) if fold else high

            return _types.int64(_types.int64, _types.int64), generate

        return multiply

    def _make_crc32c_word() -> Any:
        @_intrinsic
        def crc32c_word_compiled(typing_context: Any, crc: Any, word: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                i64, i32 = _ir.IntType(64), _ir.IntType(32)
                if _CRC32C_INSTRUCTION is not None and "x86" in _CRC32C_INSTRUCTION:
                    kind = _ir.FunctionType(i64, [i64, i64])
                    function = _cgutils.get_or_insert_function(builder.module, kind, _CRC32C_INSTRUCTION)
                    return builder.call(function, arguments)
                kind = _ir.FunctionType(i32, [i32, i64])
                function = _cgutils.get_or_insert_function(builder.module, kind, _CRC32C_INSTRUCTION)
                return builder.zext(builder.call(function, [builder.trunc(arguments[0], i32), arguments[1]]), i64)

            return _types.int64(_types.int64, _types.int64), generate

        return crc32c_word_compiled


# CRC-32C of one 8-byte word by the processor's own instruction; only meaningful where the processor has it.
crc32c_word: Any = _make_crc32c_word() if HAS_CRC32C_INSTRUCTION else _crc32c_word_interpreted

# Asks the processor to fetch `array[index]`, which a probe will write soon.
prefetch: Any = _prefetch_compiled if COMPILED else _prefetch_interpreted

# The 128-bit product of two unsigned words: its upper half (which maps a hash to a range), and both halves XORed
# (which mixes, as in wyhash). Arguments and results are int64.
multiply_high: Any = _make_multiply(fold=False) if COMPILED else _multiply_high_interpreted
multiply_fold: Any = _make_multiply(fold=True) if COMPILED else _multiply_fold_interpreted

trailing_zeros: Any = _trailing_zeros_compiled if COMPILED else _trailing_zeros_interpreted

# Calls the C function at `address`, f(context, target + j, room, source + i, size), whose result is a size_t (here an
# int64: ZSTD's errors are negative). `target[j:j + room]` and `source[i:i + size]` must lie inside their buffers.
call_codec: Any = _call_codec_compiled if COMPILED else _call_codec_interpreted

_make_load = _make_compiled_load if COMPILED else _make_interpreted_load

# Integers at byte `i` of a contiguous uint8 buffer, as int64. Unlike `data[i]` a load neither counts negative
# indices from the end nor checks anything: one machine instruction (and a byte swap), bounds are the kernel's.
load_byte: Any = _make_load(1, "big", False)
load_int8: Any = _make_load(1, "big", True)
load_int16: Any = _make_load(2, "big", True)
load_int32: Any = _make_load(4, "big", True)
load_uint32: Any = _make_load(4, "big", False)
load_int64: Any = _make_load(8, "big", True)
load_little_int64: Any = _make_load(8, "little", True)

_make_store = _make_compiled_store if COMPILED else _make_interpreted_store

# Big-endian stores of the low bits of an integer, and memcpy between two different buffers; unchecked as loads are.
store_byte: Any = _make_store(1)
store_int16: Any = _make_store(2)
store_int32: Any = _make_store(4)
store_int64: Any = _make_store(8)
copy_bytes: Any = _copy_bytes_compiled if COMPILED else _copy_bytes_interpreted
