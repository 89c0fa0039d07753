"""What all public functions share: a signature that names every argument, and results that are computed when read."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Row = TypeVar("Row")

_COMMON = """
Common arguments: `config` (values by Kafka's key, as --set takes them), `config_file` (a YAML file), `threads` (at
most), `progress` (called with the bytes read since its last call), `clock`, `fs`{more}.
"""
_OF_TIERS = "; for paths in tiered storage `local`, `tier_keys`, `remote_metadata`"


def public_verb(request: type) -> Callable[[Function], Function]:
    """`public` for a function whose own arguments are fields of its `request`."""
    given = [field for field in dataclasses.fields(request) if field.default is not dataclasses.MISSING]
    defaults = {field.name: field.default for field in given}
    return lambda function: public(function, defaults)


def public(function: Function, defaults: Mapping[str, object] = MappingProxyType({})) -> Function:
    """Lets `help` show the arguments that `**common` stands for, by name, type and purpose."""
    signature = inspect.signature(function)
    *own, common = signature.parameters.values()
    name = str(common.annotation).removeprefix("Unpack[").removesuffix("]")
    declared = function.__globals__[name]
    expanded = [
        inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(each), annotation=_written(kind))
        for each, kind in declared.__annotations__.items()
    ]
    function.__signature__ = signature.replace(parameters=[*own, *expanded])  # type: ignore[attr-defined]
    summary, *rest = (function.__doc__ or "").split("\n    >>> ", 1)
    more = _OF_TIERS if "local" in declared.__annotations__ else ""
    added = "\n    ".join(_COMMON.format(more=more).strip().splitlines())
    function.__doc__ = "\n    >>> ".join([f"{summary.rstrip()}\n\n    {added}\n", *rest])
    return function


def _written(annotation: Any) -> Any:
    return annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else annotation


class Results(Iterator[Row], Generic[Row]):
    """Rows that are computed one by one while they are iterated over. Before that, nothing has been read."""

    def __init__(self, what: str, rows: Iterator[Row]) -> None:
        self._what, self._rows = what, rows
        self._count = 0
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        try:
            row = next(self._rows)
        except StopIteration:
            self._ended = True
            raise
        self._count += 1
        return row

    def __repr__(self) -> str:
        if self._ended:
            return f"<{self._what}: all read, {self._count} rows>"
        if self._count:
            return f"<{self._what}: {self._count} rows so far, not read to the end>"
        return f"<{self._what}: nothing is read yet; iterate over it>"
