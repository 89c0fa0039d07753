"""Copies the old files of a run to another place without touching the log (`seglog quarantine restore`)."""

from __future__ import annotations

from pathlib import Path

from seglog.errors import RefusedError
from seglog.repairs.undo.beside import new_directory
from seglog.repairs.undo.journal import Change, RunRecord
from seglog.repairs.undo.quarantine import crc_of
from seglog.repairs.undo.since import kept_file
from seglog.storage.adapters import InheritingFileSystem
from seglog.storage.files import copy_bytes, copy_range
from seglog.storage.filesystem import FileSystem


def restore_run(fs: FileSystem, run: RunRecord, target: Path) -> list[Path]:
    """Copies the old files of a run below `target`, with their attributes; all or none. Returns their new paths.

    Raises RefusedError if `target` is not empty, or if the front of a file that the run cut has changed.
    """
    restored, made = [], InheritingFileSystem(fs)
    with new_directory(fs, target) as place:
        for change in run.changes:
            if change.before is None or fs.status(run.folder / change.saved, follow=False) is None:
                continue
            path, kept = place / change.path, kept_file(run, change)
            made.make_directory(path.parent, parents=True)
            if change.kind == "cut":
                _join(fs, run, change, path)
            else:
                copy_bytes(fs, kept, path, 0, change.before.size)
            fs.copy_attributes(kept, path)
            fs.sync_directory(path.parent)
            restored.append(target / change.path)
    return restored


def _join(fs: FileSystem, run: RunRecord, change: Change, path: Path) -> None:
    live, saved = run.log_directory / change.path, run.folder / change.saved
    assert change.before is not None and change.after is not None
    front = change.after.size
    status = fs.status(live)
    if status is None or status.size < front or crc_of(fs, live, 0, front) != change.after.crc:
        raise RefusedError(f"{live} no longer begins as {run.name} left it; the tail that it cut is {saved}")
    copy_bytes(fs, live, path, 0, front)
    with fs.open(saved, "r") as tail, fs.open(path, "r+") as file:
        copy_range(tail, 0, change.before.size - front, file, front)
        file.sync()
