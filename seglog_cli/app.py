"""The command `seglog`: its commands in the order of a working day, and the frame around them.

A command is one line in COMMANDS and one module in `commands/` whose `run` (or, for a group, `app`) is
registered. Only the modules that an invocation needs are imported: the named command's, none for `--version`, or all of
them for the list that `seglog --help` shows, which takes no look at their parameters; none imports the engine before it
runs.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from seglog_cli.completing import VARIABLE as COMPLETION
from seglog_cli.failures import UsageError, report_outside
from seglog_cli.help import HelpOption, show_text
from seglog_cli.options import CONTEXT
from seglog_cli.parameters import PlainCommand, PlainGroup

COMMANDS = (
    "ls",
    "append",
    "read",
    "dump",
    "verify",
    "truncate",
    "recover",
    "reindex",
    "retain",
    "clean",
    "cleaner",
    "stats",
    "explain",
    "doctor",
    "diff",
    "txn",
    "export",
    "convert",
    "salvage",
    "undo",
    "quarantine",
    "transplant",
    "rebuild",
    "restore",
    "tiers",
    "fetch",
    "groups",
    "metadata",
    "serve",
    "replay",
    "spark",
    "dump-log",
    "config",
)

_VERSION_OPTIONS = frozenset({"--version", "-v", "--verbose"})
_HELP_OPTIONS = frozenset({"--help", "-h"})

VERSION = "0.1.0"  # as in pyproject.toml; a test holds them together
SUMMARY = """Apache Kafka's log engine outside the broker.

Appends to, reads, dumps, verifies, repairs, recovers, retains and cleans partition logs on disk.
PATH is a segment or any other log file, a partition directory, or a log directory.

`seglog COMMAND --help` tells more, and `man seglog` about exit codes, configuration and files.
"""


def _show_version(context: typer.Context, asked: bool) -> None:
    if not asked:
        return
    show_text(f"seglog {VERSION}")
    if {"-v", "--verbose"} & set(context.obj or ()):
        from seglog.kernels._mode import MODE

        show_text(f"kernels: {MODE.name} ({MODE.detail})")
    raise typer.Exit


def _alone(asked: bool) -> None:
    if asked:
        raise UsageError("-v stands after the command")


def build(names: Sequence[str] = COMMANDS, *, listed: bool = False) -> typer.Typer:
    """The application with the named commands; where they are only `listed`, with their docstrings alone."""
    app = typer.Typer(
        name="seglog",
        cls=PlainGroup,
        help=SUMMARY,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
    )
    app.callback()(_root)
    for name in names:
        module = importlib.import_module(f"seglog_cli.commands.{name.replace('-', '_')}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            function = _only_described(module.run) if listed else module.run
            app.command(name, cls=PlainCommand, context_settings=CONTEXT)(function)
    return app


def _only_described(function: Callable[..., object]) -> Callable[[], None]:
    """A function without parameters in its place: Typer takes long to make them, and a list of commands shows none."""

    def described() -> None:
        raise AssertionError("a command that is only listed was run")

    described.__doc__ = function.__doc__
    return described


def _built_for(given: Sequence[str]) -> typer.Typer:
    if given[0] in COMMANDS:
        return build(given[:1])
    if COMPLETION in os.environ:
        return build()
    return build(() if _VERSION_OPTIONS.issuperset(given) else COMMANDS, listed=given[0] in _HELP_OPTIONS)


def run(arguments: Sequence[str]) -> int:
    """Runs the command line; returns the exit code."""
    # Typer finds out the shell by itself and leaves no choice, but for this: then each shell is named and gets its own
    # script, whichever one seglog was called from.
    os.environ.setdefault("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    given = list(arguments) or ["--help"]
    if given[0] == "help":
        given = [*given[1:], "--help"]
    try:
        code = _invoked(_built_for(given), [*given])  # parsing takes the words away
    except (SystemExit, KeyError, ValueError) as error:
        if isinstance(error, SystemExit) and not error.code:
            return 0  # Typer has shown or installed a shell's script
        if COMPLETION not in os.environ:
            return report_outside(given, error)
        return _completed(given, error)
    except typer.TyperException as error:
        command = f"seglog {given[0]}" if given[0] in COMMANDS else "seglog"
        return report_outside(given, UsageError(f"{error.format_message()} (see {command} --help)"))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the outermost door)
        return report_outside(given, error)
    return code if isinstance(code, int) else 0


def _invoked(app: typer.Typer, given: list[str]) -> object:
    """What the command returned. Typer's own `main` makes 130 of every signal, says nothing, and ends the process when
    standard output is closed: only completion, which that function answers, goes through it.
    """
    if COMPLETION in os.environ:
        return app(args=given, prog_name="seglog", standalone_mode=False, obj=given)
    command = typer.main.get_command(app)
    try:
        with command.make_context("seglog", given, obj=[*given]) as context:
            return command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code


def _completed(arguments: Sequence[str], error: BaseException) -> int:
    """Typer answers a shell that asks for completions, and exits; what no shell asks is an error."""
    if isinstance(error, SystemExit) and not error.code:
        return 0
    return report_outside(arguments, UsageError(f"{COMPLETION} is set, but the rest of what a shell asks is not"))


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="With --version: also show how kernels run.", callback=_alone),
    ] = False,
    show_help: HelpOption = False,
) -> None:
    """Holds the options that stand before a command."""
