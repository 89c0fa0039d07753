"""`--help`, and the description of a command from which it and the manual pages are written.

`describe` takes a command of Typer's tree apart: synopsis, arguments, options, and the docstring's prose and examples.
`help_text` makes the text of `--help` of it, and `manual` a page, so they cannot differ. The first paragraph of a
docstring is the summary; a last paragraph that begins with `Examples:` holds the examples.

Typer's own help is not used: at 80 columns it cuts 11 of the 33 summaries short, fills examples into paragraphs, lists
a command's own options among those of every command, and takes twice as long.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from seglog_cli.help_text import Description, Term, render, render_overview, show


def describe(command: Any, path: str) -> Description:
    """Takes a command of Typer's tree apart; `path` is how it is called."""
    shared: Mapping[str, Sequence[str]] = getattr(command.callback, "shared_options", {})
    apart = {name for names in shared.values() for name in names}
    summary, paragraphs, examples = split_docstring(command.help or "")
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    children = getattr(command, "commands", {})
    pieces = [
        path,
        *(["COMMAND"] if children else []),
        "[OPTION]...",
        *(_written(p, True) for p in arguments),
        *(f"{_names(p)[0]} {p.metavar}" for p in options if p.required),
    ]
    return Description(
        path=path,
        synopsis=" ".join(pieces),
        summary=summary,
        paragraphs=paragraphs,
        examples=examples,
        arguments=tuple(Term(_written(p), p.help or "") for p in arguments),
        options=tuple(_option(p) for p in options if p.name not in apart),
        shared={title: tuple(_option(p) for p in options if p.name in names) for title, names in shared.items()},
        commands=tuple(Term(name, split_docstring(c.help or "")[0]) for name, c in children.items()),
    )


def split_docstring(docstring: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Returns the summary, the further paragraphs, and the lines of the examples."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    examples: tuple[str, ...] = ()
    if paragraphs[-1].startswith("Examples:"):
        examples = tuple(line.strip() for line in paragraphs.pop().splitlines()[1:])
    summary = " ".join(paragraphs[0].split())
    return summary, tuple(paragraphs[1:]), examples


def _written(argument: Any, in_synopsis: bool = False) -> str:
    name = (argument.metavar or argument.name.upper()).removesuffix("...")
    name += "..." if argument.nargs != 1 else ""
    return name if argument.required or not in_synopsis else f"[{name}]"


def _names(option: Any) -> list[str]:
    """Returns the spellings of an option, the short form first."""
    return sorted((*option.opts, *option.secondary_opts), key=lambda name: name.startswith("--"))


def _option(option: Any) -> Term:
    written = ", ".join(_names(option))
    if option.metavar:
        written += f" {option.metavar}"
    default = option.default
    shown = option.metavar and default not in (None, "") and not callable(default) and default != []
    return Term(written, f"{option.help or ''} [default: {default}]" if shown else option.help or "")


def show_help(context: typer.Context) -> None:
    """Writes the help of the command that the context belongs to."""
    if context.parent is None:
        show(render_overview)
    else:
        described = describe(context.command, context.command_path)
        show(lambda columns, paint: render(described, columns, paint))
