"""Every kernel that the engine calls, each call with its arrays beside guard pages, and compared with its twin.

`guard_kernels` puts a `GuardedKernel` in the place of every kernel in the namespaces of the modules that call them. So
the engine runs as it does for users, whichever way its kernels were compiled, and the sizes of its buffers are the ones
it works out itself. A call

1. copies its arrays beside guard pages (equal arrays once: what is passed twice stays one array);
2. notes in the journal which kernel is called, so that a parent knows it when this process dies;
3. runs; where a twin is asked for, the interpreted kernel runs on plain copies with every access checked, and both must
   agree in result and in every byte of every array;
4. must have left alone what its parameters say it only reads; what it wrote goes back to the caller's arrays.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import seglog
from seglog.kernels.arrays import Array
from tests.support.guarded_memory import GuardedMemory, Placed, Side, bytes_of
from tests.support.interpreted import interpreted

_PACKAGE = "seglog.kernels"
_FOLDER = Path(seglog.__file__).parent / "kernels"


class DisagreementError(AssertionError):
    """A kernel and its interpreted twin do not do the same, or a kernel wrote what it was to read."""


@cache
def kernel_names() -> frozenset[str]:
    """`module.name` of every function that `@kernel`, `@inlined` or `@apart` decorates, from the sources."""
    found = set()
    for path in sorted(_FOLDER.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                marks = {mark.id for mark in node.decorator_list if isinstance(mark, ast.Name)}
                if marks & {"kernel", "inlined", "apart"}:
                    found.add(f"{path.stem}.{node.name}")
    return frozenset(found)


@dataclass
class Guard:
    """How kernels are called: the side of the guard page, and for which calls the twin runs as well.

    `twin_every` n: for the first `twin_first` calls of each kernel and every nth call (0: never). `calls` and `twins`
    count by kernel.
    """

    side: Side = Side.AFTER
    twin_every: int = 0
    twin_first: int = 12
    journal: Callable[[str], None] = lambda text: None
    calls: Counter[str] = field(default_factory=Counter)
    twins: Counter[str] = field(default_factory=Counter)
    memory: GuardedMemory = field(default_factory=GuardedMemory)

    def wants_twin(self, call: int) -> bool:
        """Whether a kernel's call of this number (from 1) is compared."""
        return self.twin_every > 0 and (call <= self.twin_first or call % self.twin_every == 0)


class GuardedKernel:
    """One kernel, called beside guard pages."""

    def __init__(self, name: str, kernel: Callable[..., Any], guard: Guard) -> None:
        self.name, self._kernel, self._guard = name, kernel, guard
        module, function = name.split(".")
        self._twin: Callable[..., Any] = getattr(interpreted(module), function)
        hints = typing.get_type_hints(self._twin, include_extras=True)
        hints.pop("return", None)
        # of each array parameter, tuples flattened, whether the kernel writes it
        self._writes = [writes for hint in hints.values() for writes in _written(hint)]

    def __call__(self, *arguments: Any) -> Any:
        guard = self._guard
        guard.calls[self.name] += 1
        guard.journal(self.name)
        placing = _Placing(guard.memory, guard.side)
        placed = [placing.placed(argument) for argument in arguments]
        try:
            if guard.wants_twin(guard.calls[self.name]):
                result = self._compared(arguments, placing, placed)
            else:
                result = self._kernel(*placed)
            for array, writes in zip(placing.arrays, self._writes, strict=True):
                if writes and array.origin.flags.writeable:
                    array.write_back()
        finally:
            guard.memory.release()
        return result

    def _compared(self, arguments: tuple[Any, ...], placing: _Placing, placed: list[Any]) -> Any:
        self._guard.twins[self.name] += 1
        copying = _Copying()
        copies = [copying.placed(argument) for argument in arguments]
        result = self._kernel(*placed)
        written = [array for array, writes in zip(placing.arrays, self._writes, strict=True) if writes]
        for i, array in enumerate(placing.arrays):
            if not array.untouched() and not any(array is other for other in written):
                raise DisagreementError(f"{self.name} wrote array {i}, which it only reads by its parameters")
        with np.errstate(all="raise", over="ignore"):  # sums wrap in both, as Kafka's
            expected = self._twin(*copies)
        if _plain(result) != _plain(expected):
            raise DisagreementError(f"{self.name} gives {_plain(result)}, the interpreted kernel {_plain(expected)}")
        for i, (array, copy) in enumerate(zip(placing.arrays, copying.arrays, strict=True)):
            if array.array.tobytes() != copy.tobytes():
                raise DisagreementError(f"{self.name}: array {i} is not what the interpreted kernel leaves")
        return result


def _written(hint: Any) -> Iterator[bool]:
    if typing.get_origin(hint) is tuple:
        for part in typing.get_args(hint):
            yield from _written(part)
    for mark in getattr(hint, "__metadata__", ()):
        if type(mark).__name__ == Array.__name__:  # the twin's modules have a class of their own
            yield mark.writable


