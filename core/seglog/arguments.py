"""Arguments of the library as callers give them: a wrong type is an error that names the argument and what it takes."""

from __future__ import annotations

import operator
from collections.abc import Iterable


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


def described(value: object) -> str:
    """A value and its type, for an error: `'5' (str)`, cut where it is long."""
    text = repr(value)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return f"{shown} ({type(value).__name__})"
