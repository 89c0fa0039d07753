"""The option `--help` of every command. What it shows is imported when it is given: most calls run a command."""

from __future__ import annotations

from typing import Annotated

import typer


def _show(context: typer.Context, asked: bool) -> None:
    if not asked:
        return
    from seglog_cli.help import show_help

    show_help(context)
    raise typer.Exit


HelpOption = Annotated[
    bool,
    typer.Option("--help", "-h", help="Show this help and exit.", callback=_show, is_eager=True),
]
