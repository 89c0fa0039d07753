"""`dataclass` of the standard library, whose methods are written when they are first needed.

The standard one compiles up to six functions for every class, two thirds of a millisecond each time a process starts. A
command loads 150 such classes and makes objects of a third of them. Here a class gets its fields at once, and
descriptors that have the standard library write `__init__`, `__repr__`, comparisons and hash at their first use. What a
class does is the same; only its `__dataclass_params__` do not tell what was asked for. A type checker sees the
standard one. A standard frozen dataclass cannot derive from such a class.
"""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "dataclass", "field", "fields", "replace"]

_ORDER = ("__lt__", "__le__", "__gt__", "__ge__")


class _Unwritten:
    """The method `name` of `owner`, to be written with these arguments of the standard decorator."""

    __slots__ = ("_asked", "_name", "_owner")

    def __init__(self, owner: type, name: str, asked: dict[str, Any]) -> None:
        self._owner, self._name, self._asked = owner, name, asked

    def __get__(self, instance: object, _: type | None = None) -> Any:
        method = self._owner.__dict__[self._name]
        if method is self:  # else another thread has written it meanwhile
            method = self._written()
            setattr(self._owner, self._name, method)
        return method if instance is None else method.__get__(instance)

    def _written(self) -> Any:
        """Takes the method from a class with the same fields."""
        owner, parts = self._owner, [(part.name, part.type, part) for part in fields(self._owner)]
        names: dict[str, Any] = {"__module__": owner.__module__, "__qualname__": owner.__qualname__}
        if hasattr(owner, "__post_init__"):
            names["__post_init__"] = None
        asked: dict[str, Any] = {"init": False, "repr": False, "eq": False} | self._asked
        return getattr(dataclasses.make_dataclass(owner.__name__, parts, namespace=names, **asked), self._name)


def _decorated(given: type, *, eq: bool = True, order: bool = False, repr: bool = True, **form: bool) -> Any:
    given.__doc__ = given.__doc__ or given.__name__  # else a signature is made up for it, of all fields
    cls: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=form.get("slots", False))(given)
    own, frozen = cls.__dict__, form.get("frozen", False)
    methods: dict[str, dict[str, Any]] = {"__init__": {"init": True, **form}}
    methods |= {"__repr__": {"repr": True}} if repr else {}
    methods |= {name: {"eq": True, "order": True} for name in _ORDER} if order else {}
    if eq:
        if own.get("__hash__") is None and ("__hash__" not in own or "__eq__" in own):
            cls.__hash__ = _Unwritten(cls, "__hash__", {"eq": True, "frozen": True}) if frozen else None
        methods["__eq__"] = {"eq": True}
    for name, asked in methods.items():
        if name not in own:
            setattr(cls, name, _Unwritten(cls, name, asked))
    if frozen:
        _freeze(cls, frozenset(part.name for part in fields(cls)))
    return cls


def _freeze(cls: Any, names: frozenset[str]) -> None:
    """Makes the fields of a class unchangeable; its objects can be pickled all the same."""

    def set_attribute(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = set_attribute, delete_attribute
    for name, method in (("__getstate__", _state_of), ("__setstate__", _take_state)):
        if "__slots__" in cls.__dict__ and name not in cls.__dict__:
            setattr(cls, name, method)


def _state_of(self: Any) -> list[object]:
    return [getattr(self, part.name) for part in fields(self)]


def _take_state(self: Any, state: list[object]) -> None:
    for part, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, part.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **asked):
        """Decorates a class as the standard library does: with `eq`, `order`, `repr`, `frozen` and `slots`."""
        return (lambda given: _decorated(given, **asked)) if cls is None else _decorated(cls, **asked)
