"""Finds what has changed in a run's partitions since the run, before an undo changes anything.

An undo restores whole partitions, so it is refused if a partition's records changed: a log was appended to, cleaned or
deleted, the topic was made anew, or its start moved. It is also refused if a later run changed the same partition: that
one must be undone first. What a broker derives from the records (indexes, snapshots, leader epochs) may have changed:
it goes back with them. So do the partitions' entries in shared checkpoints, whatever others wrote beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from seglog.errors import CorruptCheckpointError, RefusedError
from seglog.format import filenames
from seglog.format.checkpoint import parse_offset_checkpoint
from seglog.repairs.undo.journal import Change, RunRecord, RunState
from seglog.repairs.undo.partition_state import is_derived, is_live_log, own_entries
from seglog.repairs.undo.quarantine import crc_of, facts_of, runs_in, same_contents
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.room import check_space


class ChangedSinceError(RefusedError):
    """The partition has changed since the run: taking the run back would lose that change."""


def check_undo(fs: FileSystem, run: RunRecord) -> list[str]:
    """Returns the files, relative to the log directory, that came since and must go with an undo.

    Raises ChangedSinceError if records would be lost, RefusedError if what the run saved is damaged or does not fit
    the disk.
    """
    _refuse_later_runs(fs, run)
    if run.keeps_whole_partitions:
        for name in run.standing:
            _check_directory(fs, run, name)
    for change in run.changes:
        _check_saved(fs, run, change)
        _check_change(fs, run, change)
    tails = [change for change in run.changes if change.kind == "cut"]
    statuses = [fs.status(run.folder / change.saved) for change in tails]
    check_space(fs, run.log_directory, sum(status.allocated for status in statuses if status is not None))
    return list(_surplus(fs, run))


def kept_file(run: RunRecord, change: Change) -> Path:
    """Returns the file that a run saved for a change; follows a saved link as from its old place."""
    saved = run.folder / change.saved
    target = links.target_of(saved)
    return saved if target is None else (run.log_directory / change.path).parent / target


def _refuse_later_runs(fs: FileSystem, run: RunRecord) -> None:
    mine = set(run.partitions)
    defaults = (run.log_directory.parent / filenames.QUARANTINE, run.log_directory / filenames.QUARANTINE_WITHIN)
    later: dict[str, RunRecord] = {}
    for place in dict.fromkeys((run.folder.parent, *defaults)):
        for found in runs_in(fs, place):
            if not isinstance(found, RunRecord) or found.log_directory != run.log_directory:
                continue
            over = found.state in (RunState.UNDONE, RunState.STARTED) or found.name == run.name
            if not over and found.started_ms > run.started_ms:
                both = sorted(mine.intersection(found.partitions))
                if both:
                    later[both[0]] = found
    if later:
        name, last = max(later.items(), key=lambda item: item[1].started_ms)
        raise ChangedSinceError(
            f"{run.log_directory / name} was changed since {run.name}, by {last.name} ({last.command}): undo"
            " that run first"
        )


def _check_directory(fs: FileSystem, run: RunRecord, name: str) -> None:
    """Raises ChangedSinceError if the partition is gone, or if a log that the run left alone changed."""
    directory = run.log_directory / name
    found = fs.status(directory)
    if found is None or not found.is_directory:
        raise _changed(run, directory, "is gone")
    for file, facts in run.standing[name].items():
        if not facts:
            continue
        status = fs.status(directory / file)
        if status is None:
            raise _changed(run, directory / file, "is gone")
        if (status.size, status.modified_ns) != tuple(facts):
            raise _changed(run, directory / file, "was changed")


def _check_change(fs: FileSystem, run: RunRecord, change: Change) -> None:
    path = run.log_directory / change.path
    if change.kind == "entries":
        _check_entries(fs, run, change, path)
        return
    goes_back = run.keeps_whole_partitions and change.kind not in ("cut", "move") and is_derived(path.name)
    if not goes_back and not same_contents(change.after, facts_of(fs, path)):
        raise _changed(run, path, "was changed")


def _check_entries(fs: FileSystem, run: RunRecord, change: Change, path: Path) -> None:
    """Raises RefusedError for an unreadable checkpoint, and if records were deleted since: they would come back."""
    try:
        live = {} if fs.status(path) is None else parse_offset_checkpoint(fs.read_bytes(path), path)
    except CorruptCheckpointError as error:
        raise RefusedError(f"{error}; {run.name} can be undone after `seglog repair` has settled it") from error
    if change.path != filenames.LOG_START_OFFSET_CHECKPOINT:
        return
    for name, now in own_entries(live, change).items():
        before, after = change.entries[name]
        if now is not None and now not in (before, after) and now > (after or 0):
            raise _changed(run, run.log_directory / name, f"begins at offset {now}, which was set")


def _check_saved(fs: FileSystem, run: RunRecord, change: Change) -> None:
    if change.before is None:
        return
    saved = facts_of(fs, kept_file(run, change))
    if change.kind == "cut" and saved is not None and change.after is not None:
        whole = crc_of(fs, run.folder / change.saved, value=change.after.crc)
        saved = replace(saved, size=change.after.size + saved.size, crc=whole)
    if not same_contents(change.before, saved):
        raise RefusedError(f"{run.folder / change.saved} is not what {run.name} put there")


def _surplus(fs: FileSystem, run: RunRecord) -> Iterator[str]:
    """Yields derived files that neither were there before the run nor are the run's own."""
    own = {change.path for change in run.changes}
    for name, before in run.standing.items():
        for file in fs.list(run.log_directory / name):
            if file in before or f"{name}/{file}" in own:
                continue
            if is_live_log(file):
                raise _changed(run, run.log_directory / name / file, "was made")
            if is_derived(file):
                yield f"{name}/{file}"


def _changed(run: RunRecord, path: Path, what: str) -> ChangedSinceError:
    return ChangedSinceError(
        f"{path} {what} since {run.name}; undoing would lose the change. `seglog quarantine restore {run.name} -o DIR`"
        " copies the old files to another place"
    )
