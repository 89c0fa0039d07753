"""Finds the kernels and their parameters, by reading the functions' annotations (`seglog.kernels.arrays`)."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from seglog.kernels.arrays import Array


@dataclass(frozen=True)
class Parameter:
    """A parameter; `kind` is `int`, `bool`, an Array, or for a tuple of arrays, those of its parts."""

    name: str
    kind: type[int] | type[bool] | Array | tuple[Array, ...]


@dataclass(frozen=True)
class Kernel:
    """A function of the library; `name` is that of `seglog.kernels._jit.native_name`.

    `documentation` begins with the signature, so that `help` and `inspect.signature` can show it.
    """

    name: str
    shown: str
    documentation: str
    parameters: tuple[Parameter, ...]


def public_kernels(package: ModuleType, name_of: Callable[[Any], str]) -> list[tuple[Kernel, Any]]:
    """Returns (kernel, dispatcher) of a package's or module's functions without a leading underscore, in name order."""
    found = [
        (_kernel(name_of(function), function), dispatcher)
        for function, dispatcher in all_functions(package)
        if not function.__name__.startswith("_")
    ]
    return sorted(found, key=lambda pair: pair[0].name)


def all_functions(package: ModuleType) -> Iterator[tuple[Any, Any]]:
    """Yields (function, numba's dispatcher) of everything marked as a kernel; needs a package run by numba's JIT."""
    from numba.core.dispatcher import Dispatcher

    for module in _modules(package):
        for dispatcher in vars(module).values():
            if isinstance(dispatcher, Dispatcher) and dispatcher.py_func.__module__ == module.__name__:
                yield dispatcher.py_func, dispatcher


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    if not hasattr(package, "__path__"):
        yield package
        return
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not info.name.rpartition(".")[2].startswith("_"):
            yield importlib.import_module(info.name)


def _kernel(name: str, function: Any) -> Kernel:
    parameters = parameters_of(function)
    names = ", ".join(parameter.name for parameter in parameters)
    documentation = f"{name}({names}, /)\n--\n\n{inspect.getdoc(function) or ''}"
    return Kernel(name, name.replace("__", "."), documentation, parameters)


def parameters_of(function: Any) -> tuple[Parameter, ...]:
    """Returns a kernel's parameters. Raises TypeError, with the parameter's name, for an unsupported annotation."""
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        try:
            kind = _kind(hints.get(parameter.name))
        except TypeError as error:
            raise TypeError(f"{function.__module__}.{function.__name__}: {parameter.name}: {error}") from None
        parameters.append(Parameter(parameter.name, kind))
    return tuple(parameters)


def _kind(hint: Any) -> type[int] | type[bool] | Array | tuple[Array, ...]:
    if hint is int or hint is bool:
        return hint
    if typing.get_origin(hint) is typing.Annotated:
        for extra in hint.__metadata__:
            if isinstance(extra, Array):
                return extra
    if typing.get_origin(hint) is tuple:
        parts = tuple(_kind(part) for part in typing.get_args(hint))
        if all(isinstance(part, Array) for part in parts):
            return typing.cast("tuple[Array, ...]", parts)
    raise TypeError(f"a kernel takes int, bool and the arrays of seglog.kernels.arrays, not {hint}")
