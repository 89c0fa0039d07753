"""Making partition directories and files beside their place, and moving them there when they are whole.

Nothing half made ever has its final name, whatever fails, and running again works:

1. What an earlier attempt left when it was killed goes first: it is this user's, and its lock is free.
2. The new thing is made under a name of its own, in the same directory, for the eyes of this user alone.
3. It is synced, given to whom it is to belong, and renamed; an empty directory of that name is replaced.
4. What fails is removed, also where only the last sync fails: then the name is not durable, and goes again.

A directory in the making has a name that a starting broker passes over (`filenames.QUARANTINE_WITHIN` tells why), and
plain files are nothing to it: in a log directory neither keeps a broker from starting. The lock is one of `flock(2)`,
which belongs to the open file, not to the process: two threads that make things in one directory know of each other.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from seglog.errors import NotALogError, RefusedError
from seglog.format import filenames
from seglog.scan.listing import TargetKind, resolve_path
from seglog.storage import links
from seglog.storage.files import remove_tree
from seglog.storage.filesystem import PRIVATE, Access, File, FileStatus, FileSystem
from seglog.storage.lock import DirectoryLock

_IN_USE = ".in-use"
_TRIES = 8
_NO_LOCKS_HERE = (errno.EBADF, errno.ENOTSUP)  # a file system in memory

_logger = logging.getLogger(__name__)


@contextmanager
def new_directory(fs: FileSystem, target: Path) -> Iterator[Path]:
    """A directory to fill that becomes `target` when the block ends well. Its parent is made when it is missing.

    What is filled in is the caller's to sync. A directory that is there already must be empty, and lends its owner and
    mode; in a log directory the new one gets the broker's. RefusedError when `target` holds something.
    """
    target = links.resolve(target)
    fs.make_directory(target.parent, parents=True)
    require_free(fs, target)
    access = access_for(fs, target)
    staging, lock = _new_staging(fs, target.parent)
    place = staging / target.name
    try:
        fs.make_directory(place, access=access)
        yield place
        fs.sync_directory(place)
        _named(fs, place, target)
    finally:
        try:
            discard_staging(fs, staging)
        finally:
            lock.close()


def _named(fs: FileSystem, place: Path, target: Path) -> None:
    """Renames, durably: a name that is not goes again, and an empty directory that it took comes back."""
    replaced = fs.status(target)
    fs.rename(place, target)
    try:
        fs.sync_directory(target.parent)
    except BaseException:
        with suppress(OSError):  # the error that led here is the one to report
            fs.rename(target, place)
            if replaced is not None:
                fs.make_directory(target, access=Access.of(replaced))
        raise


def discard_staging(fs: FileSystem, staging: Path) -> None:
    """Removes the directory in which something was made. One that cannot be removed is logged."""
    try:
        remove_tree(fs, staging)
    except OSError as error:
        _logger.warning(
            "%s stays (%s): brokers pass over it, and the next command that makes something beside it removes it",
            staging,
            error.strerror or error,
        )


def require_free(fs: FileSystem, target: Path) -> None:
    """RefusedError when `target` holds something. What attempts left that were killed, also after the rename, goes."""
    target = links.resolve(target)
    remove_unfinished(fs, target.parent)
    found = fs.status(target)
    if found is not None and (not found.is_directory or fs.list(target)):
        raise RefusedError(
            f"{target} is there already and not empty. Nothing half made has that name: if a run before this one made"
            " it, it is whole. Name another place, or move it away, to make it again"
        )


def remove_unfinished(fs: FileSystem, parent: Path) -> None:
    """Removes the directories that attempts of this user left in `parent` that were killed."""
    if fs.status(parent) is not None:
        _settle(fs, parent, filenames.UNFINISHED_PREFIX, filenames.UNFINISHED_SUFFIX)


class NewFile:
    """A file to write that becomes `target` when it is `kept`. A file that is there already lends owner and mode.

    RefusedError when it is there, unless `replace`, and for what is not a regular file. A link that may be followed is
    (`storage.links`): what it leads to is replaced.
    """

    def __init__(self, fs: FileSystem, target: Path, *, replace: bool = False) -> None:
        self._fs, self.target = fs, links.resolve(target)
        prefix, suffix = f".{self.target.name[:150]}.seglog-", ".part"
        _settle(fs, self.target.parent, prefix, suffix)
        found = fs.status(self.target)
        if found is not None:
            _require_file(self.target, found)
            if not replace:
                raise RefusedError(f"{target} exists already; --replace replaces it")
        self.path = self.target.with_name(f"{prefix}{os.urandom(4).hex()}{suffix}")
        self.file = fs.open(self.path, "create_new")
        try:
            made = found or fs.status(self.path, follow=False)
            self._access = None if made is None else Access.of(made)
            self.file.give(PRIVATE)
            lock_open_file(self.file)
        except BaseException:
            self.discard()
            raise

    def keep(self) -> None:
        """The file is whole: it gets its name, durably."""
        self.file.sync()
        if self._access is not None:
            self.file.give(self._access)
        replaces = self._fs.status(self.target, follow=False) is not None
        self._fs.rename(self.path, self.target)
        try:
            self._fs.sync_directory(self.target.parent)
        except BaseException:
            if not replaces:  # what it replaces is gone
                with suppress(OSError):
                    self._fs.rename(self.target, self.path)
            raise
        self.file.close()

    def discard(self) -> None:
        """It never was, unless it is kept. What cannot be removed goes with the next attempt."""
        self.file.close()
        with suppress(OSError):
            if self._fs.status(self.path, follow=False) is not None:
                self._fs.remove(self.path)


def is_log_directory(fs: FileSystem, path: Path) -> bool:
    """Whether there are partitions or a broker's checkpoints in this directory."""
    try:
        return resolve_path(fs, path).kind is TargetKind.LOG_DIRECTORY
    except NotALogError:
        return False


