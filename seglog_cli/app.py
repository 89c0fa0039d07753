"""The command `seglog`: its commands in the order of a working day, and the frame around them.

A command is one line in COMMANDS and one module in `commands/` whose `run` (or, for a group, `app`) is
registered. A command's module is imported when the command is called or its own help is asked for, and no other is:
`seglog --help` lists names and summaries from COMMANDS. No command imports the engine before it runs.
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
    "append": "Appends records, and says what is safe on disk.",
    "read": "Reads records from an offset or a time on.",
    "dump": "Shows batches and records, and the contents of every other Kafka file.",
    "verify": "Verifies logs and goes on past damage; changes, locks and creates nothing without --repair.",
    "truncate": "Cuts off the end of a log as a broker truncates a follower: whole batches, indexes and checkpoints.",
    "recover": "Recovers a log as a broker does when it starts after a crash.",
    "reindex": "Rebuilds offset, time and transaction indexes, producer snapshots and leader epochs from records.",
    "retain": "Deletes old segments as a broker does: below the log start, by retention.bytes and by retention.ms.",
    "clean": "Compacts logs as Kafka's log cleaner does: the last record of each key stays.",
    "cleaner": "Keeps the compacted logs of a log directory clean, as a broker's cleaner threads do.",
    "stats": "Shows distributions and the last cleaning rounds; with --sizing, the dedupe buffer and disk needed.",
    "explain": "Explains why a partition is not cleaned, not deleted, or not readable past an offset.",
    "doctor": "Says whether a Kafka 4.3 broker would start here, and what it would do to the data.",
    "diff": "Compares two or more copies of a partition: replicas, a backup, before and after.",
    "txn": "Shows the transactions in a log: where they began and ended, how long they took, which are open or hang.",
    "export": "Writes the records of a partition, or of a topic, to a file that other programs read.",
    "convert": "Rewrites a partition with another record format or codec; the source is only read.",
    "salvage": "Copies every good batch that it finds into a new, valid log; never writes to its sources.",
    "undo": "Takes a repair back: restores every file bit for bit, with its times, mode and owner.",
    "quarantine": "Shows, restores or deletes what repairs removed from logs.",
    "transplant": "Puts partitions of a dead cluster into a stopped broker of another one; offsets stay as they are.",
    "rebuild": "Makes a lost cluster's metadata again, so that the brokers start on their directories as they are.",
    "restore": "Makes partitions of directories that a broker set aside, and of what repairs took out of logs.",
    "tiers": "Shows which segments lie in tiered storage, which are missing, and what a restore would need.",
    "fetch": "Brings partitions out of tiered storage into a log directory from which a broker starts.",
    "groups": "Shows committed offsets, lag and members of consumer groups from __consumer_offsets on disk.",
    "metadata": "Shows the cluster that a KRaft controller's metadata log describes, without a broker.",
    "serve": "Serves the partitions in directories to Kafka clients, for reading only.",
    "replay": "Produces the records of partitions again, to another cluster that runs.",
    "spark": "Verifies, measures, cleans, exports and compares logs with Spark.",
    "dump-log": "Takes the options of kafka-dump-log and prints its text.",
    "config": "Shows which configuration values count for a log, and why.",
}

_VERSION_OPTIONS = frozenset({"--version", "-v", "--verbose"})

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
        raise UsageError("put -v after the command")


def build(names: Iterable[str] = COMMANDS, *, imported: Container[str] = COMMANDS) -> typer.Typer:
    """The application with the named commands. Those that are not `imported` are listed and cannot run."""
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
    """What stands for a command that is only listed: it has a summary, and nothing to import."""

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
    # Typer finds out the shell by itself and leaves no choice, but for this: then each shell is named and gets its own
    # script, whichever one seglog was called from.
    os.environ.setdefault("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    given = list(arguments) or ["--help"]
    if given[0].endswith("-completion"):
        answer_zsh_at_once()
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
        context = getattr(error, "ctx", None)
        message = error.format_message().replace("Value error, ", "")  # pydantic's own words
        return report_outside(
            given, UsageError(f"{message} (see {context.command_path if context else 'seglog'} --help)")
        )
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
    if isinstance(error, SystemExit) and os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return 1  # fish asks whether there are values to offer, and offers files where there are none
    return report_outside(arguments, UsageError(f"{COMPLETION} is set, but the rest of what a shell asks is not"))


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="With --version, show how kernels run, too.", callback=_alone),
    ] = False,
    show_help: HelpOption = False,
) -> None:
    """Holds the options that stand before a command."""
