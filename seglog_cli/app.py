"""The command `seglog`: Typer's tree of the commands in `catalogue`, and the frame around them.

Only the module of the command that is called, or whose help is asked for, is imported. No command imports the engine
before it runs.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Annotated

import typer

from seglog_cli.catalogue import COMMANDS as COMMANDS
from seglog_cli.catalogue import PAGES, SUMMARY
from seglog_cli.catalogue import VERSION as VERSION
from seglog_cli.completing import VARIABLE as COMPLETION
from seglog_cli.completing import Shell, be_ready_to_answer, install_script, script_of, typed_words
from seglog_cli.console import show_text
from seglog_cli.failures import UsageError, report_outside
from seglog_cli.help_option import HelpOption
from seglog_cli.options import CONTEXT
from seglog_cli.parameters import PlainCommand, PlainGroup

_VERSION_OPTIONS = frozenset({"--version", "-v", "--verbose"})


def _show_version(context: typer.Context, asked: bool) -> None:
    if not asked:
        return
    show_text(f"seglog {VERSION}")
    if {"-v", "--verbose"} & set(context.obj or ()):
        from seglog.kernels._mode import MODE

        show_text(f"kernels: {MODE.name} ({MODE.detail})")
    raise typer.Exit


def _show_completion(shell: Shell | None) -> None:
    if shell is not None:
        show_text(script_of(shell))
        raise typer.Exit


def _install_completion(shell: Shell | None) -> None:
    if shell is not None:
        show_text("\n".join(install_script(shell)))
        raise typer.Exit


def _alone(asked: bool) -> None:
    if asked:
        raise UsageError("put -v after the command")


def build(names: Iterable[str] = COMMANDS, *, imported: Container[str] = COMMANDS) -> typer.Typer:
    """Builds the application with the named commands. Those that are not `imported` are listed but cannot run."""
    app = typer.Typer(
        name="seglog",
        cls=PlainGroup,
        help=SUMMARY,
        rich_markup_mode=None,
        add_completion=False,  # Typer's own options guess the shell; those of `_root` take any shell's name
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
    )
    app.callback()(_root)
    for name in names:
        if name not in imported:
            app.command(name, cls=PlainCommand)(_listed(COMMANDS[name]))
            continue
        module = importlib.import_module(f"seglog_cli.commands.{name.replace('-', '_')}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name, cls=PlainCommand, context_settings=CONTEXT)(module.run)
    return app


def _listed(summary: str) -> Callable[[], None]:
    """Returns a placeholder with a summary, for a command whose module is not imported."""

    def listed() -> None:
        raise AssertionError("a command that is only listed was run")

    listed.__doc__ = summary
    return listed


def _built_for(given: Sequence[str]) -> typer.Typer:
    if given[0] in COMMANDS:
        return build(given[:1])
    if COMPLETION in os.environ:
        return build(imported=typed_words())
    return build(() if _VERSION_OPTIONS.issuperset(given) else COMMANDS, imported=())


def run(arguments: Sequence[str]) -> int:
    """Runs the command line; returns the exit code."""
    given = list(arguments) or ["--help"]
    try:
        if given[0] == "help":
            given = _asked_for(given[1:])
        code = _invoked(_built_for(given), [*given])  # a copy, because parsing consumes the list
    except (SystemExit, KeyError, ValueError) as error:
        if isinstance(error, SystemExit) and not error.code:
            return 0  # a page is shown
        if COMPLETION not in os.environ:
            return report_outside(given, error)
        return _completed(given, error)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        message = error.format_message().replace("Value error, ", "")  # a prefix of pydantic's
        return report_outside(
            given, UsageError(f"{message} (see {context.command_path if context else 'seglog'} --help)")
        )
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the outermost handler)
        return report_outside(given, error)
    return code if isinstance(code, int) else 0


def _asked_for(topic: list[str]) -> list[str]:
    """Returns the command line that `seglog help TOPIC` stands for; shows a page that no command has."""
    if topic and topic[0] in PAGES:
        from seglog_cli.help_pages import show_page

        show_page(topic[0], build)
        raise SystemExit(0)
    if topic and topic[0] not in COMMANDS and not topic[0].startswith("-"):
        raise UsageError(f"help: {topic[0]} is neither a command nor one of the pages {', '.join(PAGES)}")
    return [*topic, "--help"]


def _invoked(app: typer.Typer, given: list[str]) -> object:
    """Runs the command and returns its result.

    Typer's own `main` turns every signal into exit code 130 without a message, and ends the process when standard
    output is closed. So only completion, which `main` answers, goes through it.
    """
    if COMPLETION in os.environ:
        be_ready_to_answer()
        return app(args=given, prog_name="seglog", standalone_mode=False, obj=given)
    command = typer.main.get_command(app)
    try:
        with command.make_context("seglog", given, obj=[*given]) as context:
            return command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code


def _completed(arguments: Sequence[str], error: BaseException) -> int:
    """Returns the exit code after Typer has answered a shell's request for completions, or has failed to."""
    if isinstance(error, SystemExit) and not error.code:
        return 0
    if isinstance(error, SystemExit) and os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return 1  # tells fish that there are no values to offer; fish then offers files
    return report_outside(
        arguments, UsageError(f"{COMPLETION} is set, but the other variables of a completing shell are not")
    )


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="With --version, also show how kernels run.", callback=_alone),
    ] = False,
    install_completion: Annotated[
        Shell | None,
        typer.Option(help="Install completion for the specified shell.", callback=_install_completion),
    ] = None,
    show_completion: Annotated[
        Shell | None,
        typer.Option(
            help="Show completion for the specified shell, to copy it or customize the installation.",
            callback=_show_completion,
        ),
    ] = None,
    show_help: HelpOption = False,
) -> None:
    """Declares the options that may come before a command."""
