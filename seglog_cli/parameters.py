"""The values of options and arguments, converted without Typer's own machinery.

Typer converts every value through pydantic, even a default, and importing that costs more than a short command's own
work. Processor time of a whole process, the least of several runs (Typer 0.29, pydantic 2.14, a machine busy with
other things): `seglog ls PARTITION` 0.49 s, with pydantic 0.63 s; `seglog dump --limit 1` 0.88 s, with it 1.18 s. The
few kinds of parameters here need none of it. What is not clearly right, and so every message about what is wrong,
remains Typer's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

Convert = Callable[[Any], Any]


class PlainCommand(TyperCommand):
    """A command whose parameters convert their values themselves."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Typer's, when all parameters are there."""
        _simplify(self.params)
        return super().make_context(*arguments, **options)


class PlainGroup(TyperGroup):
    """A group of commands whose own parameters convert their values themselves."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Typer's, when all parameters are there: those for completion are added last."""
        _simplify(self.params)
        return super().make_context(*arguments, **options)


def _simplify(parameters: Iterable[Any]) -> None:
    for parameter in parameters:
        descriptor = getattr(parameter, "type_descriptor", None)  # a Typer without it knows no pydantic
        if descriptor is not None:
            convert = converter(descriptor.annotation, descriptor.parameter_info)
            parameter.process_value = functools.partial(_process, parameter, convert, parameter.process_value)


def converter(annotation: Any, info: Any) -> Convert:
    """How a value of `annotation` becomes what the command gets.

    ValueError for values that Typer must look at, which are all of kinds that are not known here. `info` is Typer's
    description of the parameter.
    """
    if info.parser is not None:
        return _parsed(info.parser)
    if get_origin(annotation) is list:
        one = converter(get_args(annotation)[0], info)
        return lambda values: [one(value) for value in values]
    if get_origin(annotation) is Literal:
        return _chosen(get_args(annotation))
    if annotation is int:
        return _number(info.min, info.max)
    if annotation is Path and not (info.exists or info.resolve_path or info.writable or info.path_type):
        return _location
    return {str: _text, bool: _flag}.get(annotation, _unknown)


def _process(parameter: Any, convert: Convert, typers: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    several = parameter.multiple or parameter.nargs == -1
    missing = value is None or (several and not value)
    if missing and parameter.required:
        return typers(context, value)
    try:
        plain = (() if several else None) if missing else convert(value)
    except ValueError:
        return typers(context, value)
    return plain if parameter.callback is None else parameter.callback(context, parameter, plain)


def _location(value: Any) -> Path:
    from seglog.remote.routing import parse_location

    return parse_location(_text(value))


def _parsed(parse: Convert) -> Convert:
    import typer

    def convert(value: Any) -> Any:
        try:
            return parse(value)
        except typer.BadParameter as error:
            raise ValueError from error

    return convert


def _chosen(choices: tuple[Any, ...]) -> Convert:
    def convert(value: Any) -> Any:
        if value not in choices:
            raise ValueError
        return value

    return convert


def _number(least: float | None, most: float | None) -> Convert:
    def convert(value: Any) -> int:
        if not isinstance(value, int) and not (value.isascii() and value.removeprefix("-").isdigit()):
            raise ValueError
        number = int(value)
        if (least is not None and number < least) or (most is not None and number > most):
            raise ValueError
        return number

    return convert


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _unknown(value: Any) -> Any:
    raise ValueError(f"only Typer knows what {value!r} means")
