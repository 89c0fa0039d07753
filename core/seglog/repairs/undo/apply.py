"""Applies a run's changes, finishes them after a crash, and takes them back.

All new contents are staged and synced before the first change, and no old byte is overwritten: old files move into the
run's folder, and a tail is copied there before it is cut off. Every step can therefore be repeated, and an interrupted
run can be finished or taken back from any point.

Applying, one segment at a time:

1. The old files get a second name in the run's folder (a hard link; a move if the file system has no links). Nothing
   writes to them under either name while the lock is held. A symbolic link moves; its target stays in place.
2. The staged files become `.swap` files, the `.log` first, and then take the final names. This is the protocol of
   `log.swap`, which a broker completes if it finds it interrupted.
3. A cut follows its segment's new indexes, which fit the shorter file as well as the longer one.

Taking back does the same in reverse with the old files, after `since` has found nothing that it would lose. Of the
checkpoints that all partitions share, only the run's own entries go back. While a run changes files, no broker starts
on the log directory (`quarantine.mark_pending`), and the directory's clean-shutdown marker is in the run's folder.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from seglog.errors import RefusedError, SeglogError
from seglog.format.checkpoint import format_offset_checkpoint, parse_offset_checkpoint
from seglog.format.filenames import CLEAN_SHUTDOWN_FILE
from seglog.log.checkpoints import CleanShutdownMarker
from seglog.model import TopicPartition
from seglog.repairs.undo.journal import Change, Journal, RunRecord, RunState, read_journal
from seglog.repairs.undo.partition_state import own_entries, restored_entries
from seglog.repairs.undo.quarantine import (
    BARRIER,
    PENDING_FILE,
    clear_pending,
    clear_probe,
    discard_staged,
    facts_of,
    mark_pending,
    pending_run,
    same_contents,
)
from seglog.repairs.undo.since import check_undo
from seglog.storage.adapters import InheritingFileSystem
from seglog.storage.files import copy_bytes, copy_range
from seglog.storage.filesystem import FileSystem, write_atomically

_SWAP = ".swap"
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP)


def apply_run(fs: FileSystem, run: RunRecord, journal: Journal) -> None:
    """Makes the remaining changes of a prepared run and verifies them against the journal.

    Raises RefusedError if a file is neither what it was nor what it should become.
    """
    mark_pending(fs, run.log_directory, run.folder)
    # A broker that is made to start in spite of the barrier then recovers every log, as after a crash.
    _move_marker(fs, run.log_directory, run.folder)
    _make_folders(fs, run)
    index = 0
    for _, changes in groupby(run.changes, key=lambda change: (change.group, Path(change.path).parent)):
        group = list(changes)
        journal.append("change", index=index, count=len(group))
        _apply_group(fs, run, group)
        index += len(group)
    check_result(fs, run)
    journal.append("applied")


def finish_run(fs: FileSystem, run: RunRecord, journal: Journal) -> None:
    """Marks a verified run as finished; from now on it can only be undone."""
    _move_marker(fs, run.folder, run.log_directory)
    journal.append("finished")
    clear_pending(fs, run.log_directory)
    discard_staged(fs, run.folder)


def check_result(fs: FileSystem, run: RunRecord) -> None:
    """Reads every changed file again. Raises RefusedError if one differs from the journal."""
    for change in run.changes:
        found = facts_of(fs, run.log_directory / change.path)
        if not same_contents(change.after, found):
            raise RefusedError(
                f"{run.log_directory / change.path} is not what the run {run.name} made of it; the old file is in"
                f" {run.folder}"
            )


def settle_pending(fs: FileSystem, log_directory: Path) -> RunRecord | None:
    """Finishes or undoes the unfinished run in a log directory; returns it, or None if there is none.

    The caller holds the directory's lock. Raises RefusedError if files were changed in the meantime.
    """
    folder = pending_run(fs, log_directory)
    if folder is None:
        clear_probe(fs, log_directory)
        return None
    if fs.status(folder) is None:
        raise RefusedError(
            f"{log_directory}: the run in {folder} is unfinished and its folder is missing; put it back, or remove"
            f" {log_directory / PENDING_FILE} and {BARRIER} to continue without it"
        )
    run, journal = read_journal(fs, folder), Journal(fs, folder)
    _require_own(fs, run, log_directory)
    if run.state in (RunState.PREPARED, RunState.APPLIED):
        apply_run(fs, run, journal)
        finish_run(fs, run, journal)
    elif run.state is RunState.UNDOING:
        take_back(fs, run, journal)
    else:
        clear_pending(fs, log_directory)
    return read_journal(fs, folder)


def _require_own(fs: FileSystem, run: RunRecord, log_directory: Path) -> None:
    """Raises RefusedError if the run belongs to another log directory: an owner of both can have moved the marker."""
    theirs, ours = fs.status(run.log_directory), fs.status(log_directory)
    is_same = theirs is not None and ours is not None and (theirs.device, theirs.inode) == (ours.device, ours.inode)
    if not is_same or run.start["run"] != run.name:
        raise RefusedError(
            f"{log_directory / PENDING_FILE} names {run.folder}, a run in {run.log_directory}; remove it and {BARRIER}"
            " to continue without it"
        )


def undo_run(fs: FileSystem, run: RunRecord) -> None:
    """Restores every file bit for bit, with its times, mode and owner. The caller holds the directory's lock.

    Raises ChangedSinceError if the partitions have changed since (`since`), RefusedError if there is nothing to undo.
    """
    if run.state is RunState.UNDONE:
        raise RefusedError(f"{run.name} was undone before")
    if run.state is RunState.STARTED:
        raise RefusedError(f"{run.name} changed nothing: it was interrupted during preparation")
    surplus = check_undo(fs, run) if run.state is not RunState.UNDOING else []
    try:
        take_back(fs, run, Journal(fs, run.folder), surplus)
    except KeyboardInterrupt:  # a run taken back in part would keep brokers from starting
        take_back(fs, run, Journal(fs, run.folder))
        raise
    except OSError as error:
        if read_journal(fs, run.folder).state is not RunState.UNDOING:
            raise
        left = (
            f"{error.strerror or error}; {run.name} is taken back in part: the next seglog command that changes"
            f" {run.log_directory} continues, and until then no broker starts on it"
        )
        raise OSError(error.errno, left, error.filename) from error


def take_back_after(cause: BaseException, fs: FileSystem, run: RunRecord, journal: Journal) -> None:
    """Takes a failed run back. If that fails too, raises the cause with a note on what is left to do."""
    try:
        take_back(fs, run, journal)
    except (SeglogError, OSError) as error:
        left = (
            f"; {run.name} could not be taken back either ({error}): the next seglog command that changes"
            f" {run.log_directory} does, and until then no broker starts on it"
        )
        if isinstance(cause, OSError):
            raise OSError(cause.errno, f"{cause.strerror or cause}{left}", cause.filename) from cause
        if isinstance(cause, SeglogError):
            raise RefusedError(f"{cause}{left}") from cause
        raise


def take_back(fs: FileSystem, run: RunRecord, journal: Journal, surplus: Sequence[str] = ()) -> None:
    """Takes a run back, from any point, and removes the files `surplus` (relative to the log directory).

    Raises RefusedError if a file differs afterwards from what it was before the run.
    """
    if read_journal(fs, run.folder).state is not RunState.UNDOING:
        mark_pending(fs, run.log_directory, run.folder)
        journal.append("undoing", surplus=list(surplus))
    if run.start.get("unclean"):
        CleanShutdownMarker(fs, run.log_directory).remove()  # the old files were not closed properly
    _move_marker(fs, run.log_directory, run.folder)
    for change in reversed(run.changes):
        _revert(fs, run, change)
    later = read_journal(fs, run.folder).surplus
    for name in later:
        if fs.status(run.log_directory / name, follow=False) is not None:
            fs.remove(run.log_directory / name)
    _sync(fs, {(run.log_directory / name).parent for name in (*later, *(change.path for change in run.changes))})
    for change in run.changes:
        path = run.log_directory / change.path
        if not _is_restored(fs, change, path):
            raise RefusedError(f"{path} could not be restored as it was; what is left of it is in {run.folder}")
    _move_marker(fs, run.folder, run.log_directory)
    journal.append("undone")
    clear_pending(fs, run.log_directory)
    discard_staged(fs, run.folder)


def _is_restored(fs: FileSystem, change: Change, path: Path) -> bool:
    if change.kind != "entries":
        return same_contents(change.before, facts_of(fs, path))
    found = own_entries(_offsets(fs, path), change)
    return all(found[name] == before for name, (before, _) in change.entries.items())


def _move_marker(fs: FileSystem, source: Path, target: Path) -> None:
    """Moves the clean-shutdown marker, durably, if there is one."""
    if fs.status(source / CLEAN_SHUTDOWN_FILE) is not None:
        fs.rename(source / CLEAN_SHUTDOWN_FILE, target / CLEAN_SHUTDOWN_FILE)
        fs.sync_directory(target)
        fs.sync_directory(source)


# --- forward ----------------------------------------------------------------------------------------------


def _make_folders(fs: FileSystem, run: RunRecord) -> None:
    folders = sorted({(run.folder / change.saved).parent for change in run.changes if change.saved})
    for folder in folders:
        if fs.status(folder) is None:
            fs.make_directory(folder, parents=True)
            fs.sync_directory(folder.parent)
            fs.sync_directory(folder.parent.parent)


def _apply_group(fs: FileSystem, run: RunRecord, changes: Sequence[Change]) -> None:
    replaced = [change for change in changes if change.kind in ("replace", "entries")]
    saved_in = {(run.folder / change.saved).parent for change in changes if change.saved}
    live_in = {(run.log_directory / change.path).parent for change in changes}
    for change in changes:
        _save(fs, run, change)
    _sync(fs, saved_in)
    for change in replaced:
        _move_if_there(fs, run.folder / change.staged, _swap_of(run, change))
    _sync(fs, live_in)
    for change in changes:
        if change.kind == "remove":
            _remove_if_saved(fs, run, change)
    for change in replaced:
        _move_if_there(fs, _swap_of(run, change), run.log_directory / change.path)
    for change in changes:
        if change.kind == "move":
            _move_if_there(fs, run.log_directory / change.source, run.log_directory / change.path)
    _sync(fs, live_in)
    for change in changes:
        if change.kind == "cut":
            _cut(fs, run, change)


def _save(fs: FileSystem, run: RunRecord, change: Change) -> None:
    """Saves the data that a change removes into the run's folder, unless it is there already."""
    live, saved = run.log_directory / change.path, run.folder / change.saved
    if change.before is None or fs.status(saved, follow=False) is not None:
        return
    status, name = fs.status(live), fs.status(live, follow=False)
    if status is None or (status.size, status.modified_ns) != (change.before.size, change.before.modified_ns):
        raise RefusedError(f"{live} was changed while {run.name} was unfinished; the saved files are in {run.folder}")
    if change.kind == "cut":
        assert change.after is not None
        temporary = saved.with_name(saved.name + ".part")
        copy_bytes(fs, live, temporary, change.after.size, change.before.size)
        fs.copy_attributes(live, temporary)
        fs.rename(temporary, saved)
        return
    if name is not None and name.is_link:
        fs.rename(live, saved)  # links with a second name are never followed
        return
    try:
        fs.link(live, saved)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        fs.rename(live, saved)


