"""Runs, by what a user calls them: found, finished where they were cut short, and taken back (`seglog undo`).

Where a run's folder is, is noted below `$XDG_STATE_HOME/seglog/runs`, so that its name is enough from anywhere.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from seglog.cleaner.stats import state_directory
from seglog.format.filenames import QUARANTINE_WITHIN
from seglog.remote.routing import require_name
from seglog.runs.apply import settle_pending, undo_run
from seglog.runs.journal import RunRecord, RunState, read_journal
from seglog.runs.quarantine import QUARANTINE, find_run, pending_run
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import DirectoryLock

Settled = Callable[[RunRecord], None]


def unsettled(run: RunRecord) -> None:
    """Takes no notice of a run that was settled."""


def settle_unfinished(fs: FileSystem, log_directory: Path, settled: Settled) -> None:
    """Finishes or undoes the run that was cut short in a log directory, under its lock; `settled` is called with it.

    Does nothing, and locks nothing, when no run was cut short. LockedError when the directory is in use.
    """
    if pending_run(fs, log_directory) is not None:
        with DirectoryLock(log_directory):
            settle(fs, log_directory, settled)


def settle(fs: FileSystem, log_directory: Path, settled: Settled = unsettled) -> None:
    """The same for a caller that holds the lock."""
    run = settle_pending(fs, log_directory)
    if run is not None:
        settled(run)


def undo(fs: FileSystem, run: RunRecord) -> RunRecord:
    """Takes a run back: every file as it was, bit for bit. RefusedError when one changed again since; then nothing is
    done."""
    with DirectoryLock(run.log_directory):
        settle_pending(fs, run.log_directory)
        found = read_journal(fs, run.folder)
        if found.state is not RunState.UNDONE:
            undo_run(fs, found)
        return read_journal(fs, run.folder)


def named_run(fs: FileSystem, environment: Mapping[str, str], name: str, quarantine: Path | None) -> RunRecord:
    """The run called `name`, or whose folder that is. NotALogError when it is nowhere."""
    return find_run(fs, name, places_of_run(fs, environment, name, quarantine))


def places_of_run(fs: FileSystem, environment: Mapping[str, str], name: str, quarantine: Path | None) -> list[Path]:
    """Where the run called `name` may be: without a quarantine around the working directory, and where this user made
    it. OSError where that cannot be read (of another user's home, as with sudo) and the run is nowhere else.
    """
    require_name(name)
    known = places(quarantine, Path.cwd())
    note = _notes(environment) / Path(name).name
    try:
        found = fs.status(note) if quarantine is None else None
        if found is not None and not (found.is_directory or found.is_special):  # as `.` would be
            known.append(Path(os.fsdecode(fs.read_bytes(note)).removesuffix("\n")).parent)
    except OSError:
        if not any(map(fs.status, (Path(name), *(place / note.name for place in known)))):
            raise
    return known


def remember_run(fs: FileSystem, environment: Mapping[str, str], folder: Path) -> str:
    """Notes where a run's folder is, so that its name is enough; why it could not be noted, or the empty string."""
    try:
        fs.make_directory(_notes(environment), parents=True)
        with fs.open(_notes(environment) / folder.name, "create") as note:
            note.write_at(0, os.fsencode(f"{folder}\n"))
    except OSError as error:
        return f"{error.filename} cannot be written ({error.strerror}); seglog undo needs {folder}"
    return ""


def forget_run(fs: FileSystem, environment: Mapping[str, str], folder: Path) -> None:
    """Removes the note of a run that is gone. One that cannot be reached stays: it leads nowhere."""
    note = _notes(environment) / folder.name
    with contextlib.suppress(OSError):
        if fs.status(note, follow=False) is not None:
            fs.remove(note)


def places(quarantine: Path | None, *paths: Path) -> list[Path]:
    """Where runs may be: the chosen quarantine, or those that belong to log directories at or around `paths`."""
    if quarantine is not None:
        return [links.resolve(quarantine)]
    found = []
    for path in paths:
        full = links.resolve(path)
        around = (full, full.parent, full.parent.parent)
        found += [full, *(parent / name for parent in around for name in (QUARANTINE, QUARANTINE_WITHIN))]
    return list(dict.fromkeys(found))


def concerns(run: RunRecord, path: Path) -> bool:
    """Whether a run changed what lies at `path`, a partition or a directory around it, or keeps what it took there."""
    full = links.resolve(path)
    if full in (run.log_directory, *run.log_directory.parents, *run.folder.parents, run.folder):
        return True
    return full.parent == run.log_directory and full.name in run.start.get("partitions", ())


def _notes(environment: Mapping[str, str]) -> Path:
    return state_directory(environment) / "runs"
