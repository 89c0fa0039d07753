"""Where runs keep what they took out: `<quarantine>/<run>/` with `journal.jsonl`, `old/` and, while they work, `new/`.

The default is `.seglog-quarantine` beside the log directory: the same file system, so that moving a file costs no
copy, and outside `log.dirs`, where a broker refuses to start over a directory that is no partition. Where the log
directory is a mount point, it is the one directory within that a broker passes over (`filenames.QUARANTINE_WITHIN`).
A run in progress is named by the file `.seglog-run` in its log directory (a broker ignores plain files there);
whichever command writes next finds it and finishes or undoes it. Until then no broker starts: it would serve a part of
what the run makes, and write after it. So the empty directory `seglog-run-unfinished` lies there, too, over which every
broker ends with an error that names it.

Quarantines and runs are for the eyes of the user who made them. Marker and journal are obeyed only if nobody else can
have written them (`journal`, `storage.trust`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import CorruptionError, NotALogError, RefusedError, UnsupportedError
from seglog.format import checksum, filenames
from seglog.runs.journal import JOURNAL_FILE, NEW, FileFacts, RunRecord, is_absolute, read_journal
from seglog.storage import links
from seglog.storage.files import TEMPORARY_SUFFIX, pieces, remove_tree, write_atomically
from seglog.storage.filesystem import PRIVATE, FileStatus, FileSystem
from seglog.storage.trust import ROOT, described_user, read_trusted

QUARANTINE = ".seglog-quarantine"
PENDING_FILE = filenames.SEGLOG_RUN_FILE
BARRIER = filenames.SEGLOG_RUN_BARRIER

UNKNOWN_CRC = -1

_PROBE = f"{PENDING_FILE}{TEMPORARY_SUFFIX}"
_MARKER_BYTES = 8192
_RUN_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")
_BROKER_FILES = (
    filenames.META_PROPERTIES,
    filenames.RECOVERY_POINT_CHECKPOINT,
    filenames.HIGH_WATERMARK_CHECKPOINT,
)


def quarantine_of(fs: FileSystem, log_directory: Path, chosen: Path | None = None) -> Path:
    """The quarantine for a log directory: `chosen`, or the default. RefusedError when it cannot be there."""
    within = log_directory / filenames.QUARANTINE_WITHIN
    if chosen is not None:
        root = links.resolve(chosen)
    elif _device_of(fs, log_directory.parent) == _device_of(fs, log_directory):
        root = log_directory.parent / QUARANTINE
    else:
        root = within
    if root != within and (root == log_directory or log_directory in root.parents):
        raise RefusedError(
            f"{root} lies inside the log directory {log_directory}, and a broker would not start with it"
        )
    for parent in (root, *root.parents):
        is_own = parent == log_directory and root == within
        if not is_own and any(fs.status(parent / name) is not None for name in _BROKER_FILES):
            raise RefusedError(f"{root}: {parent} is a log directory itself; choose another with --quarantine DIR")
    existing = next(parent for parent in (root, *root.parents) if fs.status(parent) is not None)
    if _device_of(fs, existing) != _device_of(fs, log_directory):
        raise _elsewhere(root, log_directory)
    _require_safe(fs, root, log_directory)
    return root


def new_run(fs: FileSystem, clock: Clock, log_directory: Path, chosen: Path | None = None) -> Path:
    """Makes the folder of a new run in the quarantine `chosen` or the default one; nobody else can read or write it.

    The default is within the log directory where files cannot be moved to the place beside it, or nothing be made
    there. RefusedError when there is no place. The caller holds the log directory's lock.
    """
    quarantine, within = quarantine_of(fs, log_directory, chosen), log_directory / filenames.QUARANTINE_WITHIN
    is_last = chosen is not None or quarantine == within
    try:
        folder = _new_folder(fs, quarantine, clock)
    except OSError as error:
        if is_last:
            reason = error.strerror or str(error)
            raise RefusedError(
                f"{quarantine} cannot be written ({reason}); choose another place with --quarantine DIR"
            ) from error
        return new_run(fs, clock, log_directory, within)
    try:
        moves = _moves(fs, folder, log_directory)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_tree(fs, folder)
        raise
    if moves:
        return folder
    fs.remove_directory(folder)
    if is_last:
        raise _elsewhere(quarantine, log_directory)
    return new_run(fs, clock, log_directory, within)


def _new_folder(fs: FileSystem, quarantine: Path, clock: Clock) -> Path:
    moment = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    fs.make_directory(quarantine, parents=True, access=PRIVATE)
    while True:
        folder = quarantine / f"{moment}-{os.urandom(2).hex()}"
        if fs.status(folder, follow=False) is None:
            break
    fs.make_directory(folder, access=PRIVATE)
    fs.sync_directory(quarantine)
    fs.sync_directory(quarantine.parent)
    return folder


def _moves(fs: FileSystem, folder: Path, log_directory: Path) -> bool:
    """Whether files can be moved from a run's folder to the log directory: two mounts of one device say no."""
    probe, moved = folder / _PROBE, log_directory / _PROBE
    fs.open(probe, "create_new").close()
    try:
        fs.rename(probe, moved)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        fs.remove(probe)
        return False
    with contextlib.suppress(OSError):  # `mark_pending` writes over it, or the next command removes it
        fs.remove(moved)
    return True


