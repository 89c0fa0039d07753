"""The text of `--help` and of the manual pages, both from one description of a command.

`describe` takes a command of Typer's tree apart: synopsis, arguments, options, and the docstring's prose and examples.
`--help` prints it, and `manual.py` writes it as a page, so they cannot differ. The first paragraph of a docstring is
the summary; a last paragraph that begins with `Examples:` holds the examples.

Typer's own help is not used: at 80 columns it cuts 11 of the 33 summaries short, fills examples into paragraphs, and
lists a command's own options among the ten common ones. It takes the same time (0.09 s).
"""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from seglog_cli.console import Console

_WIDEST = 100
_NAMES_WIDTH = 26


@dataclass(frozen=True, slots=True)
class Term:
    """An argument or option: how it is written (`-n, --dry-run`) and what it does."""

    names: str
    text: str


@dataclass(frozen=True, slots=True)
class Description:
    """The parts of a command's documentation. `common` are the options of every command."""

    path: str
    synopsis: str
    summary: str
    paragraphs: tuple[str, ...]
    examples: tuple[str, ...]
    arguments: tuple[Term, ...]
    options: tuple[Term, ...]
    common: tuple[Term, ...]
    commands: tuple[Term, ...]


def describe(command: Any, path: str, common: Sequence[str] = ()) -> Description:
    """Takes a command of Typer's tree apart.

    `path` is how it is called; `common` names the options of every command, which are listed apart.
    """
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
        options=tuple(_option(p) for p in options if p.name not in common),
        common=tuple(_option(p) for p in options if p.name in common),
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


def render(description: Description, width: int | None = None) -> str:
    """Returns the text of `--help`."""
    columns = min(shutil.get_terminal_size().columns, _WIDEST) if width is None else width
    blocks = [f"Usage: {description.synopsis}", _prose(description.summary, columns)]
    blocks += [_prose(paragraph, columns) for paragraph in description.paragraphs]
    sections = (
        ("Commands", description.commands),
        ("Arguments", description.arguments),
        ("Options", description.options),
        ("Options of every command", description.common),
    )
    blocks += ["\n".join([f"{title}:", *_terms(terms, columns)]) for title, terms in sections if terms]
    if description.examples:
        blocks.append("\n".join(["Examples:", *(f"  {line}" for line in description.examples)]))
    return "\n\n".join(blocks)


def _prose(paragraph: str, columns: int) -> str:
    if any(line[:1].isspace() for line in paragraph.splitlines()):
        return textwrap.indent(paragraph, "  ")
    return textwrap.fill(
        " ".join(paragraph.split()), columns, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )


def _terms(terms: Sequence[Term], columns: int) -> Iterator[str]:
    width = min(_NAMES_WIDTH, max(len(term.names) for term in terms) + 4)
    indent = " " * width
    for term in terms:
        text = textwrap.wrap(term.text, max(columns - width, 30), break_on_hyphens=False) or [""]
        head = f"  {term.names}"
        if len(head) > width - 2:
            yield head
            yield indent + text[0]
        else:
            yield f"{head:<{width}}{text[0]}".rstrip()
        yield from (indent + line for line in text[1:])


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


def _show(context: typer.Context, asked: bool) -> None:
    if asked:
        common = getattr(context.command.callback, "common_options", ())
        show_text(render(describe(context.command, context.command_path, common)))
        raise typer.Exit


def show_text(text: str) -> None:
    """Writes text of our own to stdout, before the options are parsed."""
    console = Console()
    console.block(text)
    console.flush()


HelpOption = Annotated[
    bool,
    typer.Option("--help", "-h", help="Show this help and exit.", callback=_show, is_eager=True),
]
