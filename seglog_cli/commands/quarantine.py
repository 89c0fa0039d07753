"""`seglog quarantine`: what repairs took out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from seglog_cli.failures import UsageError
from seglog_cli.help import HelpOption
from seglog_cli.options import CONTEXT, Quarantine, argument, command, flag, option
from seglog_cli.parameters import PlainCommand
from seglog_cli.quarantines import named_run
from seglog_cli.session import Session

SUMMARY = "Shows, restores or deletes what repairs removed from logs."

app = typer.Typer(help=SUMMARY, rich_markup_mode=None, context_settings=CONTEXT)

Run = Annotated[str, argument("RUN", "The name of a run, or its folder.")]


@app.callback()
def group(show_help: HelpOption = False) -> None:
    """Shows, restores or deletes what repairs removed from logs."""


@app.command("ls", cls=PlainCommand, context_settings=CONTEXT)
@command
def ls(
    session: Session,
    path: Annotated[Path | None, argument("PATH", "A log directory, a partition, or a quarantine.")] = None,
    quarantine: Quarantine = None,
) -> None:
    """Lists the runs in a quarantine: state, files, size.

    For a log directory or a partition it lists the runs that changed that one: others may share its quarantine.

    Examples:
      seglog quarantine ls /var/lib/kafka/data
    """
    from seglog.operations.undo import concerns, places
    from seglog.runs.journal import RunRecord
    from seglog.runs.quarantine import runs_in, saved_bytes
    from seglog.scan.listing import require_directory
    from seglog.units import count_text
    from seglog_cli.views.repair import show_runs

    if path is not None and quarantine is not None:
        raise UsageError("PATH and --quarantine both say where to look: give one of them")
    if path is not None:
        require_directory(session.fs, path)
    runs: list[tuple[RunRecord, int]] = []
    others = 0
    for place in places(quarantine, Path.cwd() if path is None else path):
        for found in runs_in(session.fs, place):
            if isinstance(found, RunRecord) and path is not None and not concerns(found, path):
                others += 1
            elif isinstance(found, RunRecord):
                runs.append((found, saved_bytes(session.fs, found.folder)))
            else:
                session.console.warning(str(found))
    show_runs(session.console, runs)
    if others:
        session.console.message(f"{count_text(others, 'run')} of other logs beside {path}: name the quarantine")


@app.command("show", cls=PlainCommand, context_settings=CONTEXT)
@command
def show(session: Session, name: Run, quarantine: Quarantine = None) -> None:
    """Shows a run's changes, file by file.

    Examples:
      seglog quarantine show 20261121T015349Z-7f3a --quarantine /var/lib/kafka/.seglog-quarantine
    """
    from seglog.runs.quarantine import saved_bytes
    from seglog_cli.views.repair import show_run

    found = named_run(session, name, quarantine)
    show_run(session.console, found, saved_bytes(session.fs, found.folder))


@app.command("restore", cls=PlainCommand, context_settings=CONTEXT)
@command
def restore(
    session: Session,
    name: Run,
    target: Annotated[Path, option("--output -o", "DIR", "The directory to put the old files into.")],
    quarantine: Quarantine = None,
) -> None:
    """Copies the old files of a run to another place; the log stays as it is (`seglog undo` takes a run back).

    A file that was cut is put together again when the log still has its front as the run left it. `seglog restore`
    makes a partition of a run's files instead.

    Examples:
      seglog quarantine restore 20261121T015349Z-7f3a -o /tmp/before
    """
    from seglog.runs.restore import restore_run

    found = named_run(session, name, quarantine)
    for path in restore_run(session.fs, found, target):
        if session.as_json:
            session.console.json({"type": "restored", "run": found.name, "file": str(path)})
        else:
            session.console.line(str(path))


@app.command("purge", cls=PlainCommand, context_settings=CONTEXT)
@command
def purge(
    session: Session,
    name: Run,
    yes: Annotated[bool, flag("--yes", "Remove without asking.")] = False,
    quarantine: Quarantine = None,
) -> None:
    """Removes a run for good: it cannot be undone any more, and what it took out is gone.

    A purge that was cut short is finished by another one.

    Examples:
      seglog quarantine purge 20261121T015349Z-7f3a --yes
    """
    from seglog.operations.undo import places_of_run
    from seglog.runs.quarantine import purge_left_over, purge_run

    left = None
    if yes:
        left = purge_left_over(session.fs, name, places_of_run(session.fs, os.environ, name, quarantine))
    if left is not None:
        _purged(session, left, 0)
        return
    found = named_run(session, name, quarantine)
    if not yes:
        raise UsageError(f"{found.folder} would be removed for good: say so with --yes")
    _purged(session, found.folder, purge_run(session.fs, found))


def _purged(session: Session, folder: Path, freed: int) -> None:
    from seglog.operations.undo import forget_run
    from seglog_cli.progress import bytes_text

    forget_run(session.fs, os.environ, folder)
    if session.as_json:
        session.console.json({"type": "purged", "run": folder.name, "bytes": freed})
    session.console.message(f"{folder.name} is gone; {bytes_text(freed)} freed")