class _Placing:
    """The arrays of one call beside guard pages, in the order of the parameters; one given twice is placed once."""

    def __init__(self, memory: GuardedMemory, side: Side) -> None:
        self._memory, self._side = memory, side
        self._known: dict[int, Placed] = {}
        self.arrays: list[Placed] = []

    def placed(self, argument: Any) -> Any:
        if isinstance(argument, np.ndarray):
            return self._one(argument).array
        if isinstance(argument, tuple):
            return tuple([self.placed(part) for part in argument])
        return self._one(_row_array(argument)).array[0] if isinstance(argument, np.void) else argument

    def _one(self, array: np.ndarray) -> Placed:
        found = self._known.get(id(array))
        if found is None:
            found = self._known[id(array)] = self._memory.like(array, self._side)
        self.arrays.append(found)
        return found


class _Copying:
    """The same arguments in ordinary memory, for the twin."""

    def __init__(self) -> None:
        self._known: dict[int, np.ndarray] = {}
        self.arrays: list[np.ndarray] = []

    def placed(self, argument: Any) -> Any:
        if isinstance(argument, np.ndarray):
            return self._one(argument)
        if isinstance(argument, tuple):
            return tuple([self.placed(part) for part in argument])
        return self._one(_row_array(argument))[0] if isinstance(argument, np.void) else argument

    def _one(self, array: np.ndarray) -> np.ndarray:
        if id(array) not in self._known:
            own = bytes_of(array)
            if own is None:
                self._known[id(array)] = array.copy()
            else:
                self._known[id(array)] = own.copy().view(array.dtype).reshape(array.shape)
        self.arrays.append(self._known[id(array)])
        return self._known[id(array)]


def _row_array(row: np.void) -> np.ndarray:
    """A row of a table as a table of one row, over the same memory; it can be written where the row can."""
    table: np.ndarray = row.base
    at = row.__array_interface__["data"][0] - table.__array_interface__["data"][0]
    number = at // table.strides[0]
    return table[number : number + 1]


def _plain(result: Any) -> Any:
    """Integers and truth values, whoever computed them, as Python's."""
    if isinstance(result, tuple):
        return tuple(_plain(part) for part in result)
    return None if result is None else int(result)


# --- in the place of kernels ------------------------------------------------------------------------------------------


@contextmanager
def guard_kernels(guard: Guard) -> Iterator[frozenset[str]]:
    """While entered, the engine's modules call guarded kernels. Gives the names of those that some module can call."""
    for module in pkgutil.walk_packages(seglog.__path__, "seglog."):
        if not module.name.startswith(_PACKAGE):
            importlib.import_module(module.name)
    place = _Replacement(guard)
    try:
        for module in [m for name, m in sys.modules.items() if _is_caller(name)]:
            place.replace_in(module)
        yield frozenset(place.kernels_found)
    finally:
        place.undo()


def _is_caller(name: str) -> bool:
    return name.startswith(("seglog.", "seglog_cli.")) and not name.startswith(_PACKAGE)


class _Replacement:
    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._kernels: dict[int, GuardedKernel] = {}
        self._modules: dict[str, types.ModuleType] = {}
        self._before: list[tuple[types.ModuleType, str, Any]] = []
        self.kernels_found: set[str] = set()
        for name in kernel_names():
            module, attribute = name.split(".")
            kernel = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), attribute)
            self._kernels[id(kernel)] = GuardedKernel(name, kernel, guard)

    def replace_in(self, module: types.ModuleType) -> None:
        for name, value in list(vars(module).items()):
            new = self._guarded(value, attributes_of(module, name))
            if new is not value:
                self._before.append((module, name, value))
                setattr(module, name, new)

    def undo(self) -> None:
        for module, name, value in self._before:
            setattr(module, name, value)

    def _guarded(self, value: Any, used: frozenset[str]) -> Any:
        if isinstance(value, types.ModuleType) and value.__name__.startswith(_PACKAGE):
            return self._module(value, used)
        if (
            isinstance(value, types.FunctionType)
            and value.__module__.startswith(_PACKAGE)
            and id(value) not in self._kernels
        ):
            return self._function(value)
        kernel = self._kernels.get(id(value))
        if kernel is None:
            return value
        self.kernels_found.add(kernel.name)
        return kernel

    def _module(self, module: types.ModuleType, used: frozenset[str]) -> types.ModuleType:
        """A stand-in for a module of kernels, in which those that the caller names are guarded."""
        stand_in = types.ModuleType(module.__name__)
        for name, value in vars(module).items():
            setattr(stand_in, name, self._guarded(value, frozenset()) if name in used else value)
        return stand_in

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        """A plain function of a kernel module, calling guarded kernels."""
        names = {**function.__globals__}
        for name in function.__code__.co_names:
            if name in names:
                names[name] = self._guarded(names[name], frozenset())
        return types.FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, function.__closure__
        )


def attributes_of(module: types.ModuleType, name: str) -> frozenset[str]:
    """Every attribute of its global `name` that a module's source names."""
    return frozenset(attribute for of, attribute in _attributes(module) if of == name)


@cache
def _attributes(module: types.ModuleType) -> frozenset[tuple[str, str]]:
    if module.__file__ is None:
        return frozenset()
    found = [node for node in ast.walk(ast.parse(Path(module.__file__).read_text())) if isinstance(node, ast.Attribute)]
    return frozenset((node.value.id, node.attr) for node in found if isinstance(node.value, ast.Name))
