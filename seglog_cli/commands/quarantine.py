"""`seglog quarantine`: the runs that changed logs, and the data that they removed."""

from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seglog.units import count_text
from seglog_cli.console import Console
from seglog_cli.failures import UsageError
from seglog_cli.help_option import HelpOption
from seglog_cli.options import CONTEXT, Quarantine, argument, command, flag, option
from seglog_cli.parameters import PlainCommand, with_default
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.repairs.undo.journal import RunRecord

app = typer.Typer(cls=with_default("ls"), rich_markup_mode=None, context_settings=CONTEXT)
Run = Annotated[str, argument("RUN", "The name of a run, or its folder.")]


@app.callback()
def group(show_help: HelpOption = False) -> None:
    """Shows, restores or deletes data that repairs removed from logs.

    `seglog quarantine [PATH]` is short for `seglog quarantine ls [PATH]`.
    """


@app.command("ls", cls=PlainCommand, context_settings=CONTEXT)
@command()
def ls(
    session: Session,
    path: Annotated[Path | None, argument("PATH", "A log directory, a partition, or a quarantine.")] = None,
    quarantine: Quarantine = None,
) -> None:
    """Lists the runs in a quarantine: state, files, size.

    For a log directory or a partition, only the runs that changed it are listed: others may share its quarantine.
    Without a PATH, the runs around the current directory and those that this user made elsewhere are listed.

    Examples:
      seglog quarantine
      seglog quarantine ls /var/lib/kafka/data
    """
    list_runs(session, path, quarantine)


@app.command("show", cls=PlainCommand, context_settings=CONTEXT)
@command()
def show(session: Session, name: Run, quarantine: Quarantine = None) -> None:
    """Shows a run's changes, file by file.

    Examples:
      seglog quarantine show 20261121T015349Z-7f3a --quarantine /var/lib/kafka/.seglog-quarantine
    """
    from seglog.operations.undo import named_run
    from seglog.repairs.undo.quarantine import saved_bytes

    found = named_run(session.fs, os.environ, name, quarantine)
    show_run(session.console, found, saved_bytes(session.fs, found.folder))


@app.command("restore", cls=PlainCommand, context_settings=CONTEXT)
@command()
def restore(
    session: Session,
    name: Run,
    target: Annotated[Path, option("--output -o", "DIR", "The directory to put the old files in.")],
    quarantine: Quarantine = None,
) -> None:
    """Copies the old files of a run to another directory; the log stays as it is (`seglog undo` takes a run back).

    A file that was cut is put together again if the log still has its first part as the run left it.

    `seglog restore` makes a partition from a run's files instead.

    Examples:
      seglog quarantine restore 20261121T015349Z-7f3a -o /tmp/before
    """
    from seglog.operations.undo import named_run
    from seglog.repairs.undo.restore import restore_run

    found = named_run(session.fs, os.environ, name, quarantine)
    for path in restore_run(session.fs, found, target):
        session.console.result({"type": "restored", "run": found.name, "file": str(path)}, str(path))


@app.command("purge", cls=PlainCommand, context_settings=CONTEXT)
@command()
def purge(
    session: Session,
    name: Run,
    yes: Annotated[bool, flag("--yes", "Do it without asking.")] = False,
    quarantine: Quarantine = None,
) -> None:
    """Removes a run for good: it can no longer be undone, and the files it kept are gone.

    If a purge is interrupted, run it again to finish it.

    Examples:
      seglog quarantine purge 20261121T015349Z-7f3a --yes
    """
    from seglog.operations.undo import named_run, places_of_run
    from seglog.repairs.undo.quarantine import purge_left_over, purge_run

    left = None
    if yes:
        left = purge_left_over(session.fs, name, places_of_run(session.fs, os.environ, name, quarantine))
    if left is not None:
        _purged(session, left, 0)
        return
    found = named_run(session.fs, os.environ, name, quarantine)
    if not yes:
        raise UsageError(f"{found.folder} would be removed for good: confirm it with --yes")
    _purged(session, found.folder, purge_run(session.fs, found))


def _purged(session: Session, folder: Path, freed: int) -> None:
    from seglog.operations.undo import forget_run

    forget_run(session.fs, os.environ, folder)
    if session.as_json:
        session.console.json({"type": "purged", "run": folder.name, "bytes": freed})
    session.console.message(f"{folder.name} is deleted; {bytes_text(freed)} freed")


def list_runs(session: Session, path: Path | None, quarantine: Path | None, *, undone: bool = True) -> int:
    """Shows the runs of a log directory, partition or quarantine, and returns their number.

    Without a path, all runs that are known are shown; those that are `undone` only if asked for.
    """
    from seglog.operations.undo import concerns
    from seglog.operations.workspace import working_directory
    from seglog.repairs.undo.journal import RunRecord, RunState
    from seglog.repairs.undo.places import noted_places, places
    from seglog.repairs.undo.quarantine import runs_in, saved_bytes
    from seglog.scan.listing import require_directory

    if path is not None and quarantine is not None:
        raise UsageError("PATH and --quarantine both say where to look: give one of them")
    for named in filter(None, (path, quarantine)):
        require_directory(session.fs, named)
    runs: list[tuple[RunRecord, int]] = []
    others = 0
    where = noted_places(session.fs, os.environ) if path is None and quarantine is None else []
    for place in dict.fromkeys([*places(quarantine, working_directory() if path is None else path), *where]):
        for found in runs_in(session.fs, place):
            if isinstance(found, RunRecord) and path is not None and not concerns(found, path):
                others += 1
            elif not isinstance(found, RunRecord):
                session.console.warning(str(found))
            elif undone or found.state is not RunState.UNDONE:
                runs.append((found, saved_bytes(session.fs, found.folder)))
    show_runs(session.console, runs)
    if others:
        session.console.message(
            f"{count_text(others, 'run')} of other logs beside {path} not shown: name the quarantine"
        )
    return len(runs)


def show_runs(console: Console, runs: list[tuple[RunRecord, int]]) -> None:
    """Shows the runs in a quarantine, oldest first, with the bytes that they hold."""
    for run, size in runs:
        partitions = ", ".join(run.partitions) or "-"
        count = count_text(len(run.changed), "file")
        console.result(
            {"type": "run", **_run_fields(run), "bytes": size},
            f"{run.name}  {run.state.value}  {count}  {bytes_text(size)}  {run.log_directory}  {partitions}",
        )
    if not runs and not console.as_json:
        console.message("no runs")


def show_run(console: Console, run: RunRecord, size: int) -> None:
    if console.as_json:
        console.json({"type": "run", **_run_fields(run), "bytes": size})
        for change in run.changed:
            console.json({"type": "change", **dataclasses.asdict(change)})
        return
    started = datetime.fromtimestamp(run.started_ms / 1000, UTC).isoformat(timespec="seconds")
    console.line(f"{run.name}: {run.command} of {run.log_directory}, {started}, {run.state.value}")
    console.line(f"folder {run.folder}, {bytes_text(size)}")
    for change in run.changed:
        sizes = " → ".join("none" if facts is None else str(facts.size) for facts in (change.before, change.after))
        origin = f" from {change.source}" if change.source else ""
        console.line(f"{change.kind} {change.path}{origin}: {sizes} bytes; {change.reason}")


def _run_fields(run: RunRecord) -> dict[str, Any]:
    known = {name: run.start.get(name) for name in ("command", "log_directory", "started_ms", "policy", "partitions")}
    return {"run": run.name, "state": run.state.value, **known, "files": len(run.changed), "folder": str(run.folder)}
