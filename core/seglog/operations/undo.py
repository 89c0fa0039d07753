"""Finds runs by name, settles unfinished ones, and takes runs back (`seglog undo`)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from seglog.locations import require_name
from seglog.operations.workspace import working_directory
from seglog.repairs.undo.apply import settle_pending, undo_run
from seglog.repairs.undo.journal import RunRecord, RunState, read_journal
from seglog.repairs.undo.places import notes_of, places
from seglog.repairs.undo.quarantine import find_run, pending_run
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import DirectoryLock, partition_path

Settled = Callable[[RunRecord], None]


def unsettled(run: RunRecord) -> None:
    """Ignores a settled run."""


def settle_unfinished(fs: FileSystem, log_directory: Path, settled: Settled) -> None:
    """Finishes or undoes the unfinished run in a log directory, under its lock, and calls `settled` with it.

    Does nothing, and locks nothing, if there is none. Raises LockedError if the directory is in use.
    """
    if pending_run(fs, log_directory) is not None:
        with DirectoryLock(log_directory):
            settle(fs, log_directory, settled)


def settle(fs: FileSystem, log_directory: Path, settled: Settled = unsettled) -> None:
    """Finishes or undoes the unfinished run in a log directory whose lock the caller holds; calls `settled` with it."""
    run = settle_pending(fs, log_directory)
    if run is not None:
        settled(run)


def undo(fs: FileSystem, run: RunRecord) -> RunRecord:
    """Takes a run back and restores every file bit for bit; does nothing for a run that was undone before.

    Raises RefusedError, before it changes anything, if a file has changed since the run.
    """
    with DirectoryLock(run.log_directory):
        settle_pending(fs, run.log_directory)
        found = read_journal(fs, run.folder)
        if found.state is not RunState.UNDONE:
            undo_run(fs, found)
        return read_journal(fs, run.folder)


def named_run(fs: FileSystem, environment: Mapping[str, str], name: str, quarantine: Path | None) -> RunRecord:
    """Returns the run with this name or folder. Raises NotALogError if there is none."""
    return find_run(fs, name, places_of_run(fs, environment, name, quarantine))


def places_of_run(fs: FileSystem, environment: Mapping[str, str], name: str, quarantine: Path | None) -> list[Path]:
    """Returns the places to look for a run: the quarantine, or without one those around the working directory and the
    place that this user's note names.

    Raises OSError if the note cannot be read (in another user's home, as with sudo) and the run is in no other place.
    """
    require_name(name)
    known = places(quarantine, working_directory())
    note = notes_of(environment) / Path(name).name
    try:
        found = fs.status(note) if quarantine is None else None
        if found is not None and not found.no_file:  # a directory: the name is `.`
            known.append(Path(os.fsdecode(fs.read_bytes(note)).removesuffix("\n")).parent)
    except OSError:
        if not any(map(fs.status, (Path(name), *(place / note.name for place in known)))):
            raise
    return known


def remember_run(fs: FileSystem, environment: Mapping[str, str], folder: Path) -> str:
    """Notes where a run's folder is, so that its name is enough. Returns an error message, or "" on success."""
    try:
        fs.make_directory(notes_of(environment), parents=True)
        with fs.open(notes_of(environment) / folder.name, "create") as note:
            note.write_at(0, os.fsencode(f"{folder}\n"))
    except OSError as error:
        return f"{error.filename} cannot be written ({error.strerror}); seglog undo needs {folder}"
    return ""


def forget_run(fs: FileSystem, environment: Mapping[str, str], folder: Path) -> None:
    """Removes the note of a purged run. A note that cannot be removed stays and does no harm."""
    note = notes_of(environment) / folder.name
    with contextlib.suppress(OSError):
        if fs.status(note, follow=False) is not None:
            fs.remove(note)


def concerns(run: RunRecord, path: Path) -> bool:
    """True if a run changed the partition or log directory at `path`, is stored there, or `path` contains either."""
    full = partition_path(path)
    if full in (run.log_directory, *run.log_directory.parents, *run.folder.parents, run.folder):
        return True
    return full.parent == run.log_directory and full.name in run.partitions
