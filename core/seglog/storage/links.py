"""Walking a path without following somebody else's links.

seglog runs as root on directories that another user owns. The owner of a directory can put a symbolic link there at any
moment, under any name, also in place of a directory that was checked a moment ago. The rule, after the kernel's
`protected_symlinks` and systemd's `CHASE_SAFE`:

- A link, in any component of a path, is followed only if it belongs to root or to the user who runs seglog, and has
  no second name (a hard link would lend root's link to whoever made it). Any other link is an UntrustedLinkError.
- Every file is opened, created, renamed or removed as a name in a directory that is held open: no name on the way to it
  is looked up twice.

Linux tells in one call (`openat2` with RESOLVE_NO_SYMLINKS, since 5.6) whether any component is a link; a path then
costs one look-up more than without this module. If there is a link, or no such call, the path is walked.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from seglog.errors import UntrustedLinkError
from seglog.remote_path import RemotePath
from seglog.storage.trust import described_user

_MOST_LINKS = 40  # as many as Linux follows
_TRIES = 8  # for a name that is swapped while it is opened
_PATH_ONLY: int = getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
_STEP = _PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC
# The errors of open() with O_NOFOLLOW for a link: Linux, Linux with O_DIRECTORY, FreeBSD.
_MAYBE_A_LINK = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)

_ACCESS_LIST = "system.posix_acl_access"
_OPENAT2 = 437  # the same number on every processor
_AT_FDCWD = -100
_RESOLVE_NO_SYMLINKS = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in the open directory `descriptor`; "." is the directory itself."""

    descriptor: int
    name: str


def open_path(path: Path, flags: int, mode: int = 0o666) -> int:
    """Like `os.open`, by the rule above; with O_EXCL a link at the end counts as an existing file, as for `os.open`."""
    descriptor = _open_without_links(path, flags, mode)
    for _ in range(_TRIES if descriptor is None else 0):
        with entry_of(path, follow=not flags & os.O_EXCL) as entry:
            try:
                return os.open(entry.name, flags | os.O_NOFOLLOW, mode, dir_fd=entry.descriptor)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
    if descriptor is None:
        raise OSError(errno.ELOOP, "The name is replaced by a link again and again", str(path))
    return descriptor


