"""The quarantine, where runs keep removed data: `<quarantine>/<run>/` holds `journal.jsonl`, `old/` and, during the
run, `new/`.

The default quarantine is `.seglog-quarantine` beside the log directory: on the same file system, so that moving a file
copies nothing, and outside `log.dirs`, in which a broker refuses to start if a directory is not a partition. If the log
directory is a mount point, the default is the one directory inside it that a broker ignores
(`filenames.QUARANTINE_WITHIN`).

The file `.seglog-run` in a log directory names the run in progress (a broker ignores plain files there); the next
command that writes finds it and finishes or undoes the run. Until then no broker may start, since it would serve and
extend a half-made log. The empty directory `seglog-run-unfinished` prevents that: every broker stops with an error that
names it.

Quarantines and runs are readable only by the user who made them. Marker and journal are trusted only if nobody else can
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
from seglog.repairs.undo.journal import JOURNAL_FILE, NEW, FileFacts, RunRecord, is_absolute, read_journal
from seglog.storage import links
from seglog.storage.files import pieces, remove_tree
from seglog.storage.filesystem import PRIVATE, TEMPORARY_SUFFIX, FileStatus, FileSystem, write_atomically
from seglog.storage.trust import ROOT, described_user, read_trusted

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
    """Returns a log directory's quarantine: `chosen`, or the default. Raises RefusedError if it cannot be there."""
    within = log_directory / filenames.QUARANTINE_WITHIN
    if chosen is not None:
        root = links.resolve(chosen)
    elif _status(fs, log_directory.parent).device == _status(fs, log_directory).device:
        root = log_directory.parent / filenames.QUARANTINE
    else:
        root = within
    if root != within and (root == log_directory or log_directory in root.parents):
        raise RefusedError(f"{root} is inside the log directory {log_directory}, and a broker would not start with it")
    for parent in (root, *root.parents):
        is_own = parent == log_directory and root == within
        if not is_own and any(fs.status(parent / name) is not None for name in _BROKER_FILES):
            raise RefusedError(f"{root}: {parent} is a log directory itself; choose another with --quarantine DIR")
    existing = next(parent for parent in (root, *root.parents) if fs.status(parent) is not None)
    if _status(fs, existing).device != _status(fs, log_directory).device:
        raise _elsewhere(root, log_directory)
    _require_safe(fs, root, log_directory)
    return root


def new_run(fs: FileSystem, clock: Clock, log_directory: Path, chosen: Path | None = None) -> Path:
    """Makes a private folder for a new run in the quarantine `chosen`, or in the default one.

    Falls back to the default inside the log directory if the one beside it cannot be written, or if files cannot be
    moved there. Raises RefusedError if there is no place. The caller holds the log directory's lock.
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
    folder = quarantine / f"{moment}-{_number(fs, quarantine, moment):04x}"
    fs.make_directory(folder, access=PRIVATE)
    fs.sync_directory(quarantine)
    fs.sync_directory(quarantine.parent)
    return folder


def _number(fs: FileSystem, quarantine: Path, moment: str) -> int:
    """Returns the number of a run that starts in that second: a random one, then the next; so names sort as runs."""
    earlier = [name for name in fs.list(quarantine) if name.startswith(moment) and _RUN_NAME.fullmatch(name)]
    return int(max(earlier)[-4:], 16) + 1 if earlier else int.from_bytes(os.urandom(2), "little") // 2


def _moves(fs: FileSystem, folder: Path, log_directory: Path) -> bool:
    """True if files can be moved from a run's folder to the log directory; not so between two mounts of one device."""
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
        f"{root} is not on the file system of {log_directory}, so files cannot be moved there: choose a place that is"
        f" with --quarantine DIR, such as {log_directory / filenames.QUARANTINE_WITHIN}, which brokers ignore"
    )


def _require_safe(fs: FileSystem, root: Path, log_directory: Path) -> None:
    """Raises RefusedError if other users could move runs out of an existing quarantine."""
    found, owner = fs.status(root), _status(fs, log_directory).owner
    if found is None:
        return
    if found.owner not in (ROOT, os.geteuid(), owner):
        reason = f"belongs to {described_user(found.owner)}"
    elif found.mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.mode & stat.S_ISVTX:
        reason = "may be written by other users"
    else:
        return
    raise RefusedError(f"{root} {reason}, who could remove the data kept there; choose another with --quarantine DIR")


def runs_in(fs: FileSystem, quarantine: Path) -> Iterator[RunRecord | Exception]:
    """Yields the runs in a quarantine, oldest first, and in place of a run an error if it cannot be read or if only its
    empty folder is left.
    """
    if fs.status(quarantine) is None:
        return
    for name in fs.list(quarantine):
        try:
            if fs.status(quarantine / name / JOURNAL_FILE) is not None:
                yield read_journal(fs, quarantine / name)
            elif _is_left_over(fs, quarantine / name):
                remedy = f"seglog quarantine purge {name} --yes removes it"
                yield NotALogError(quarantine / name, f"empty: an interrupted purge left it, and {remedy}")
        except (CorruptionError, RefusedError, UnsupportedError, OSError) as error:
            yield error


def find_run(fs: FileSystem, run: str, places: list[Path]) -> RunRecord:
    """Returns the run of this name in one of the quarantines `places`, or at this path. Raises NotALogError if none."""
    for folder in (*(place / run for place in places), Path(run)):
        if fs.status(folder / JOURNAL_FILE) is not None:
            return read_journal(fs, links.resolve(folder))
    raise NotALogError(Path(run), f"no run of this name in {', '.join(map(str, places))}")