def _elsewhere(root: Path, log_directory: Path) -> RefusedError:
    return RefusedError(
        f"{root} is not on the file system of {log_directory}, so that files cannot be moved there: choose a place that"
        f" is with --quarantine DIR, such as {log_directory / filenames.QUARANTINE_WITHIN}, which brokers pass over"
    )


def _require_safe(fs: FileSystem, root: Path, log_directory: Path) -> None:
    """Others must not be able to move runs out of a quarantine that is there already."""
    found, owner = fs.status(root), _status(fs, log_directory).owner
    if found is None:
        return
    if found.owner not in (ROOT, os.geteuid(), owner):
        reason = f"belongs to {described_user(found.owner)}"
    elif found.mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.mode & stat.S_ISVTX:
        reason = "may be written by other users"
    else:
        return
    raise RefusedError(f"{root} {reason}, who could take away what is kept there; choose another with --quarantine DIR")


def runs_in(fs: FileSystem, quarantine: Path) -> Iterator[RunRecord | Exception]:
    """The runs that a quarantine holds, oldest first; an error, not raised, for one that cannot be read, or of which
    only the folder is left.
    """
    if fs.status(quarantine) is None:
        return
    for name in fs.list(quarantine):
        try:
            if fs.status(quarantine / name / JOURNAL_FILE) is not None:
                yield read_journal(fs, quarantine / name)
            elif _is_left_over(fs, quarantine / name):
                remedy = f"seglog quarantine purge {name} --yes removes it"
                yield NotALogError(quarantine / name, f"empty: a purge that was cut short left it, and {remedy}")
        except (CorruptionError, RefusedError, UnsupportedError, OSError) as error:
            yield error


def find_run(fs: FileSystem, run: str, places: list[Path]) -> RunRecord:
    """The run of this name in one of the quarantines `places`, or at this path. NotALogError when it is nowhere."""
    for folder in (*(place / run for place in places), Path(run)):
        if fs.status(folder / JOURNAL_FILE) is not None:
            return read_journal(fs, links.resolve(folder))
    looked = ", ".join(map(str, places))
    raise NotALogError(Path(run), f"no run of this name in {looked}")


def purge_run(fs: FileSystem, run: RunRecord) -> int:
    """Removes a run's folder for good; returns the bytes freed. RefusedError while it is unfinished."""
    if pending_run(fs, run.log_directory) == run.folder:
        raise RefusedError(f"{run.name} is unfinished; it must be finished or undone first")
    return remove_tree(fs, run.folder, last=JOURNAL_FILE)


def purge_left_over(fs: FileSystem, run: str, places: list[Path]) -> Path | None:
    """Removes the empty folder that a purge of this run left when it was cut short; returns its path, or None."""
    for folder in (*(place / run for place in places), Path(run)):
        if _is_left_over(fs, folder):
            fs.remove_directory(folder)
            return folder
    return None


def _is_left_over(fs: FileSystem, folder: Path) -> bool:
    found = fs.status(folder, follow=False)
    is_run = _RUN_NAME.fullmatch(folder.name) and found is not None and found.is_directory
    return bool(is_run) and not fs.list(folder)


