"""Prepares a run: checks disk space, makes its folder in the quarantine and its journal, stages new contents, and
copies what an undo needs besides the changed files (`partition_state`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seglog.clock import Clock
from seglog.errors import RefusedError
from seglog.log.checkpoints import CleanShutdownMarker
from seglog.repairs.undo.journal import VERSION, Change, Journal, RunRecord, RunState, read_journal
from seglog.repairs.undo.partition_state import Settings, copies_of, stage_checkpoints, standing_of
from seglog.repairs.undo.quarantine import discard_staged, new_run, purge_run
from seglog.storage.filesystem import FileSystem, several_names
from seglog.storage.room import check_space


def prepare_run(
    fs: FileSystem,
    clock: Clock,
    log_directory: Path,
    stage: Callable[[Path], list[Change]],
    *,
    command: str,
    partitions: Sequence[str],
    bytes_needed: int,
    checkpoints: Settings | None = None,
    quarantine: Path | None = None,
    way_out: str = "",
    unclean: bool | None = None,
    **facts: Any,
) -> tuple[RunRecord, Journal]:
    """Returns a run that is ready to apply, and its journal; the log itself is unchanged.

    `stage` receives the run's folder, fills it durably, and returns the changes to make in the `partitions`, which are
    the names of their directories. `checkpoints` is what changes in the log directory's checkpoints. `facts` go into
    the journal's first line; `way_out` is the advice if disk space is short; `unclean` is as for `undoable`. Raises
    RefusedError if there is no place for a quarantine or not enough disk space, or for a cut in a file that has other
    names. A failure during staging leaves no folder.
    """
    check_space(fs, log_directory, bytes_needed, log_directory, way_out)
    folder = new_run(fs, clock, log_directory, quarantine)
    journal = Journal(fs, folder)
    journal.append(
        "start",
        version=VERSION,
        run=folder.name,
        command=command,
        log_directory=str(log_directory),
        started_ms=clock.now_ms(),
        partitions=list(partitions),
        unclean=not CleanShutdownMarker(fs, log_directory).found if unclean is None else unclean,
        **facts,
    )
    try:
        changes = stage(folder)
        changes += copies_of(fs, log_directory, folder, partitions, changes)
        changes += stage_checkpoints(fs, log_directory, folder, partitions, checkpoints or {})
        _require_one_name(fs, log_directory, changes)
        _make_durable(fs, log_directory, changes)
        journal.prepared(changes, standing_of(fs, log_directory, partitions, changes))
    except BaseException:
        discard_staged(fs, folder)
        failed = read_journal(fs, folder)
        if failed.state is RunState.STARTED:
            purge_run(fs, failed)
        raise
    return read_journal(fs, folder), journal


def _require_one_name(fs: FileSystem, log_directory: Path, changes: Sequence[Change]) -> None:
    """Raises RefusedError for a file to cut that has other names: a prepared run could be neither applied nor taken
    back."""
    for path in [log_directory / change.path for change in changes if change.kind == "cut"]:
        status = fs.status(path)
        if status is not None and status.names > 1:
            raise several_names(path, status.names)


def _make_durable(fs: FileSystem, log_directory: Path, changes: Sequence[Change]) -> None:
    """Syncs the files that will change: their writer may not have, and the journal must hold after a power cut."""
    paths = {log_directory / name for each in changes for name in (each.path, each.source) if name}
    for path in sorted(paths):
        if fs.status(path) is not None:
            with fs.open(path, "r") as file:
                file.sync()
    for directory in sorted({path.parent for path in paths}):
        fs.sync_directory(directory)


def require_one_file_system(fs: FileSystem, log_directory: Path, partitions: Sequence[Path]) -> None:
    """Raises RefusedError for a partition on another file system: a run moves files between it and its folder."""
    own = fs.status(log_directory)
    for path in partitions:
        found = fs.status(path)
        if found is not None and own is not None and found.device != own.device:
            raise RefusedError(
                f"{path} is on another file system than {log_directory}, and a run moves files between them; work on a"
                " copy, or use seglog salvage"
            )
