"""Arguments of the library as callers give them: a wrong type is an error that names the argument and what it takes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def integer(name: str, value: object) -> int:
    """`value` as an int (numpy's integers are ones); TypeError for anything else, a float or a text of digits too."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} is an integer, not {described(value)}") from None


def within(name: str, value: object, least: int, most: int) -> int:
    """`value` as an int from `least` to `most`; ValueError for another number, TypeError for what is none."""
    number = integer(name, value)
    if not least <= number <= most:
        raise ValueError(f"{name}: {number} is not from {least} to {most}")
    return number


def one_of(name: str, value: object, choices: Iterable[str]) -> str:
    """`value` where it is one of `choices`; ValueError for other text, TypeError for what is no text."""
    known = tuple(choices)
    if isinstance(value, str) and value in known:
        return value
    kind = ValueError if isinstance(value, str) else TypeError
    raise kind(f"{name}: {value!r} is not one of {', '.join(known)}")


def flag(name: str, value: object) -> bool:
    """`value` where it is True or False; TypeError for anything else: the text "false" is no False."""
    return instance(name, value, bool, "True or False")


def number(name: str, value: object) -> float:
    """`value` as a float; TypeError for what is no number, also for text of digits."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return float(integer(name, value))


def instance(name: str, value: object, kind: type[T], takes: str) -> T:
    """`value` where it is a `kind`; TypeError that says what the argument takes."""
    if isinstance(value, kind):
        return value
    raise TypeError(f"{name} is {takes}, not {described(value)}")


def mapping(name: str, value: object, takes: str) -> Mapping[Any, Any]:
    """`value` where it is a mapping, {} for None; TypeError for anything else, also for what is empty."""
    return {} if value is None else instance(name, value, Mapping, takes)  # type: ignore[type-abstract]


def several(name: str, value: object, takes: str) -> list[Any]:
    """The items of `value`; TypeError where it is one text, or has none."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return list(value)
    raise TypeError(f"{name} is {takes}, not {described(value)}")


def acting_as(name: str, value: T, protocol: type) -> T:
    """`value` where it has all methods of `protocol`; TypeError that names one that it lacks."""
    for method in vars(protocol):
        if not method.startswith("_") and not callable(getattr(value, method, None)):
            raise TypeError(f"{name} is a {protocol.__name__}, with a method {method}, not {described(value)}")
    return value


def described(value: object) -> str:
    """A value and its type, for an error: `'5' (str)`, cut where it is long."""
    text = repr(value)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return f"{shown} ({type(value).__name__})"
