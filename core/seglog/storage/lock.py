"""The `.lock` of a log directory, held exactly as a broker holds it.

Kafka: org.apache.kafka.server.util.FileLock (`FileChannel.tryLock`), on POSIX systems a record lock over the whole
file; `flock(2)` locks do not conflict with it. This module calls the kernel directly instead of through `FileSystem`: a
lock belongs to a process and an inode, not to a file's contents.

POSIX record locks have two traps, and the registry below deals with both:

- closing *any* descriptor of the file drops the process's lock on it, so all uses of one file within the process share
  one descriptor, and probing never opens a file that this process has locked;
- a process never conflicts with itself, so a second owner within the process is refused here.

A forked child inherits the registry but not the locks: entries carry the id of the process that took them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from seglog.errors import LockedError
from seglog.remote_path import RemotePath
from seglog.storage import links
from seglog.storage.adapters import InheritingFileSystem
from seglog.storage.local import LocalFileSystem

LOCK_FILE = ".lock"
_COMMAND_WIDTH = 160
_BROKERS = ("kafka.Kafka", "io.confluent.support.metrics.SupportedKafka")
_MOST_LINKS = 40
_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock. `pid` is 0 and `command` empty if the system does not tell (another container)."""

    pid: int
    command: str

    @property
    def is_broker(self) -> bool:
        """True for a process of Kafka's server: its main class, or the executable of the native image."""
        return any(word.rpartition("/")[2] in _BROKERS for word in self.command.split())

    def describe(self) -> str:
        """Returns the command line, shortened in the middle: a broker's class path runs to thousands of bytes."""
        if not self.command:
            return "another process"
        if len(self.command) <= _COMMAND_WIDTH:
            return self.command
        program, _, arguments = self.command.partition(" ")
        tail = arguments[-(_COMMAND_WIDTH - 40) :].partition(" ")[2] or arguments[-40:]
        return f"{Path(program).name[:32]} … {tail}"


@dataclass(slots=True)
class _Held:
    """A lock of this process, with its descriptors, because closing one would drop it."""

    pid: int
    descriptors: list[int]


_registry: dict[tuple[int, int], _Held] = {}
_registry_guard = threading.Lock()


class DirectoryLock:
    """Exclusive use of a log directory, from `acquire` (or entering the context) to `release`.

    A missing file is created, and never deleted, as by a broker.
    """

    def __init__(self, log_directory: Path) -> None:
        self.path = log_directory / LOCK_FILE
        self._key: tuple[int, int] | None = None
        self._pid = 0

    @property
    def held(self) -> bool:
        """True if this object holds the lock now."""
        return self._key is not None and self._pid == os.getpid()

    def acquire(self) -> None:
        """Takes the lock without waiting.

        Raises LockedError if a broker, another seglog or another owner in this process has it, OSError if the
        directory is missing or may not be written.
        """
        if self.held:
            raise LockedError(self.path.parent, os.getpid(), "this very lock is held already")
        with _registry_guard:
            held = _own(_key_of(self.path))
            if held is not None:
                raise LockedError(self.path.parent, held.pid, "another part of this process")
            self._key, self._pid = self._lock_file(), os.getpid()

    def release(self) -> None:
        """Releases the lock; does nothing if it is not held or was taken before a fork."""
        if not self.held:
            return
        with _registry_guard:
            key, self._key = self._key, None
            held = _own(key)
            if key is None or held is None:
                return
            del _registry[key]
            for descriptor in held.descriptors:
                os.close(descriptor)

    def _lock_file(self) -> tuple[int, int]:
        """Locks the file; returns its key."""
        descriptor = self._open()
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "Not a regular file", str(self.path))
        key = (found.st_dev, found.st_ino)
        held = _own(key)
        if held is not None:
            # Between the look and the opening, the name came to refer to a file we hold. Closing would drop that lock.
            held.descriptors.append(descriptor)
            raise LockedError(self.path.parent, held.pid, "another part of this process")
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder_by_kernel(descriptor) if error.errno in (errno.EACCES, errno.EAGAIN) else None
            os.close(descriptor)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            # The holder may have released it between the two calls.
            holder = holder or Holder(0, "")
            raise LockedError(self.path.parent, holder.pid, holder.describe()) from error
        _registry[key] = _Held(os.getpid(), [descriptor])
        return key

    def _open(self) -> int:
        """Opens the file. A new one belongs to the directory's owner, because a broker must be able to open it."""
        try:
            return links.open_path(self.path, _OPEN)
        except FileNotFoundError:
            fs = InheritingFileSystem(LocalFileSystem())
            with contextlib.suppress(FileExistsError):  # another process created it
                fs.open(self.path, "create_new").close()
            return links.open_path(self.path, _OPEN)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def partition_path(path: Path) -> Path:
    """Resolves the links in a path to a partition directory, except for a link that lies in a log directory.

    Such a link is a partition of that log directory, under the link's name: a broker there holds its own lock, and none
    beside the link's target. If only the target lies in a locked log directory, the link is followed.
    """
    resolved = links.resolve(path)
    at = path
    for _ in range(0 if isinstance(path, RemotePath) else _MOST_LINKS):
        if not os.path.islink(at):  # noqa: PTH114 (Path.is_symlink raises without permission)
            break
        parent = links.resolve(at.parent)
        if _key_of(parent / LOCK_FILE) is not None:
            is_theirs = holder_of(resolved.parent) is not None and holder_of(parent) is None
            return resolved if is_theirs else parent / at.name
        at = parent / os.readlink(at)  # noqa: PTH115 (Path.readlink raises for RemotePath)
    return resolved


