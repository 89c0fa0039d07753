"""Checks the library's arguments: a wrong type raises an error that names the argument and the type it takes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

MOST_THREADS = 1024  # that --jobs and `threads` may ask for


def integer(name: str, value: object) -> int:
    """Returns `value` as an int; accepts numpy's integers. Raises TypeError for floats, text and booleans."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {described(value)}") from None


def within(name: str, value: object, least: int, most: int) -> int:
    """Returns `value` as an int. Raises ValueError outside `least` to `most`, TypeError if it is not an integer."""
    number = integer(name, value)
    if not least <= number <= most:
        raise ValueError(f"{name}: {number} is not from {least} to {most}")
    return number


def one_of(name: str, value: object, choices: Iterable[str]) -> str:
    """Returns `value`. Raises ValueError if it is none of `choices`, TypeError if it is not text."""
    known = tuple(choices)
    if isinstance(value, str) and value in known:
        return value
    kind = ValueError if isinstance(value, str) else TypeError
    raise kind(f"{name}: {value!r} is not one of {', '.join(known)}")


def flag(name: str, value: object) -> bool:
    """Returns `value`. Raises TypeError unless it is True or False: the text "false" is not False."""
    return instance(name, value, bool, "True or False")


def number(name: str, value: object) -> float:
    """Returns `value` as a float. Raises TypeError if it is not a number; text is not."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return float(integer(name, value))


def instance(name: str, value: object, kind: type[T], takes: str) -> T:
    """Returns `value`. Raises TypeError, which says what the argument takes, if it is not a `kind`."""
    if isinstance(value, kind):
        return value
    raise TypeError(f"{name} must be {takes}, not {described(value)}")


def mapping(name: str, value: object, takes: str) -> Mapping[Any, Any]:
    """Returns `value`, or {} for None. Raises TypeError if it is not a mapping, even if it is empty."""
    return {} if value is None else instance(name, value, Mapping, takes)  # type: ignore[type-abstract]


def several(name: str, value: object, takes: str) -> list[Any]:
    """Returns the items of `value`. Raises TypeError if it is text, bytes, a mapping, or not iterable."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return list(value)
    raise TypeError(f"{name} must be {takes}, not {described(value)}")


def acting_as(name: str, value: T, protocol: type) -> T:
    """Returns `value`. Raises TypeError, which names the method, if it lacks one of `protocol`."""
    for method in vars(protocol):
        if not method.startswith("_") and not callable(getattr(value, method, None)):
            raise TypeError(f"{name} must be a {protocol.__name__}, with a method {method}, not {described(value)}")
    return value


def described(value: object) -> str:
    """Returns a value and its type for an error, such as `'5' (str)`, truncated if long."""
    text = repr(value)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return f"{shown} ({type(value).__name__})"


def in_order(first_name: str, first: int | None, end_name: str, end: int | None) -> None:
    """Raises ValueError if the end of a range, which need not have one, is before its beginning."""
    if first is not None and end is not None and first > end:
        raise ValueError(f"{end_name}: {end} is before {first_name}, {first}, and no record lies between")
