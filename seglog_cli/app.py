"""The command `seglog`: its commands in the order of a working day, and the frame around them.

A command is one line in COMMANDS and one module in `commands/` with a `run` (or, for a group of commands, an `app`).
Only the module of the command that is called, or whose help is asked for, is imported: `seglog --help` takes names and
summaries from COMMANDS. No command imports the engine before it runs.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Annotated

import typer

from seglog_cli.completing import VARIABLE as COMPLETION
from seglog_cli.completing import answer_zsh_at_once, typed_words
from seglog_cli.failures import UsageError, report_outside
from seglog_cli.help import HelpOption, show_text
from seglog_cli.options import CONTEXT
from seglog_cli.parameters import PlainCommand, PlainGroup

COMMANDS = {
    "ls": "Lists partitions, segments and leftovers: sizes, offsets, times.",
    "append": "Appends records, and reports what is safe on disk.",
    "read": "Reads records from an offset or a time on.",
    "dump": "Shows batches and records, and the contents of any Kafka file.",
    "verify": "Verifies logs, past damage too; --repair repairs them.",
    "truncate": "Cuts off the end of a log, as a broker truncates a follower.",
    "recover": "Recovers a log as a broker does when it starts after a crash.",
    "reindex": "Rebuilds indexes, snapshots and leader epochs from the records.",
    "retain": "Deletes old segments by the retention rules of a broker.",
    "clean": "Compacts logs: the last record of each key stays.",
    "cleaner": "Keeps compacted logs clean, as a broker's cleaner threads do.",
    "stats": "Shows distributions, past rounds, and what the cleaner needs.",
    "explain": "Explains why a log is not cleaned, not deleted or not readable.",
    "doctor": "Tells whether a broker would start here, and what it would do.",
    "diff": "Compares copies of a partition, such as replicas or a backup.",
    "txn": "Shows transactions: finished ones, open ones, and those that hang.",
    "export": "Writes the records of a partition or topic to a file.",
    "convert": "Copies a partition with another record format or codec.",
    "salvage": "Copies every good batch from damaged files into a new, valid log.",
    "undo": "Takes a repair back: restores every file bit for bit.",
    "quarantine": "Shows, restores or deletes data that repairs removed from logs.",
    "transplant": "Copies a dead cluster's partitions into another cluster's broker.",
    "rebuild": "Rebuilds a cluster's lost metadata from its log directories.",
    "restore": "Makes partitions from directories that a broker set aside.",
    "tiers": "Shows which segments are in tiered storage, and which are missing.",
    "fetch": "Copies partitions from tiered storage into a log directory.",
    "groups": "Shows committed offsets, lag and members of consumer groups.",
    "metadata": "Shows the cluster that a controller's metadata log describes.",
    "serve": "Serves partitions to Kafka clients, read-only.",
    "replay": "Produces the records of partitions to another, running cluster.",
    "spark": "Verifies, measures, cleans, exports and compares logs with Spark.",
    "dump-log": "Takes kafka-dump-log's options and prints its text.",
    "config": "Shows which configuration values apply to a log, and why.",
}

_VERSION_OPTIONS = frozenset({"--version", "-v", "--verbose"})

VERSION = "0.1.0"  # a test compares it with pyproject.toml
SUMMARY = """Apache Kafka's log engine outside the broker.

Appends to, reads, dumps, verifies, repairs, recovers, retains and cleans partition logs on disk.
PATH is a segment or any other log file, a partition directory, or a log directory.

Run `seglog COMMAND --help` for a command, and `man seglog` for exit codes, configuration and files.
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
        raise UsageError("put -v after the command")


def build(names: Iterable[str] = COMMANDS, *, imported: Container[str] = COMMANDS) -> typer.Typer:
    """Builds the application with the named commands. Those that are not `imported` are listed but cannot run."""
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
        if name not in imported:
            app.command(name)(_listed(COMMANDS[name]))
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
    # Without this, Typer detects the shell that runs seglog. With it, the user names the shell, and each shell's script
    # can be had from any other one.
    os.environ.setdefault("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    given = list(arguments) or ["--help"]
    if given[0].endswith("-completion"):
        answer_zsh_at_once()
    if given[0] == "help":
        given = [*given[1:], "--help"]
    try:
        code = _invoked(_built_for(given), [*given])  # a copy, because parsing consumes the list
    except (SystemExit, KeyError, ValueError) as error:
        if isinstance(error, SystemExit) and not error.code:
            return 0  # Typer has shown or installed a completion script
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


def _invoked(app: typer.Typer, given: list[str]) -> object:
    """Runs the command and returns its result.

    Typer's own `main` turns every signal into exit code 130 without a message, and ends the process when standard
    output is closed. So only completion, which `main` answers, goes through it.
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
    show_help: HelpOption = False,
) -> None:
    """Declares the options that may come before a command."""
