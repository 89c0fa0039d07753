"""Turns kernels into LLVM's intermediate code, with a numba that is reduced to lowering.

numba's normal result is code in memory: it optimises each function, adds wrappers for Python objects, and counts
references. `stripped_numba` removes these steps. The rest is linked into one module, with an entry per kernel:

    i32 seglog_NAME(i64 *words, i64 *results)

An array takes two words, address and count; a strided column a third, its stride in bytes; everything else takes one.
The entry returns 0, and stores the kernel's results in `results`.

Nothing here depends on a processor: CRC-32C is a call of `platforms.CRC32C_HELPER`, which each target defines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import from_dtype
from numba.core import cgutils, codegen, cpu, types
from numba.core.dispatcher import _DispatcherBase
from numba.core.registry import cpu_target

from native.platforms import ENTRY_PREFIX
from native.signatures import Kernel, Parameter, all_functions, public_kernels
from seglog import layout
from seglog.kernels.arrays import COLUMN, ROW, TABLE, Array

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_WITHOUT_PYTHON = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}


@dataclass(frozen=True)
class Lowered:
    """Lowered kernels: `code` is LLVM's assembly; `results` has each kernel's result type.

    The type is v for nothing, i for an integer, b for a truth value, or ( and the types of a tuple.
    """

    kernels: list[Kernel]
    code: str
    results: dict[str, str]


class _Library(codegen.JITCodeLibrary):  # type: ignore[misc]
    """A library of functions that is not optimised after lowering."""

    made: list[_Library] = []  # noqa: RUF012 (numba makes the objects)

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def add_linking_library(self, library: Any) -> None:
        library._ensure_finalized()
        self._linking_libraries.append(library)

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._final_module.verify()
        self._finalized = True
        _Library.made.append(self)


def _executable(_context: Any, library: Any, _description: Any, _environment: Any) -> Any:
    library._ensure_finalized()
    return [].append  # a distinct builtin: numba files overloads under it, and nothing calls it


def _call_template(dispatcher: Any, arguments: Any, keywords: Any) -> Any:
    """Drops literal types, with which numba would compile a helper for each constant; LLVM sees constants anyway."""
    plain = {name: types.unliteral(kind) for name, kind in keywords.items()}
    return _numbas_call_template(dispatcher, [types.unliteral(kind) for kind in arguments], plain)


_numbas_call_template = _DispatcherBase.get_call_template


def stripped_numba() -> None:
    """Reduces this process's numba to lowering. This cannot be undone: the builder runs in a process of its own."""
    _DispatcherBase.get_call_template = _call_template
    codegen.JITCPUCodegen._library_class = _Library
    cpu.CPUContext.get_executable = _executable


def lower(
    package: ModuleType,
    name_of: Callable[[Any], str],
    share: int = 0,
    shares: int = 1,
    apart: Collection[str] = (),
) -> Lowered:
    """Lowers the public kernels of a package, with everything they call, for the types of their parameters.

    With several `shares` it lowers only one: a run of kernels, so that those of a module stay together. Functions whose
    names are in `apart` are not inlined.
    """
    for _, dispatcher in all_functions(package):
        dispatcher.targetoptions.update(_WITHOUT_PYTHON)
    kernels = public_kernels(package, name_of)
    compiled = []
    for kernel, dispatcher in kernels[len(kernels) * share // shares : len(kernels) * (share + 1) // shares]:
        signature = tuple(_type(parameter.kind) for parameter in kernel.parameters)
        dispatcher.compile(signature)
        compiled.append((kernel, dispatcher.overloads[signature]))
    entries = _module("entries")
    results = {kernel.name: _Entry(entries, kernel, done).build() for kernel, done in compiled}
    linked = binding.parse_assembly(str(_module("seglog")))
    for part in _parts():
        linked.link_in(part)
    linked.link_in(binding.parse_assembly(cgutils.normalize_ir_text(str(entries))))
    _hide(linked)
    for function, dispatcher in all_functions(package):
        if name_of(function) in apart:
            _keep_apart(linked, dispatcher)
    linked.verify()
    return Lowered([kernel for kernel, _ in compiled], str(linked), results)


def _module(name: str) -> ir.Module:
    module = ir.Module(name)
    module.triple = binding.get_process_triple()
    module.data_layout = str(cpu_target.target_context._internal_codegen._data_layout)
    return module


def _parts() -> Iterator[Any]:
    for library in _Library.made:
        if library.name == "nrt":
            continue
        part = library._final_module.clone()
        for function in part.functions:  # linkonce would be dropped before its caller is linked in
            if not function.is_declaration and function.linkage.name != "internal":
                function.linkage = "weak_odr"
        yield part


def _hide(module: Any) -> None:
    for function in module.functions:
        if not function.is_declaration:
            if function.name.startswith(ENTRY_PREFIX):
                function.visibility = "hidden"
            else:
                function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"


def _keep_apart(module: Any, dispatcher: Any) -> None:
    for compiled in dispatcher.overloads.values():
        with contextlib.suppress(NameError):  # nothing in this share calls it
            module.get_function(compiled.fndesc.llvm_func_name).add_function_attribute("noinline")


def _item(name: str) -> Any:
    return from_dtype(getattr(layout, name) if name.isupper() else np.dtype(name))


def _type(kind: Any) -> Any:
    """Returns numba's type of a parameter. All arrays are typed as writable, so that a helper is compiled only once."""
    if isinstance(kind, Array):
        if kind.shape == ROW:
            return _item(kind.items)
        return types.Array(_item(kind.items), 2 if kind.shape == TABLE else 1, "A" if kind.shape == COLUMN else "C")
    if isinstance(kind, tuple):
        return types.Tuple([_type(part) for part in kind])
    return types.boolean if kind is bool else types.int64


class _Entry:
    """Writes the entry of one compiled kernel."""

    def __init__(self, module: ir.Module, kernel: Kernel, compiled: Any) -> None:
        self._kernel = kernel
        self._context, self._description = compiled.target_context, compiled.fndesc
        kind = ir.FunctionType(_I32, [_I64.as_pointer(), _I64.as_pointer()])
        self._function = ir.Function(module, kind, ENTRY_PREFIX + kernel.name)
        for argument in self._function.args:
            argument.add_attribute("noalias")
        self._builder = ir.IRBuilder(self._function.append_basic_block())
        self._words = 0

    def build(self) -> str:
        """Writes the entry; returns the type of the kernel's result, as in `Lowered.results`."""
        builder, description = self._builder, self._description
        pairs = zip(self._kernel.parameters, description.argtypes, strict=True)
        values = [self._argument(parameter, parameter.kind, kind) for parameter, kind in pairs]
        callee = self._context.declare_function(builder.module, description)
        status, result = self._context.call_conv.call_function(
            builder, callee, description.restype, description.argtypes, values
        )
        kinds = self._store(description.restype, result)
        builder.ret(builder.select(status.is_ok, _I32(0), _I32(1)))
        return kinds

    def _word(self) -> Any:
        self._words += 1
        return self._builder.load(self._builder.gep(self._function.args[0], [_I64(self._words - 1)]))

    def _argument(self, parameter: Parameter, kind: Any, typed: Any) -> Any:
        if isinstance(kind, tuple):
            parts = zip(kind, typed, strict=True)
            return self._context.make_tuple(self._builder, typed, [self._argument(parameter, *part) for part in parts])
        if isinstance(kind, Array):
            return self._row(typed) if kind.shape == ROW else self._array(kind, typed)
        return self._builder.icmp_signed("!=", self._word(), _I64(0)) if kind is bool else self._word()

    def _row(self, typed: Any) -> Any:
        return self._builder.inttoptr(self._word(), self._context.get_value_type(typed))

    def _array(self, kind: Array, typed: Any) -> Any:
        builder, context = self._builder, self._context
        view = context.make_array(typed)(context, builder)
        item = context.get_data_type(typed.dtype)
        size = context.get_abi_sizeof(item)
        address, count = self._word(), self._word()
        shape, strides = [count], [_I64(size)]
        if kind.shape == TABLE:
            shape, strides = [count, _I64(kind.width)], [_I64(size * kind.width), _I64(size)]
        elif kind.shape == COLUMN:
            strides = [self._word()]
        context.populate_array(
            view,
            data=builder.inttoptr(address, item.as_pointer()),
            shape=shape,
            strides=strides,
            itemsize=_I64(size),
            meminfo=None,
        )
        return view._getvalue()

    def _store(self, kind: Any, result: Any) -> str:
        if kind == types.none:
            return "v"
        if not isinstance(kind, types.BaseTuple):
            return self._store_one(0, kind, result)
        parts = [(part, self._builder.extract_value(result, i)) for i, part in enumerate(kind)]
        return "(" + "".join(self._store_one(i, *part) for i, part in enumerate(parts))

    def _store_one(self, place: int, kind: Any, value: Any) -> str:
        builder = self._builder
        letter = "i"
        if isinstance(kind, (types.Boolean, types.BooleanLiteral)):
            letter, value = "b", builder.zext(value, _I64)
        elif not isinstance(kind, types.Integer) or (kind.bitwidth == 64 and not kind.signed):
            raise TypeError(f"{self._kernel.shown} returns {kind}: a kernel returns int, bool or a tuple of them")
        elif kind.bitwidth < 64:
            value = (builder.sext if kind.signed else builder.zext)(value, _I64)
        builder.store(value, builder.gep(self._function.args[1], [_I64(place)]))
        return letter