def _remove_if_saved(fs: FileSystem, run: RunRecord, change: Change) -> None:
    """Removes the old file if it is saved and still has its name: another file may, such as a new `.swap`."""
    paths = run.log_directory / change.path, run.folder / change.saved
    live, saved = (fs.status(path, follow=False) for path in paths)
    if live is not None and saved is not None and live.inode == saved.inode:
        fs.remove(run.log_directory / change.path)


def _cut(fs: FileSystem, run: RunRecord, change: Change) -> None:
    live = run.log_directory / change.path
    assert change.after is not None and change.before is not None
    with fs.open(live, "r+") as file:
        if file.size() > change.after.size:
            file.truncate(change.after.size)
            file.sync()
    # The segment keeps its modification time, which the saved tail carries.
    fs.copy_attributes(run.folder / change.saved, live)


def _move_if_there(fs: FileSystem, source: Path, target: Path) -> None:
    if fs.status(source) is not None:
        fs.rename(source, target)


def _swap_of(run: RunRecord, change: Change) -> Path:
    live = run.log_directory / change.path
    # A broker knows `.swap` only for segment files; other files are replaced in one step.
    return live if change.group < 0 else live.with_name(live.name + _SWAP)


def _sync(fs: FileSystem, directories: Iterable[Path]) -> None:
    for directory in directories:
        fs.sync_directory(directory)


