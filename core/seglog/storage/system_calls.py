"""What the operating system is asked for: making files where others may write, too, giving them away, syncing them.

Nothing is made through a name that is taken: what is to be replaced is removed first, and never emptied, so that
neither what a link leads to nor another name of the file is touched. Owner and mode are set on what was made, by its
descriptor, not by its name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from seglog.storage import links
from seglog.storage.ownership import Access

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NONBLOCK
_TRIES = 8  # to take the place of a file that somebody puts there again and again
# No privilege, or (in a user namespace) no such user.
_MAY_NOT_GIVE = (errno.EPERM, errno.EACCES, errno.EINVAL)


def create_file(path: Path, *, replace: bool) -> int:
    """Makes a file that was not there, with `replace` after the old one of that name is gone; its descriptor."""
    for _ in range(_TRIES):
        try:
            return links.open_path(path, _CREATE, 0o666)
        except FileExistsError:
            if not replace:
                raise
            _remove_old(path)
    raise FileExistsError(errno.EEXIST, "Somebody makes this file again and again", str(path))


def _remove_old(path: Path) -> None:
    """Removes a file or a link. What a link leads to, or another name of the file, stays as it is."""
    with links.entry_of(path) as entry:
        require_replaceable(entry, path)
        try:
            os.unlink(entry.name, dir_fd=entry.descriptor)
        except FileNotFoundError:
            return
        except PermissionError:  # what macOS says of a directory
            if stat.S_ISDIR(os.stat(entry.name, dir_fd=entry.descriptor, follow_symlinks=False).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path)) from None
            raise


def make_directory(path: Path, access: Access | None) -> None:
    """Makes a directory, with `access` from its first moment on (None: what the umask leaves)."""
    with links.entry_of(path) as entry:
        os.mkdir(entry.name, 0o777 if access is None else 0o700, dir_fd=entry.descriptor)
        if access is None:
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(entry.name, flags, dir_fd=entry.descriptor)
    try:
        # What somebody swapped for it meanwhile is not ours to give.
        if os.fstat(descriptor).st_uid == os.geteuid():
            give(descriptor, access)
    finally:
        os.close(descriptor)


def give(descriptor: int, access: Access) -> None:
    """Sets owner, group and mode of an open file or directory.

    Only root may give a file away, a member of the group may change the group; a process that
    may do neither keeps what it got.
    """
    found = os.fstat(descriptor)
    mode = access.mode if stat.S_ISDIR(found.st_mode) else access.mode & 0o666
    if mode != stat.S_IMODE(found.st_mode):
        os.fchmod(descriptor, mode)
    for owner, group in ((access.owner, -1), (-1, access.group)):
        if owner not in (-1, found.st_uid) or group not in (-1, found.st_gid):
            try:
                os.fchown(descriptor, owner, group)
            except OSError as error:
                if error.errno not in _MAY_NOT_GIVE:
                    raise


def require_replaceable(entry: links.Entry, path: Path) -> None:
    """OSError when what has the name is a pipe, a socket or a device."""
    try:
        kind = os.stat(entry.name, dir_fd=entry.descriptor, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind) or stat.S_ISDIR(kind)):
        raise not_a_file(path)


def not_a_file(path: Path) -> OSError:
    """The error for what is not a regular file."""
    return OSError(errno.EINVAL, "Not a regular file", str(path))


_SYNC_FILE_RANGE_WRITE = 2


def start_writing(descriptor: int, position: int, size: int) -> None:
    """Lets the disk begin with these bytes, where the system has a call for it."""
    start = _sync_file_range()
    if start is not None:
        start(descriptor, position, size, _SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux's call that starts writing a range and waits for nothing; Python has no name for it."""
    if sys.platform != "linux":
        return None
    import ctypes  # few commands write so much

    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def sync(descriptor: int) -> None:
    """`fsync`; on macOS the call that also empties the drive's cache."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)
