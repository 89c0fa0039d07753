"""Going along a path without being led elsewhere by somebody else's link.

seglog runs as root on directories that another user owns. Whoever owns a directory can put a symbolic link there at any
moment, under any name, also in place of a directory that was looked at a moment ago. The rule, after the kernel's
`protected_symlinks` and systemd's `CHASE_SAFE`:

- A link, in any component of a path, is followed only if it belongs to root or to the user who runs seglog, and has
  no second name (a hard link would lend root's link to whoever made it). Any other is an UntrustedLinkError.
- What is opened, made, renamed or removed is a name in a directory that is held open: no name on the way to it is
  looked up a second time.

Linux says in one call (`openat2` with RESOLVE_NO_SYMLINKS, since 5.6) whether any component is a link; then a path
costs one look-up more than without this module. Where there is a link, or no such call, the path is walked.
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
# How open() with O_NOFOLLOW says that a name is a link: Linux, with O_DIRECTORY, FreeBSD.
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
    """`os.open` by the rule above; with O_EXCL a link at the end exists already, as for `os.open`."""
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
    """`os.stat` (`os.lstat` unless `follow`) by the rule above; None when nothing is there."""
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
    """Where a link leads, as it is written; None for what is no link, or not there."""
    try:
        with entry_of(path) as entry:
            target = _read_link(entry.name, entry.descriptor)[1]
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if target is None else Path(target)


def has_access_list(path: Path) -> bool:
    """Whether a file or directory has POSIX access-control entries: its mode then does not say who may open it."""
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
    """The directory that holds the last component of `path`, and that component's name.

    With `follow` a link there is followed; the name that comes of it was no link when it was looked at.
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
    """`entry_of` each of them; two names in one directory are looked up once."""
    with entry_of(first) as one:
        if first.parent == second.parent and first.name not in ("", "..") and second.name not in ("", ".."):
            yield one, Entry(one.descriptor, second.name)
            return
        with entry_of(second) as other:
            yield one, other


def resolve(path: Path) -> Path:
    """`path` as an absolute one without links, `.` and `..`; components that do not exist stay as they are. A
    RemotePath is one already.
    """
    if isinstance(path, RemotePath):
        return path
    absolute = Path.cwd() / path
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
    """The name of what `path` leads to: its last component, unless that is a link, `.` or `..`."""
    if isinstance(path, RemotePath):
        return path.name
    if path.name in ("", "..") or os.path.islink(path):  # noqa: PTH114 (which raises where nobody may look)
        return path.resolve().name
    return path.name


class _Walk:
    """Going along a path, a component at a time. `descriptor` is the directory `reached`."""

    def __init__(self, path: Path) -> None:
        self._pending = [*reversed(path.parts)]  # the next component is the last one
        self._links = 0
        self.reached = Path()
        self.descriptor = -1
        self._start(path.anchor)

    def to_the_end(self, follow: bool) -> str:
        """Goes to the directory of the last component and returns that."""
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
        """What could not be gone along."""
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
        """Where the link leads; None for what is no link. UntrustedLinkError when it is not to be followed."""
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
    """What `lstat` says, and where the link leads if it is one: of one and the same link, whoever swaps it."""
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
    """The operating system was asked for a single name; whoever reads the error wants the path."""
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
    """Opens a path if no component of it is a link; None if one is, or where the system cannot tell."""
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
    """A pointer to the structure, which lives as long as its pointer."""
    return ctypes.byref(_OpenHow(flags, mode, _RESOLVE_NO_SYMLINKS))


@cache
def _openat2() -> Callable[..., int] | None:
    """The system call, where the kernel has it and whatever confines this process lets it pass."""
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