# --- backward ---------------------------------------------------------------------------------------------


def _revert(fs: FileSystem, run: RunRecord, change: Change) -> None:
    live, saved = run.log_directory / change.path, run.folder / change.saved
    if change.kind == "entries":
        _revert_entries(fs, change, live, saved)
        return
    if change.kind == "cut":
        _join_again(fs, change, live, saved)
        return
    if change.kind == "replace":
        swap = _swap_of(run, change)
        is_ours = fs.status(run.folder / change.staged) is None
        if swap != live and is_ours and fs.status(swap) is not None:
            fs.remove(swap)
    if change.kind == "move" and fs.status(run.log_directory / change.source) is None:
        fs.rename(live, run.log_directory / change.source)
    if change.before is None:
        if change.kind == "replace" and fs.status(live) is not None:
            fs.remove(live)
    elif fs.status(saved, follow=False) is not None:
        fs.rename(saved, live)
        # rename(2) leaves both names if they are links to one file
        if fs.status(saved, follow=False) is not None:
            fs.remove(saved)


def _revert_entries(fs: FileSystem, change: Change, live: Path, saved: Path) -> None:
    """Restores the run's own entries of a checkpoint; the whole file, with its times, if no others changed since."""
    now, offsets = facts_of(fs, live), _offsets(fs, live)
    wanted = restored_entries(offsets, change)
    if same_contents(change.after, now) or same_contents(change.before, now):
        if change.before is None and now is not None:
            fs.remove(live)
        elif change.before is not None and fs.status(saved) is not None:
            fs.rename(saved, live)
    elif change.before is None and not wanted:
        fs.remove(live)
    elif wanted != offsets:
        write_atomically(InheritingFileSystem(fs), live, format_offset_checkpoint(wanted, sort=False))


def _offsets(fs: FileSystem, path: Path) -> dict[TopicPartition, int]:
    return {} if fs.status(path) is None else parse_offset_checkpoint(fs.read_bytes(path), path)


def _join_again(fs: FileSystem, change: Change, live: Path, saved: Path) -> None:
    status = fs.status(saved)
    if status is None:
        return  # the run was interrupted before it cut this file
    assert change.after is not None
    with fs.open(saved, "r") as tail, fs.open(live, "r+") as file:
        copy_range(tail, 0, status.size, file, change.after.size)
        file.sync()
    fs.copy_attributes(saved, live)