def log_directory_lock(fs: FileSystem, target: Path) -> AbstractContextManager[object]:
    """Holds the lock of the log directory that `target` is to be made in, if it is one. LockedError on entering."""
    around = links.resolve(target).parent
    return DirectoryLock(around) if is_log_directory(fs, around) else nullcontext()


def access_for(fs: FileSystem, target: Path) -> Access | None:
    """What a directory gets that becomes `target`: an empty one's, or in a log directory what the broker has."""
    found = fs.status(target)
    if found is not None:
        return Access.of(found)
    parent = fs.status(target.parent)
    return Access.within(parent) if parent is not None and is_log_directory(fs, target.parent) else None


def _require_file(path: Path, found: FileStatus) -> None:
    if found.is_directory:
        raise RefusedError(f"{path} is a directory; name a file")
    if found.is_special:
        raise RefusedError(
            f"{path} is not a regular file but a device, a pipe or a socket; write to - and redirect that"
        )


def _new_staging(fs: FileSystem, parent: Path) -> tuple[Path, File]:
    """Makes a directory with its lock held; again when somebody took it for a left-over before it was locked."""
    for _ in range(_TRIES):
        staging = parent / f"{filenames.UNFINISHED_PREFIX}{os.urandom(4).hex()}{filenames.UNFINISHED_SUFFIX}"
        fs.make_directory(staging, access=PRIVATE)
        try:
            lock = fs.open(staging / _IN_USE, "create_new")
        except FileNotFoundError:
            continue
        except BaseException:
            discard_staging(fs, staging)
            raise
        lock_open_file(lock)
        if fs.status(staging / _IN_USE, follow=False) is not None:
            return staging, lock
        lock.close()
    raise FileNotFoundError(errno.ENOENT, "Somebody removes what is made here again and again", str(parent))


def _settle(fs: FileSystem, parent: Path, prefix: str, suffix: str) -> None:
    """Removes what attempts of this user left that were killed."""
    for name in fs.list(parent):
        if not (name.startswith(prefix) and name.endswith(suffix)):
            continue
        path = parent / name
        found = fs.status(path, follow=False)
        if found is None or found.owner != os.geteuid() or found.is_link or found.is_special:
            continue
        with suppress(FileNotFoundError):
            if found.is_directory:
                if fs.status(path / _IN_USE, follow=False) is None or not _is_in_use(fs, path / _IN_USE):
                    remove_tree(fs, path)
            elif not _is_in_use(fs, path):
                fs.remove(path)


def _is_in_use(fs: FileSystem, path: Path) -> bool:
    with fs.open(path, "r") as file:
        return not lock_open_file(file)


def lock_open_file(file: File) -> bool:
    """Locks an open file; False when another one of it is locked, or the file system cannot tell."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _NO_LOCKS_HERE
    return True