def purge_run(fs: FileSystem, run: RunRecord) -> int:
    """Removes a run's folder for good; returns the bytes freed. Raises RefusedError if the run is unfinished."""
    if pending_run(fs, run.log_directory) == run.folder:
        raise RefusedError(f"{run.name} is unfinished; it must be finished or undone first")
    return remove_tree(fs, run.folder, last=JOURNAL_FILE)


def purge_left_over(fs: FileSystem, run: str, places: list[Path]) -> Path | None:
    """Removes the empty folder that an interrupted purge of this run left; returns its path, or None."""
    for folder in (*(place / run for place in places), Path(run)):
        if _is_left_over(fs, folder):
            fs.remove_directory(folder)
            return folder
    return None


def _is_left_over(fs: FileSystem, folder: Path) -> bool:
    if not _RUN_NAME.fullmatch(folder.name):
        return False
    found = fs.status(folder, follow=False)
    return found is not None and found.is_directory and not fs.list(folder)


def saved_bytes(fs: FileSystem, folder: Path) -> int:
    """Returns the bytes in all files below a folder, 0 if there is none."""
    total = 0
    for name in fs.list(folder) if fs.status(folder) is not None else ():
        status = fs.status(folder / name, follow=False)
        if status is not None:
            total += saved_bytes(fs, folder / name) if status.is_directory else status.size
    return total


def discard_staged(fs: FileSystem, folder: Path) -> None:
    """Removes a run's staged files."""
    found = fs.status(folder / NEW, follow=False)
    if found is not None and found.is_directory:
        remove_tree(fs, folder / NEW)


# --- the run in progress ----------------------------------------------------------------------------------


def mark_pending(fs: FileSystem, log_directory: Path, folder: Path) -> None:
    """Names the run in the log directory and bars brokers from it; durable on return. Both files stay this user's.

    The name comes first: nothing would remove a barrier alone.
    """
    # A run to take back is marked already; it may have failed on a full disk, so its mark is not written again.
    if fs.status(log_directory / PENDING_FILE, follow=False) is None or pending_run(fs, log_directory) != folder:
        write_atomically(fs, log_directory / PENDING_FILE, os.fsencode(f"{folder}\n"), access=PRIVATE)
    barrier = log_directory / BARRIER
    found = fs.status(barrier, follow=False)
    if found is not None and not found.is_directory:
        raise RefusedError(f"{barrier} is not a directory; remove it: a directory must bar brokers while files change")
    if found is None:
        fs.make_directory(barrier, access=PRIVATE)
        fs.sync_directory(log_directory)


def clear_pending(fs: FileSystem, log_directory: Path) -> None:
    """Removes the run's mark and the barrier: brokers may start again."""
    found = fs.status(log_directory / BARRIER, follow=False)
    if found is not None and found.is_directory:
        fs.remove_directory(log_directory / BARRIER)
        fs.sync_directory(log_directory)
    if fs.status(log_directory / PENDING_FILE, follow=False) is not None:
        fs.remove(log_directory / PENDING_FILE)
        fs.sync_directory(log_directory)


def clear_probe(fs: FileSystem, log_directory: Path) -> None:
    """Removes the probe file of a run that was interrupted before its mark. The caller holds the directory's lock."""
    if fs.status(log_directory / _PROBE, follow=False) is not None:
        fs.remove(log_directory / _PROBE)


def pending_run(fs: FileSystem, log_directory: Path) -> Path | None:
    """Returns the folder of the unfinished run in a log directory, or None.

    Raises RefusedError for a marker that another user, such as the log directory's owner, can have written, or that
    names no folder.
    """
    path = log_directory / PENDING_FILE
    marker = read_trusted(fs, path, _MARKER_BYTES)
    if marker is None:
        return None
    folder = os.fsdecode(marker).removesuffix("\n")
    if not is_absolute(folder):
        raise RefusedError(f"{path} does not name the folder of a run; remove it and {BARRIER} to continue without it")
    return Path(folder)


# --- files ------------------------------------------------------------------------------------------------


def facts_of(fs: FileSystem, path: Path, crc: int | None = None) -> FileFacts | None:
    """Returns a file's size, checksum (read from the file unless given) and attributes; None if it does not exist.

    UNKNOWN_CRC is for a file that moves unchanged and may be too large to read for that.
    """
    status = fs.status(path)
    if status is None:
        return None
    crc = crc_of(fs, path) if crc is None else crc
    return FileFacts(status.size, crc, status.modified_ns, status.mode, status.owner, status.group)


def crc_of(fs: FileSystem, path: Path, start: int = 0, end: int | None = None, value: int = 0) -> int:
    """Returns the CRC-32C of a file's bytes from `start` to `end`, continuing from `value`."""
    with fs.open(path, "r") as file:
        for piece in pieces(file, start, file.size() if end is None else end):
            value = checksum.crc32c(piece, value)
    return value


def same_contents(facts: FileFacts | None, found: FileFacts | None) -> bool:
    """True if sizes and known checksums agree, or if there is no file either time."""
    if facts is None or found is None:
        return facts is found
    return facts.size == found.size and (facts.crc == found.crc or UNKNOWN_CRC in (facts.crc, found.crc))


def _status(fs: FileSystem, path: Path) -> FileStatus:
    status = fs.status(path)
    if status is None:
        raise NotALogError(path, "no such directory")
    return status