def saved_bytes(fs: FileSystem, folder: Path) -> int:
    """Bytes in all files below a folder."""
    total = 0
    for name in fs.list(folder) if fs.status(folder) is not None else ():
        status = fs.status(folder / name, follow=False)
        if status is not None:
            total += saved_bytes(fs, folder / name) if status.is_directory else status.size
    return total


def discard_staged(fs: FileSystem, folder: Path) -> None:
    """Removes what a run staged and no longer needs."""
    found = fs.status(folder / NEW, follow=False)
    if found is not None and found.is_directory:
        remove_tree(fs, folder / NEW)


# --- the run in progress ----------------------------------------------------------------------------------


def mark_pending(fs: FileSystem, log_directory: Path, folder: Path) -> None:
    """Names the run in the log directory and bars brokers from it; durable on return. Both stay this user's.

    The name comes first: a barrier alone would be lifted by nobody.
    """
    # A run that is taken back is marked already: it may be a full disk that it failed on.
    if fs.status(log_directory / PENDING_FILE, follow=False) is None or pending_run(fs, log_directory) != folder:
        write_atomically(fs, log_directory / PENDING_FILE, os.fsencode(f"{folder}\n"), access=PRIVATE)
    barrier = log_directory / BARRIER
    found = fs.status(barrier, follow=False)
    if found is not None and not found.is_directory:
        raise RefusedError(f"{barrier} is not a directory; remove it, so that one can bar brokers while files change")
    if found is None:
        fs.make_directory(barrier, access=PRIVATE)
        fs.sync_directory(log_directory)


def clear_pending(fs: FileSystem, log_directory: Path) -> None:
    """The run is over: brokers may start."""
    found = fs.status(log_directory / BARRIER, follow=False)
    if found is not None and found.is_directory:
        fs.remove_directory(log_directory / BARRIER)
        fs.sync_directory(log_directory)
    if fs.status(log_directory / PENDING_FILE, follow=False) is not None:
        fs.remove(log_directory / PENDING_FILE)
        fs.sync_directory(log_directory)


def clear_probe(fs: FileSystem, log_directory: Path) -> None:
    """Removes what was left of a run that was cut short before it was marked. The caller holds the directory's lock."""
    if fs.status(log_directory / _PROBE, follow=False) is not None:
        fs.remove(log_directory / _PROBE)


def pending_run(fs: FileSystem, log_directory: Path) -> Path | None:
    """The folder of the run that was cut short in this log directory, or None.

    RefusedError for a marker that others can have written, or that names no folder: whoever owns the log directory
    could make one.
    """
    path = log_directory / PENDING_FILE
    marker = read_trusted(fs, path, _MARKER_BYTES)
    if marker is None:
        return None
    folder = os.fsdecode(marker).removesuffix("\n")
    if not is_absolute(folder):
        raise RefusedError(f"{path} does not name the folder of a run; remove it and {BARRIER} to go on without it")
    return Path(folder)


# --- files ------------------------------------------------------------------------------------------------


def facts_of(fs: FileSystem, path: Path, crc: int | None = None) -> FileFacts | None:
    """Size, checksum (read from the file unless given) and attributes; None when there is no such file.

    UNKNOWN_CRC is for a file that moves as it is, and may be too large to be read for that.
    """
    status = fs.status(path)
    if status is None:
        return None
    if crc is None:
        crc = crc_of(fs, path)
    return FileFacts(status.size, crc, status.modified_ns, status.mode, status.owner, status.group)


def crc_of(fs: FileSystem, path: Path, start: int = 0, end: int | None = None, value: int = 0) -> int:
    """CRC-32C of a file's bytes from `start` to `end`, continuing from `value`."""
    with fs.open(path, "r") as file:
        for piece in pieces(file, start, file.size() if end is None else end):
            value = checksum.crc32c(piece, value)
    return value


def same_contents(facts: FileFacts | None, found: FileFacts | None) -> bool:
    """Whether size and checksum, where it is known, agree (or there is no file, both times)."""
    if facts is None or found is None:
        return facts is found
    return facts.size == found.size and (facts.crc == found.crc or UNKNOWN_CRC in (facts.crc, found.crc))


def _device_of(fs: FileSystem, path: Path) -> int:
    return _status(fs, path).device


def _status(fs: FileSystem, path: Path) -> FileStatus:
    status = fs.status(path)
    if status is None:
        raise NotALogError(path, "no such directory")
    return status