def look_at(path: Path, *, follow: bool = True) -> os.stat_result | None:
    """Like `os.stat` (`os.lstat` unless `follow`), by the rule above; None if nothing is there."""
    try:
        descriptor = _open_without_links(path, _PATH_ONLY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
        if descriptor is None:
            with entry_of(path, follow=follow) as entry:
                return os.stat(entry.name, dir_fd=entry.descriptor, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def target_of(path: Path) -> Path | None:
    """Returns a link's target as written; None if `path` is not a link, or is missing."""
    try:
        with entry_of(path) as entry:
            target = _read_link(entry.name, entry.descriptor)[1]
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if target is None else Path(target)


def has_access_list(path: Path) -> bool:
    """True if a file or directory has POSIX access-control entries: its mode then does not say who may open it."""
    if not hasattr(os, "listxattr"):
        return False
    try:
        descriptor = open_path(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _ACCESS_LIST in os.listxattr(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def entry_of(path: Path, *, follow: bool = False) -> Iterator[Entry]:
    """Opens the directory that holds the last component of `path`; yields it with that component's name.

    With `follow` a link there is followed; the resulting name was not a link when it was checked.
    """
    with _naming(path):
        directory = None if path.name in ("", "..") else _open_without_links(path.parent, _STEP)
        if directory is not None:
            try:
                if not follow or not _is_link(path.name, directory):
                    yield Entry(directory, path.name)
                    return
            finally:
                os.close(directory)
        with _Walk(path) as walk:
            name = walk.to_the_end(follow)
            yield Entry(walk.descriptor, name)


@contextlib.contextmanager
def entries_of(first: Path, second: Path) -> Iterator[tuple[Entry, Entry]]:
    """`entry_of` for two paths; a common directory is looked up once."""
    with entry_of(first) as one:
        if first.parent == second.parent and first.name not in ("", "..") and second.name not in ("", ".."):
            yield one, Entry(one.descriptor, second.name)
            return
        with entry_of(second) as other:
            yield one, other


def resolve(path: Path) -> Path:
    """Returns `path` as an absolute path without links, `.` and `..`; missing components stay as they are. A RemotePath
    is returned unchanged.
    """
    if isinstance(path, RemotePath):
        return path
    absolute = path if path.is_absolute() else Path.cwd() / path  # the working directory may be deleted
    try:
        descriptor = _open_without_links(absolute, _PATH_ONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        descriptor = None
    if descriptor is not None:
        os.close(descriptor)
        return Path(os.path.normpath(absolute))
    with _Walk(absolute) as walk, _naming(path):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            name = walk.to_the_end(follow=True)
            return walk.reached / name
        return Path(os.path.normpath(walk.reached / walk.left))


def name_of(path: Path) -> str:
    """Returns the name of the file or directory at `path`: the last component, or that of its target for a link, `.`
    and `..`.
    """
    if isinstance(path, RemotePath):
        return path.name
    if path.name in ("", "..") or os.path.islink(path):  # noqa: PTH114 (Path.is_link raises without permission)
        return resolve(path).name
    return path.name


class _Walk:
    """A walk along a path, one component at a time. `descriptor` is the open directory `reached`."""

    def __init__(self, path: Path) -> None:
        self._pending = [*reversed(path.parts)]  # the next component is the last one
        self._links = 0
        self.reached = Path()
        self.descriptor = -1
        self._start(path.anchor)

    def to_the_end(self, follow: bool) -> str:
        """Walks to the directory of the last component and returns the component."""
        while self._pending:
            name = self._pending.pop()
            if name == "..":
                self._enter(name)
            elif self._pending:
                self._enter_or_turn(name)
            elif not follow:
                return name
            else:
                target = self._target_of(name)
                if target is None:
                    return name
                self._turn(name, target)
        return "."

    @property
    def left(self) -> Path:
        """The components that could not be walked."""
        return Path(*reversed(self._pending))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def _start(self, anchor: str) -> None:
        descriptor = os.open(anchor or ".", _STEP)
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = descriptor
        if anchor:
            self.reached = Path(anchor)
            self._pending = [name for name in self._pending if name != anchor]

    def _enter(self, name: str) -> None:
        descriptor = os.open(name, _STEP | os.O_NOFOLLOW, dir_fd=self.descriptor)
        os.close(self.descriptor)
        self.descriptor = descriptor
        is_above = name == ".." and self.reached.name not in ("", "..")
        self.reached = self.reached.parent if is_above else self.reached / name
        if self.reached.anchor:
            self.reached = Path(os.path.normpath(self.reached))

    def _enter_or_turn(self, name: str) -> None:
        try:
            self._enter(name)
        except OSError as error:
            target = self._target_of(name) if error.errno in _MAYBE_A_LINK else None
            if target is None:
                self._pending.append(name)
                raise
            self._turn(name, target)

    def _turn(self, name: str, target: Path) -> None:
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(self.reached / name))
        self._pending += reversed(target.parts)
        if target.anchor:
            self._start(target.anchor)

    def _target_of(self, name: str) -> Path | None:
        """Returns a link's target, None for any other name. Raises UntrustedLinkError for a link not to be followed."""
        try:
            found, target = _read_link(name, self.descriptor)
        except FileNotFoundError:
            return None
        if target is None:
            return None
        if found.st_uid not in (0, os.geteuid()) or found.st_nlink > 1:
            raise UntrustedLinkError(self.reached / name, described_user(found.st_uid), Path(target))
        return Path(target)


def _is_link(name: str, directory: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _read_link(name: str, directory: int) -> tuple[os.stat_result, str | None]:
    """Returns `lstat` and, for a link, its target: both of the very same link, even if somebody swaps it."""
    if hasattr(os, "O_PATH"):
        link = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            found = os.fstat(link)
            return found, os.readlink("", dir_fd=link) if stat.S_ISLNK(found.st_mode) else None
        finally:
            os.close(link)
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        return found, None
    target = os.readlink(name, dir_fd=directory)
    again = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if (again.st_dev, again.st_ino, again.st_ctime_ns) != (found.st_dev, found.st_ino, found.st_ctime_ns):
        raise OSError(errno.ELOOP, "The link was replaced while it was read", name)
    return found, target


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Puts the whole path into errors of calls that only know a single name."""
    try:
        yield
    except UntrustedLinkError:
        raise
    except OSError as error:
        error.filename = str(path)
        raise


# --- openat2 ----------------------------------------------------------------------------------------------


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _open_without_links(path: Path, flags: int, mode: int = 0) -> int | None:
    """Opens a path if no component of it is a link; None if one is, or if the system cannot tell."""
    call = _openat2()
    if call is None:
        return None
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise ValueError("embedded null byte")
    how = _how(flags, mode if flags & os.O_CREAT else 0)
    while True:
        descriptor = call(_OPENAT2, _AT_FDCWD, raw, how, _HOW_BYTES)
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number == errno.ELOOP:
            return None
        if number not in (errno.EINTR, errno.EAGAIN):
            raise OSError(number, os.strerror(number), str(path))


_HOW_BYTES = ctypes.sizeof(_OpenHow)


@cache
def _how(flags: int, mode: int) -> object:
    """Returns a pointer to the structure; the pointer keeps it alive."""
    return ctypes.byref(_OpenHow(flags, mode, _RESOLVE_NO_SYMLINKS))


@cache
def _openat2() -> Callable[..., int] | None:
    """Returns the system call, if the kernel has it and this process's sandbox permits it."""
    if sys.platform != "linux":
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    call.restype = ctypes.c_long
    descriptor: int = call(_OPENAT2, _AT_FDCWD, b"/", _how(_STEP, 0), _HOW_BYTES)
    if descriptor < 0:
        return None
    os.close(descriptor)
    return call