def holder_of(log_directory: Path) -> Holder | None:
    """Returns the holder of the directory's lock, this process included; None if nobody holds it. Nobody locks a URL.

    Creates nothing and takes nothing; works without permission to write the directory. Raises OSError if the lock file
    exists and may not be read.
    """
    if isinstance(log_directory, RemotePath):
        return None
    path = log_directory / LOCK_FILE
    with _registry_guard:
        held = _own(_key_of(path))
        if held is not None:
            return Holder(held.pid, _command_of(held.pid))
        try:
            descriptor = links.open_path(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ENXIO:  # a socket, which nobody can open
                return None
            raise
        try:
            return _holder_by_kernel(descriptor)
        finally:
            os.close(descriptor)


def require_unlocked(log_directory: Path) -> None:
    """Raises LockedError if a process holds the directory's lock, as a running broker does; OSError as `holder_of`."""
    holder = holder_of(log_directory)
    if holder is not None:
        raise LockedError(log_directory, holder.pid, holder.describe())


def _key_of(path: Path) -> tuple[int, int] | None:
    found = links.look_at(path)
    return None if found is None else (found.st_dev, found.st_ino)


def _own(key: tuple[int, int] | None) -> _Held | None:
    """Returns this process's lock on a file; forgets one of the parent from before a fork."""
    held = _registry.get(key) if key is not None else None
    if held is not None and key is not None and held.pid != os.getpid():
        del _registry[key]
        return None
    return held


# `struct flock`: Linux has type, whence, start, length, pid; macOS and the BSDs start, length, pid, type,
# whence.
_LINUX = sys.platform == "linux"
_FLOCK = struct.Struct("hhqqi4x" if _LINUX else "qqihh")


def _holder_by_kernel(descriptor: int) -> Holder | None:
    """`F_GETLK`: the process whose lock conflicts with an exclusive one over the whole file."""
    kind, whence = fcntl.F_WRLCK, os.SEEK_SET
    asked = _FLOCK.pack(kind, whence, 0, 0, 0) if _LINUX else _FLOCK.pack(0, 0, 0, kind, whence)
    answer = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    kind, pid = (answer[0], answer[4]) if _LINUX else (answer[3], answer[2])
    if kind == fcntl.F_UNLCK:
        return None
    # -1: a lock of an open file description; 0: a process outside this one's namespace.
    pid = max(pid, 0)
    return Holder(pid, _command_of(pid))


def _command_of(pid: int) -> str:
    """Returns the command line from /proc, arguments joined by spaces; "" if it cannot be read."""
    if pid <= 0:
        return ""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return " ".join(part.decode("utf-8", "replace") for part in raw.rstrip(b"\0").split(b"\0"))
