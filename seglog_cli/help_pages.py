"""The pages of `seglog help`: what an installed seglog has to say without man, a clone or a network."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import typer

from seglog_cli.console import show_text
from seglog_cli.exit_codes import ExitCode
from seglog_cli.help import describe
from seglog_cli.help_text import Term, render_terms, show

_SHOWN_BY = "ls"  # a command that has every option which is explained here and not on its own page

Build = Callable[[list[str]], typer.Typer]


def show_page(name: str, build: Build) -> None:
    """Writes one of `catalogue.PAGES` to stdout; `build` is `app.build`."""
    if name == "options":
        sections = shared_options(build)
        show(lambda columns, paint: render_terms(list(sections.items()), columns, paint))
    elif name == "exit-codes":
        codes = [Term(str(int(code)), f"{code.meaning[:1].upper()}{code.meaning[1:]}.") for code in ExitCode]
        show(lambda columns, paint: render_terms([("Exit codes", codes)], columns, paint))
    else:
        show_text(dead_cluster().rstrip("\n"))


def shared_options(build: Build) -> dict[str, tuple[Term, ...]]:
    """Returns the options that many commands have, by the title of their section."""
    tree = typer.main.get_command(build([_SHOWN_BY]))
    return describe(tree.commands[_SHOWN_BY], f"seglog {_SHOWN_BY}").shared  # type: ignore[attr-defined]


def dead_cluster() -> str:
    """Returns the page DEAD_CLUSTER.md: from the wheel, or where the modules lie in a clone from the clone."""
    packed = files("seglog_cli") / "DEAD_CLUSTER.md"
    if packed.is_file():
        return packed.read_text("utf-8")
    return (Path(__file__).resolve().parents[1] / "core" / "DEAD_CLUSTER.md").read_text("utf-8")
