"""The text of `--help`: a command's description, or the overview of all commands, as lines.

A pipe or a file gets 80 columns without colour, whatever the environment says, so that scripts can compare it. A
terminal gets its own width, up to 100 columns, and colour. Drawing is done here and not with rich, whose import costs
more than everything else that `seglog --help` does.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from seglog_cli.catalogue import GROUPS, PAGES, SUMMARY
from seglog_cli.console import Console, width_of

PLAIN_COLUMNS = 80
_WIDEST = 100
_NAMES_WIDTH = 26

Paint = Callable[[str, str], str]


@dataclass(frozen=True, slots=True)
class Term:
    """An argument or option: how it is written (`-n, --dry-run`) and what it does."""

    names: str
    text: str


@dataclass(frozen=True, slots=True)
class Description:
    """The parts of a command's documentation.

    `shared` are options that many commands have, by the title of their section: a page only names them, and
    `seglog help options` explains them.
    """

    path: str
    synopsis: str
    summary: str
    paragraphs: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    arguments: tuple[Term, ...] = ()
    options: tuple[Term, ...] = ()
    shared: dict[str, tuple[Term, ...]] = field(default_factory=dict)
    commands: tuple[Term, ...] = ()


def _plain(text: str, style: str) -> str:
    del style
    return text


def render(description: Description, columns: int = PLAIN_COLUMNS, paint: Paint = _plain) -> str:
    """Returns the text of a command's `--help`; `paint` gives a piece of text a style of the console."""
    blocks = [f"{paint('Usage:', 'strong')} {description.synopsis}", _prose(description.summary, columns)]
    blocks += [_prose(paragraph, columns) for paragraph in description.paragraphs]
    sections = (
        ("Commands", description.commands),
        ("Arguments", description.arguments),
        ("Options", description.options),
    )
    blocks += [_section(title, terms, columns, paint) for title, terms in sections if terms]
    for title, terms in description.shared.items():
        names = textwrap.fill(
            ", ".join(shortest(term) for term in terms), columns, initial_indent="  ", subsequent_indent="  "
        )
        blocks.append(f"{paint(f'{title} (seglog help options):', 'strong')}\n{names}")
    if description.examples:
        blocks.append("\n".join([paint("Examples:", "strong"), *(f"  {line}" for line in description.examples)]))
    return "\n\n".join(blocks)


def render_overview(columns: int = PLAIN_COLUMNS, paint: Paint = _plain) -> str:
    """Returns the text of `seglog --help`: the commands in their groups."""
    summary, *paragraphs = SUMMARY.strip().split("\n\n")
    usage = paint("Usage:", "strong")
    blocks = [f"{usage} seglog COMMAND [OPTION]... [ARGUMENT]...", _prose(summary, columns)]
    blocks += [_prose(paragraph, columns) for paragraph in paragraphs]
    width = max(len(name) for group in GROUPS.values() for name in group) + 4
    for title, commands in GROUPS.items():
        terms = [Term(name, text) for name, text in commands.items()]
        blocks.append(_section(title, terms, columns, paint, width))
    pages = [Term(f"seglog help {name}", text) for name, text in PAGES.items()]
    more = [*pages, _OF_A_CODE, _VERSION]
    blocks.append(_section("More help", more, columns, paint, max(len(term.names) for term in more) + 4))
    return "\n\n".join(blocks)


_OF_A_CODE = Term("seglog explain CODE", "What a finding means, and what mends it.")
_VERSION = Term("seglog --version", "The version; with -v, how kernels run.")


def render_terms(sections: Sequence[tuple[str, Sequence[Term]]], columns: int, paint: Paint) -> str:
    """Returns sections of explained words."""
    return "\n\n".join(_section(title, terms, columns, paint) for title, terms in sections)


def shortest(term: Term) -> str:
    """Returns the shortest spelling of an option."""
    return term.names.replace(",", "").split()[0]


def show(text: Callable[[int, Paint], str]) -> None:
    """Writes help to stdout: `text` makes it for a number of columns and a way to paint."""
    console = Console()
    columns = PLAIN_COLUMNS
    if console.stdout_is_terminal:
        columns = min(width_of(1), _WIDEST)
    for line in text(columns, console.styled).split("\n"):
        console.whole_line(line)
    console.flush()


def _section(title: str, terms: Sequence[Term], columns: int, paint: Paint, width: int = 0) -> str:
    return "\n".join([paint(f"{title}:", "strong"), *_terms(terms, columns, paint, width)])


def _prose(paragraph: str, columns: int) -> str:
    if any(line[:1].isspace() for line in paragraph.splitlines()):
        return textwrap.indent(paragraph, "  ")
    return textwrap.fill(
        " ".join(paragraph.split()), columns, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )


def _broken(names: str, columns: int) -> list[str]:
    """Returns the lines of an option with a choice of many words, broken after a `|`."""
    lines = textwrap.wrap(names.replace("|", "| "), columns, subsequent_indent="    ", break_on_hyphens=False)
    return [line.replace("| ", "|") for line in lines]


def _terms(terms: Sequence[Term], columns: int, paint: Paint, width: int) -> Iterator[str]:
    width = width or min(_NAMES_WIDTH, max(len(term.names) for term in terms) + 4)
    indent = " " * width
    for term in terms:
        text = textwrap.wrap(term.text, max(columns - width, 30), break_on_hyphens=False) or [""]
        names = f"  {paint(term.names, 'name')}"
        if len(term.names) > width - 4:
            yield from (f"  {paint(line, 'name')}" for line in _broken(term.names, columns - 2))
            yield indent + text[0]
        else:
            yield f"{names}{' ' * (width - 2 - len(term.names))}{text[0]}".rstrip()
        yield from (indent + line for line in text[1:])
