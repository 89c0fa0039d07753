"""Where runs keep what they took out: `<quarantine>/<run>/` with `journal.jsonl`, `old/` and, while they work, `new/`.

The default is `.seglog-quarantine` beside the log directory: the same file system, so that moving a file costs no
copy, and outside `log.dirs`, where a broker refuses to start over a directory that is no partition. A run in
progress is named by the file `.seglog-run` in its log directory (a broker ignores plain files there); whichever
command writes next finds it and finishes or undoes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from seglog.clock import Clock
from seglog.diagnosis.journal import JOURNAL_FILE, FileFacts, RunRecord, read_journal
from seglog.errors import CorruptionError, NotALogError, RefusedError
from seglog.format import checksum, filenames
from seglog.storage import links
from seglog.storage.atomic import write_atomically
from seglog.storage.filesystem import FileStatus, FileSystem

QUARANTINE = ".seglog-quarantine"
PENDING_FILE = filenames.SEGLOG_RUN_FILE

OLD, NEW = "old", "new"

_PIECE_BYTES = 1 << 20
_BROKER_FILES = (
    filenames.META_PROPERTIES,
    filenames.RECOVERY_POINT_CHECKPOINT,
    filenames.HIGH_WATERMARK_CHECKPOINT,
)


def quarantine_of(fs: FileSystem, log_directory: Path, chosen: Path | None = None) -> Path:
    """The quarantine for a log directory: `chosen`, or the default. RefusedError when it cannot be there."""
    root = (log_directory.parent / QUARANTINE) if chosen is None else links.resolve(chosen)
    if root == log_directory or log_directory in root.parents:
        raise RefusedError(f"{root} lies inside the log directory {log_directory}, where a broker would trip over it")
    for parent in (root, *root.parents):
        if any(fs.status(parent / name) is not None for name in _BROKER_FILES):
            raise RefusedError(f"{root}: {parent} is a log directory itself; choose another with --quarantine DIR")
    existing = next(parent for parent in (root, *root.parents) if fs.status(parent) is not None)
    if _status(fs, existing).device != _status(fs, log_directory).device:
        raise RefusedError(
            f"{root} is not on the file system of {log_directory}; choose a place there with --quarantine DIR"
        )
    return root


def new_run(fs: FileSystem, quarantine: Path, clock: Clock) -> Path:
    """Makes the folder of a new run. RefusedError when the quarantine cannot be written."""
    moment = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    try:
        fs.make_directory(quarantine, parents=True)
        while True:
            folder = quarantine / f"{moment}-{os.urandom(2).hex()}"
            if fs.status(folder) is None:
                break
        fs.make_directory(folder)
        fs.sync_directory(quarantine)
        fs.sync_directory(quarantine.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RefusedError(
            f"{quarantine} cannot be written ({reason}); choose another place with --quarantine DIR"
        ) from error
    return folder


def runs_in(fs: FileSystem, quarantine: Path) -> Iterator[RunRecord | CorruptionError]:
    """The runs that a quarantine holds, oldest first; an error, not raised, for one that cannot be read."""
    if fs.status(quarantine) is None:
        return
    for name in fs.list(quarantine):
        if fs.status(quarantine / name / JOURNAL_FILE) is None:
            continue
        try:
            yield read_journal(fs, quarantine / name)
        except CorruptionError as error:
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
    return _remove_tree(fs, run.folder)


def saved_bytes(fs: FileSystem, folder: Path) -> int:
    """Bytes in all files below a folder."""
    total = 0
    for name in fs.list(folder) if fs.status(folder) is not None else ():
        status = fs.status(folder / name)
        if status is not None:
            total += saved_bytes(fs, folder / name) if status.is_directory else status.size
    return total


def discard_staged(fs: FileSystem, folder: Path) -> None:
    """Removes what a run staged and no longer needs."""
    if fs.status(folder / NEW) is not None:
        _remove_tree(fs, folder / NEW)


def _remove_tree(fs: FileSystem, folder: Path) -> int:
    freed = 0
    for name in sorted(fs.list(folder), key=lambda each: each == JOURNAL_FILE):  # the journal goes last
        status = fs.status(folder / name)
        if status is not None and status.is_directory:
            freed += _remove_tree(fs, folder / name)
        else:
            freed += 0 if status is None else status.size
            fs.remove(folder / name)
    fs.remove_directory(folder)
    return freed


# --- the run in progress ----------------------------------------------------------------------------------


def mark_pending(fs: FileSystem, log_directory: Path, folder: Path) -> None:
    """Names the run in the log directory; durable on return."""
    write_atomically(fs, log_directory / PENDING_FILE, os.fsencode(f"{folder}\n"))


def clear_pending(fs: FileSystem, log_directory: Path) -> None:
    """The run is over."""
    if fs.status(log_directory / PENDING_FILE) is not None:
        fs.remove(log_directory / PENDING_FILE)
        fs.sync_directory(log_directory)


def pending_run(fs: FileSystem, log_directory: Path) -> Path | None:
    """The folder of the run that was cut short in this log directory, or None."""
    path = log_directory / PENDING_FILE
    if fs.status(path) is None:
        return None
    return Path(os.fsdecode(fs.read_bytes(path).strip()))


# --- files ------------------------------------------------------------------------------------------------


def facts_of(fs: FileSystem, path: Path, crc: int | None = None) -> FileFacts | None:
    """Size, checksum (read from the file unless given) and attributes; None when there is no such file."""
    status = fs.status(path)
    if status is None:
        return None
    if crc is None:
        crc = crc_of(fs, path)
    return FileFacts(status.size, crc, status.modified_ns, status.mode, status.owner, status.group)


def crc_of(fs: FileSystem, path: Path, start: int = 0, end: int | None = None, value: int = 0) -> int:
    """CRC-32C of a file's bytes from `start` to `end`, continuing from `value`."""
    position = start
    with fs.open(path, "r") as file:
        stop = file.size() if end is None else end
        while position < stop:
            piece = file.read_at(position, min(_PIECE_BYTES, stop - position))
            if not piece:
                break
            value = checksum.crc32c(piece, value)
            position += len(piece)
    return value


def same_contents(facts: FileFacts | None, found: FileFacts | None) -> bool:
    """Whether size and checksum agree (or there is no file, both times)."""
    if facts is None or found is None:
        return facts is found
    return (facts.size, facts.crc) == (found.size, found.crc)


def _status(fs: FileSystem, path: Path) -> FileStatus:
    status = fs.status(path)
    if status is None:
        raise NotALogError(path, "no such directory")
    return status
