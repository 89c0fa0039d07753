"""The building blocks of kernels as LLVM instructions, for numba's JIT and for the builder of the native library.

This is the only module of the package that imports numba. Loads and stores check nothing; the kernel checks every
bound.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

import numba
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

njit = numba.njit

_I1, _BYTE, _I32, _I64, _I128 = (ir.IntType(bits) for bits in (1, 8, 32, 64, 128))
_POINTER = _BYTE.as_pointer()
_AARCH64_CRC32C = "llvm.aarch64.crc32cx"


def _crc32c_instruction() -> str | None:
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    names = {"x86_64": ("sse4.2", "llvm.x86.sse42.crc32.64.64"), "aarch64": ("crc", _AARCH64_CRC32C)}
    feature, name = names.get(machine, ("", ""))
    return name if feature and binding.get_host_cpu_features().get(feature) else None


# LLVM's name of this processor's CRC-32C instruction, or None. The builder replaces it with a function that each target
# defines, because LLVM aborts on an instruction of another architecture than the target's.
CRC32C_FUNCTION = _crc32c_instruction()


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any) -> Any:
    # kernels take only contiguous uint8 buffers, so the address is base + index
    view = context.make_array(array_type)(context, builder, array)
    return builder.bitcast(builder.gep(view.data, [index]), kind.as_pointer())


@intrinsic
def crc32c_word(typing_context: Any, crc: Any, word: Any) -> Any:
    """Uses the instruction; only meaningful on a processor that has it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if CRC32C_FUNCTION != _AARCH64_CRC32C:
            kind = ir.FunctionType(_I64, [_I64, _I64])
            function = cgutils.get_or_insert_function(builder.module, kind, CRC32C_FUNCTION)
            return builder.call(function, arguments)
        kind = ir.FunctionType(_I32, [_I32, _I64])
        function = cgutils.get_or_insert_function(builder.module, kind, CRC32C_FUNCTION)
        return builder.zext(builder.call(function, [builder.trunc(arguments[0], _I32), arguments[1]]), _I64)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Uses LLVM's prefetch."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type, _ = signature.args
        view = context.make_array(array_type)(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(view.data, [arguments[1]]), _POINTER)
        kind = ir.FunctionType(ir.VoidType(), [_POINTER, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # for writing, highest locality, data cache
        builder.call(function, [pointer, ir.Constant(_I32, 1), ir.Constant(_I32, 3), ir.Constant(_I32, 1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Uses LLVM's cttz."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(_I1, 1))

    return types.int64(types.int64), generate


def _make_multiply(fold: bool) -> Any:
    @intrinsic
    def multiply(typing_context: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            product = builder.mul(*(builder.zext(argument, _I128) for argument in arguments))
            high = builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)
            return builder.xor(high, builder.trunc(product, _I64)) if fold else high

        return types.int64(types.int64, types.int64), generate

    return multiply


def _make_load(size: int, order: str, signed: bool) -> Any:
    @intrinsic
    def load(typing_context: Any, data: Any, i: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.IntType(8 * size)
            pointer = _address(context, builder, signature.args[0], arguments[0], arguments[1], kind)
            value = builder.load(pointer)
            value.align = 1
            if size > 1 and order != sys.byteorder:
                value = builder.bswap(value)
            if size == 8:
                return value
            return builder.sext(value, _I64) if signed else builder.zext(value, _I64)

        return types.int64(data, types.int64), generate

    return load


def _make_store(size: int) -> Any:
    @intrinsic
    def store(typing_context: Any, data: Any, i: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.IntType(8 * size)
            pointer = _address(context, builder, signature.args[0], arguments[0], arguments[1], kind)
            low = arguments[2] if size == 8 else builder.trunc(arguments[2], kind)
            if size > 1 and sys.byteorder == "little":
                low = builder.bswap(low)
            builder.store(low, pointer).align = 1
            return context.get_dummy_value()

        return types.void(data, types.int64, types.int64), generate

    return store


def _make_copy(write: Any) -> Any:
    """`write` is `cgutils.raw_memcpy` or `cgutils.raw_memmove`."""

    @intrinsic
    def copy(typing_context: Any, source: Any, i: Any, target: Any, j: Any, size: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            origin = _address(context, builder, signature.args[0], arguments[0], arguments[1], _BYTE)
            goal = _address(context, builder, signature.args[2], arguments[2], arguments[3], _BYTE)
            write(builder, goal, origin, arguments[4], itemsize=1)
            return context.get_dummy_value()

        return types.void(source, types.int64, target, types.int64, types.int64), generate

    return copy


copy_bytes = _make_copy(cgutils.raw_memcpy)
move_bytes = _make_copy(cgutils.raw_memmove)


@intrinsic
def call_codec(
    typing_context: Any, address: Any, context: Any, target: Any, j: Any, room: Any, source: Any, i: Any, size: Any
) -> Any:
    """Calls through a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function_type = ir.FunctionType(_I64, [_POINTER, _POINTER, _I64, _POINTER, _I64])
        function = builder.inttoptr(arguments[0], function_type.as_pointer())
        goal = _address(context, builder, signature.args[2], arguments[2], arguments[3], _BYTE)
        origin = _address(context, builder, signature.args[5], arguments[5], arguments[6], _BYTE)
        state = builder.inttoptr(arguments[1], _POINTER)
        return builder.call(function, [state, goal, arguments[4], origin, arguments[7]])

    word = types.int64
    return word(word, word, target, word, word, source, word, word), generate


multiply_high = _make_multiply(fold=False)
multiply_fold = _make_multiply(fold=True)

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
