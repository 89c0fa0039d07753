"""Converts the values of options and arguments without Typer's own machinery.

Typer converts every value through pydantic, even a default, and importing pydantic costs more than a short command's
own work. CPU time of a whole process, the least of 12 runs (Typer 0.29, pydantic 2.14):

| command | with this module | with pydantic |
|---|---|---|
| `seglog ls PARTITION` | 0.24 s | 0.31 s |
| `seglog dump --limit 1 PARTITION` | 0.30 s | 0.38 s |
| `seglog read --limit 1 PARTITION` | 0.40 s | 0.47 s |

The few kinds of parameters here do not need it. Any value that is not clearly valid is left to Typer, and so is every
message about an invalid one.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from typer import TyperException
from typer.core import TyperCommand, TyperGroup

from seglog.errors import ConfigError
from seglog_cli.catalogue import ELSEWHERE, OPTIONS_ELSEWHERE
from seglog_cli.completing import whole
from seglog_cli.failures import UsageError

Convert = Callable[[Any], Any]

_COMMENT = re.compile(r"--(?:\s|[^\n=]*\n)")  # of SQL


class _Plain:
    """What a command and a group of commands have in common, in front of Typer's class."""

    params: list[Any]
    help: str | None

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Replaces the converters when all parameters are there: those for completion are added last."""
        _simplify(self.params)
        return super().make_context(*arguments, **options)  # type: ignore[misc]

    def make_parser(self, context: Any) -> Any:
        """Returns a parser that refuses an option given twice."""
        return _without_repeats(super().make_parser(context), context)  # type: ignore[misc]

    def get_short_help_str(self, limit: int = 45) -> str:
        """Returns the summary as a shell shows it, whatever its length."""
        del limit
        return whole(" ".join((self.help or "").split("\n\n")[0].split()))


class PlainCommand(_Plain, TyperCommand):
    """A command whose parameters convert their own values."""

    def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
        """Takes a query that begins with a comment for what it is, not for an option."""
        if any(one.name == "query" for one in self.params):
            arguments = [f"\n{one}" if _COMMENT.match(one) else one for one in arguments]
        return super().parse_args(context, arguments)


class PlainGroup(_Plain, TyperGroup):
    """A group of commands whose own parameters convert their own values."""

    def resolve_command(self, context: Any, arguments: list[str]) -> Any:
        """Names the command that does what other tools have this name for."""
        meant = ELSEWHERE.get(arguments[0], "") if context.parent is None else ""
        if meant and arguments[0] not in self.commands and not context.resilient_parsing:
            raise UsageError(f"No such command '{arguments[0]}': that is seglog {meant} (see seglog --help)")
        return super().resolve_command(context, arguments)


def _without_repeats(parser: Any, context: Any) -> Any:
    """Lets a parser refuse an option that takes one value and was given twice: its last value would win in silence.

    A flag that is repeated says the same again, except together with its opposite.
    """
    parse = parser.parse_args

    def parse_once(args: list[str]) -> Any:
        try:
            values, rest, order = parse(args=args)
        except TyperException as error:
            meant = OPTIONS_ELSEWHERE.get(getattr(error, "option_name", ""), "")
            if any(meant.startswith(f"{name} ") for parameter in context.command.params for name in parameter.opts):
                raise UsageError(f"{error.message} (here it is {meant})") from error
            raise
        for parameter in dict.fromkeys(order):
            is_single = parameter.param_type_name == "option" and not parameter.multiple and not parameter.count
            if is_single and not parameter.is_flag and order.count(parameter) > 1 and not context.resilient_parsing:
                raise UsageError(f"{parameter.opts[0]} was given more than once, and takes one value")
        return values, rest, order

    parser.parse_args = parse_once
    return parser


def with_default(name: str) -> type[PlainGroup]:
    """Returns a group in which the command `name` is meant where none is named: `seglog config PATH`."""

    class WithDefault(PlainGroup):
        def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
            first = arguments[0] if arguments else "-"
            is_path = "/" in first or os.path.lexists(first)
            names_none = context.resilient_parsing or first in ("--help", "-h")  # a shell asks for the commands' names
            if first not in self.commands and not names_none:
                if not is_path and not first.startswith("-"):
                    commands = " or ".join(self.commands)
                    raise UsageError(
                        f"{self.name}: {first!r} is neither a file or directory nor a command ({commands})"
                    )
                arguments = [name, *arguments]
            return super().parse_args(context, arguments)

    return WithDefault


def _simplify(parameters: Iterable[Any]) -> None:
    for parameter in parameters:
        descriptor = getattr(parameter, "type_descriptor", None)  # absent in a Typer without pydantic
        if descriptor is not None:
            convert = converter(descriptor.annotation, descriptor.parameter_info)
            parameter.process_value = functools.partial(_process, parameter, convert, parameter.process_value)


def converter(annotation: Any, info: Any) -> Convert:
    """Returns the function that converts a value of type `annotation`.

    It raises ValueError for values that Typer must handle, and for every value of a type that is unknown here. `info`
    is Typer's description of the parameter.
    """
    if info.parser is not None:
        return _parsed(info.parser)
    if get_origin(annotation) is list and get_args(annotation)[0] is Path:
        return _locations
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


def _process(parameter: Any, convert: Convert, by_typer: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    several = parameter.multiple or parameter.nargs == -1
    missing = value is None or (several and not value)
    if missing and parameter.required:
        return by_typer(context, value)
    try:
        plain = (() if several else None) if missing else convert(value)
    except ValueError:
        return by_typer(context, value)
    except ConfigError as error:  # text that cannot be a path
        if parameter.param_type_name != "option":
            raise
        raise UsageError(f"{parameter.opts[0]}: {error}") from error
    return plain if parameter.callback is None else parameter.callback(context, parameter, plain)


def _location(value: Any) -> Path:
    from seglog.locations import parse_location

    return parse_location(_text(value))


def _locations(values: Any) -> list[Path]:
    """Returns the paths, with patterns expanded that the shell has left: those of URLs, and those in quotes."""
    found: list[Path] = []
    for value in values:
        if not any(mark in _text(value) for mark in "*?[{"):
            found.append(_location(value))
            continue
        from seglog.scan.patterns import matching_paths
        from seglog.storage.routing import machine_files

        found += matching_paths(machine_files(), value)
    return found


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
    raise ValueError(f"{value!r} is left to Typer")
