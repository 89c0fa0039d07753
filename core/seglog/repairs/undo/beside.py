"""Makes partition directories and files beside their target and renames them when they are complete.

Nothing incomplete ever has its final name, whatever fails, and another attempt works:

1. The remains of killed attempts are removed first: those that belong to this user and whose lock is free.
2. The new directory or file is made under a temporary name in the same directory, private to this user.
3. It is synced, gets its final owner and mode, and is renamed; an empty directory of the final name is replaced.
4. On failure it is removed, even if only the last sync fails: the name would not be durable.

A starting broker ignores the temporary name of a directory (`filenames.QUARANTINE_WITHIN` says why) and all unknown
plain files, so neither keeps a broker from starting on a log directory. The lock is a `flock(2)` lock, which belongs to
the open file and not to the process: two threads that work in one directory respect each other's.
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
from seglog.storage.filesystem import PRIVATE, Access, File, FileSystem
from seglog.storage.lock import DirectoryLock

_IN_USE = ".in-use"
_TRIES = 8
_LOCKS_UNSUPPORTED = (errno.EBADF, errno.ENOTSUP)  # by a file system in memory

_logger = logging.getLogger(__name__)


@contextmanager
def new_directory(fs: FileSystem, target: Path) -> Iterator[Path]:
    """Yields a directory to fill that becomes `target` if the block succeeds. Makes its parent if needed.

    The caller syncs the contents. An existing target must be empty; the new directory takes over its owner and mode. In
    a log directory a new one gets the broker's. Raises RefusedError if `target` is not empty or lies in a partition.
    """
    target = links.resolve(target)
    require_outside_partitions(fs, target)
    fs.make_directory(target.parent, parents=True)
    require_free(fs, target)
    access = access_for(fs, target)
    staging, lock = _new_staging(fs, target.parent)
    place = staging / target.name
    try:
        fs.make_directory(place, access=access)
        yield place
        fs.sync_directory(place)
        _rename(fs, place, target)
    finally:
        try:
            discard_staging(fs, staging)
        finally:
            lock.close()


def _rename(fs: FileSystem, place: Path, target: Path) -> None:
    """Renames durably. If the sync fails, reverts the rename and restores an empty directory that it replaced."""
    replaced = fs.status(target)
    fs.rename(place, target)
    try:
        fs.sync_directory(target.parent)
    except BaseException:
        with suppress(OSError):  # the sync's error is the one to report
            fs.rename(target, place)
            if replaced is not None:
                fs.make_directory(target, access=Access.of(replaced))
        raise


def discard_staging(fs: FileSystem, staging: Path) -> None:
    """Removes a temporary directory; logs a warning if that fails."""
    try:
        remove_tree(fs, staging)
    except OSError as error:
        _logger.warning(
            "%s cannot be removed (%s): brokers ignore it, and the next command that writes beside it removes it",
            staging,
            error.strerror or error,
        )


def require_free(fs: FileSystem, target: Path) -> None:
    """Raises RefusedError if `target` is not empty or lies in a partition. First removes the remains of killed
    attempts.
    """
    target = links.resolve(target)
    require_outside_partitions(fs, target)
    remove_unfinished(fs, target.parent)
    found = fs.status(target)
    if found is not None and (not found.is_directory or fs.list(target)):
        raise RefusedError(
            f"{target} is there already and not empty. Nothing incomplete has that name: if an earlier run made it, it"
            " is complete. Choose another place, or move it away to make it again"
        )


def require_outside_partitions(fs: FileSystem, target: Path) -> None:
    """Raises RefusedError if `target` lies in a partition directory: no command writes into its source."""
    for parent in links.resolve(target).parents:
        found = fs.status(parent) if filenames.parse_partition_directory(parent.name) is not None else None
        if found is not None and found.is_directory and any(map(filenames.parse_file_name, fs.list(parent))):
            raise RefusedError(f"{target} lies in the partition {parent}: choose a place outside it")


def remove_unfinished(fs: FileSystem, parent: Path) -> None:
    """Removes the temporary directories that this user's killed attempts left in `parent`."""
    if fs.status(parent) is not None:
        _remove_unused(fs, parent, filenames.UNFINISHED_PREFIX, filenames.UNFINISHED_SUFFIX)


class NewFile:
    """A file to write that becomes `target` on `keep`, with the owner and mode of a file that it replaces.

    Raises RefusedError if the target exists, unless `replace` is set, if it is not a regular file, and always if it is
    one of Kafka's: no result is worth the log that it would replace. Replaces the target of a link that may be followed
    (`storage.links`).
    """

    def __init__(self, fs: FileSystem, target: Path, *, replace: bool = False) -> None:
        self._fs, self.target = fs, links.resolve(target)
        prefix, suffix = f".{self.target.name[:150]}.seglog-", ".part"
        _remove_unused(fs, self.target.parent, prefix, suffix)
        found = fs.status(self.target)
        if found is not None and found.is_directory:
            raise RefusedError(f"{self.target} is a directory; name a file")
        if found is not None and found.is_special:
            raise RefusedError(
                f"{self.target} is not a regular file but a device, a pipe or a socket; write to - and redirect that"
            )
        if found is not None and filenames.is_of_kafka(self.target.name):
            raise RefusedError(f"{self.target} is a file of Kafka, which is never replaced; name another file")
        if found is not None and not replace:
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
        """Gives the complete file its name, durably."""
        self.file.sync()
        if self._access is not None:
            self.file.give(self._access)
        replaces = self._fs.status(self.target, follow=False) is not None
        self._fs.rename(self.path, self.target)
        try:
            self._fs.sync_directory(self.target.parent)
        except BaseException:
            if not replaces:  # a replaced file is gone, so the new one keeps its name
                with suppress(OSError):
                    self._fs.rename(self.target, self.path)
            raise
        self.file.close()

    def discard(self) -> None:
        """Removes the file unless it was kept. If that fails, the next attempt removes it."""
        self.file.close()
        with suppress(OSError):
            if self._fs.status(self.path, follow=False) is not None:
                self._fs.remove(self.path)


def is_log_directory(fs: FileSystem, path: Path) -> bool:
    """True if a directory holds partitions or a broker's checkpoints."""
    try:
        return resolve_path(fs, path).kind is TargetKind.LOG_DIRECTORY
    except NotALogError:
        return False


def log_directory_lock(fs: FileSystem, target: Path) -> AbstractContextManager[object]:
    """Holds the lock of `target`'s parent if that is a log directory. Raises LockedError on entry if it is taken."""
    around = links.resolve(target).parent
    return DirectoryLock(around) if is_log_directory(fs, around) else nullcontext()


def access_for(fs: FileSystem, target: Path) -> Access | None:
    """Returns owner and mode for a directory: those of an existing one or, in a log directory, the broker's."""
    found = fs.status(target)
    if found is not None:
        return Access.of(found)
    parent = fs.status(target.parent)
    return Access.within(parent) if parent is not None and is_log_directory(fs, target.parent) else None


def _new_staging(fs: FileSystem, parent: Path) -> tuple[Path, File]:
    """Makes a temporary directory and locks it; tries again if another process removed it before it was locked."""
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
    raise FileNotFoundError(errno.ENOENT, "Another process keeps removing temporary directories", str(parent))


def _remove_unused(fs: FileSystem, parent: Path, prefix: str, suffix: str) -> None:
    """Removes this user's temporary files and directories whose lock is free: their makers were killed."""
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
    """Locks an open file; False if it is locked elsewhere. True as well if the file system has no locks."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _LOCKS_UNSUPPORTED
    return True
