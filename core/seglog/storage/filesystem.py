"""The only door to files: a small `FileSystem` protocol and the operating system's implementation of it.

Everything the engine reads, writes, renames or syncs goes through here, so that tests can cut the power at any call,
fill the disk or return short reads (`tests/support/crash_filesystem.py`). Reads are positional (`pread`), never mapped:
a broker that truncates a file under a mapping kills the process that mapped it (SIGBUS).

Kafka: FileRecords, FileChannel, Utils.atomicMoveWithFallback, Utils.flushDir.

Paths are gone along by `storage.links`: no link of another user is followed, in any component. A file that has other
names (hard links) is not written in place, special files are neither opened nor replaced.

Errors of the operating system stay `OSError`, with their errno and file name; nothing is retried or hidden, except that
an interrupted call is continued (PEP 475 repeats it, the loops below finish short reads and writes).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self

from seglog.errors import RefusedError
from seglog.storage import links
from seglog.storage.ownership import Access
from seglog.storage.ownership import FileStatus as FileStatus
from seglog.storage.system_calls import (
    create_file,
    give,
    make_directory,
    not_a_file,
    require_replaceable,
    start_writing,
    sync,
)

if TYPE_CHECKING:
    from types import TracebackType

    from _typeshed import ReadableBuffer, WriteableBuffer

OpenMode = Literal["r", "r+", "create", "create_new"]

READ_BYTES_LIMIT = 256 * 1024 * 1024
_UNCHECKED_READ_SIZE = 1024 * 1024

# Opening a named pipe that lies among the segments would wait for ever; regular files ignore O_NONBLOCK.
_ALWAYS = os.O_CLOEXEC | os.O_NONBLOCK
_NO_ACCESS_TIME: int = getattr(os, "O_NOATIME", 0)


class File(Protocol):
    """An open file. All access is positional, so one file may be read by many threads at once."""

    path: Path

    def size(self) -> int:
        """Bytes in the file now."""
        ...

    def status(self) -> FileStatus:
        """What the operating system says about this very file, whatever its name means by now."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """`size` bytes from `position`; fewer only at the end. Never allocates more than the file holds."""
        ...

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        """Fills a contiguous buffer from `position`; returns the bytes read, fewer only at the end."""
        ...

    def lend(self, position: int, size: int) -> memoryview | None:
        """At most `size` bytes from `position` where they lie in memory anyway, nothing copied: at least one unless the
        file ends there. They never change. None for a file whose bytes do not: `read_into` gets them.
        """
        ...

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        """Writes all of a contiguous buffer at `position`; a gap before it reads as zeros."""
        ...

    def truncate(self, size: int) -> None:
        """Cuts the file to `size` bytes, or grows it with zeros that take no disk space."""
        ...

    def give(self, access: Access) -> None:
        """Gives a file that was just made an owner, a group and a mode, as far as this user may."""
        ...

    def sync(self) -> None:
        """Returns when contents, size and times are on stable storage."""
        ...

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        """Says that these bytes will be read from the first to the last: a hint, where each request costs time.

        `side_by_side`: as many threads do so as `FileSystem.reads_at_once` says, each with a part of its own. `again`:
        they will be read once more, so that what was read is worth keeping.
        """
        ...

    def advise_dropped(self, position: int, size: int) -> None:
        """Tells the page cache that these bytes are not needed again: a hint, where the system takes one."""
        ...

    def start_writing(self, position: int, size: int) -> None:
        """Lets the disk begin with these bytes, so that `sync` waits for less: a hint, where the system takes one."""
        ...

    def fileno(self) -> int:
        """The file descriptor, for calls such as `sendfile`."""
        ...

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class FileSystem(Protocol):
    """What the engine needs of a file system. Every error is the operating system's `OSError`."""

    def open(self, path: Path, mode: OpenMode) -> File:
        """Opens a regular file: `r` reads, `r+` changes, `create_new` makes, `create` makes in place of an old one."""
        ...

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        """What is there, or None; a link at the end is followed unless not `follow`."""
        ...

    def list(self, directory: Path) -> list[str]:
        """Names in `directory`, sorted."""
        ...

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        """Names in `directory`, sorted, with what is there; quicker than asking for each.

        Links are followed, but those that may not be: their status is their own (`is_link`). What is gone by now is
        left out.
        """
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Moves a file or directory within one file system, replacing a file at `target` in one step."""
        ...

    def remove(self, path: Path) -> None:
        """Removes a file, or a link, not what it leads to."""
        ...

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        """Creates a directory; with `parents` also those above it, and an existing one is no error.

        What is created has `access` (None: what the umask leaves).
        """
        ...

    def remove_directory(self, path: Path) -> None:
        """Removes an empty directory."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Returns when creations, renames and removals in `path` are on stable storage (Utils.flushDir)."""
        ...

    def set_modified(self, path: Path, modified_ms: int) -> None:
        """Sets the modification time (epoch milliseconds)."""
        ...

    def copy_attributes(self, source: Path, target: Path) -> None:
        """Gives `target` the mode, the modification time and, where allowed, the owner of `source`."""
        ...

    def free_bytes(self, path: Path) -> int:
        """Bytes that this user may still write to the file system of `path`."""
        ...

    def reads_at_once(self, path: Path) -> int:
        """How many reads at `path` may wait for their bytes at once: 1 where no network lies between."""
        ...

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        """A whole small file. RefusedError when it is larger than `limit` bytes."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Makes `target` a second name of the file `source` (a hard link)."""
        ...


class LocalFile:
    """A file of the operating system, opened by `LocalFileSystem.open`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._named = _Naming(path)
        self._has_one_name = False

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def status(self) -> FileStatus:
        return _status_of(os.fstat(self._descriptor))

    def read_at(self, position: int, size: int) -> bytes:
        if size > _UNCHECKED_READ_SIZE:
            size = max(0, min(size, self.size() - position))
        data = self._read_once(position, size)
        while 0 < len(data) < size:
            more = self._read_once(position + len(data), size - len(data))
            if not more:
                break
            data += more
        return data

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        view = _as_bytes(buffer)
        filled = 0
        while filled < view.nbytes:
            count = self._read_into_once(position + filled, view[filled:])
            if count == 0:
                break
            filled += count
        return filled

    def lend(self, position: int, size: int) -> memoryview | None:  # noqa: ARG002 (the kernel has them, not we)
        return None

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        view = _as_bytes(data)
        written = 0
        with self._named:
            self._require_one_name()
            while written < view.nbytes:
                written += os.pwrite(self._descriptor, view[written:], position + written)

    def _read_once(self, position: int, size: int) -> bytes:
        with self._named:
            return os.pread(self._descriptor, size, position)

    def _read_into_once(self, position: int, view: memoryview) -> int:
        with self._named:
            return os.preadv(self._descriptor, [view], position)

    def truncate(self, size: int) -> None:
        with self._named:
            self._require_one_name()
            os.ftruncate(self._descriptor, size)

    def _require_one_name(self) -> None:
        """Asked once, before the first change: the other name may be a backup's, or that of a file of root."""
        if not self._has_one_name:
            names = os.fstat(self._descriptor).st_nlink
            if names > 1:
                raise RefusedError(
                    f"{self.path} has {names} names (hard links), and what the others name would be changed with it:"
                    f" give it contents of its own first (cp -p {self.path} COPY && mv COPY {self.path})"
                )
            self._has_one_name = True

    def give(self, access: Access) -> None:
        with self._named:
            give(self._descriptor, access)

    def sync(self) -> None:
        with self._named:
            sync(self._descriptor)

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        """The kernel reads ahead by itself."""

    def advise_dropped(self, position: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_DONTNEED)

    def start_writing(self, position: int, size: int) -> None:
        start_writing(self._descriptor, position, size)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A file that an error left behind must not cost a descriptor until the process ends.
        self.close()

    def __repr__(self) -> str:
        return f"LocalFile({str(self.path)!r}{', closed' if self._descriptor < 0 else ''})"


class LocalFileSystem:
    """The operating system's files; holds no state."""

    def open(self, path: Path, mode: OpenMode) -> LocalFile:
        is_new = mode in ("create", "create_new")
        descriptor = create_file(path, replace=mode == "create") if is_new else _open(path, mode)
        try:
            kind = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(kind):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if not stat.S_ISREG(kind):
                raise not_a_file(path)
        except BaseException:
            os.close(descriptor)
            raise
        return LocalFile(path, descriptor)

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        found = links.look_at(path, follow=follow)
        return None if found is None else _status_of(found)

    def list(self, directory: Path) -> list[str]:
        descriptor = links.open_path(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(descriptor) as entries:
                return sorted(entry.name for entry in entries)
        finally:
            os.close(descriptor)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        found = []
        descriptor = links.open_path(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in self.list(directory):
                with contextlib.suppress(FileNotFoundError):
                    status = _status_of(os.stat(name, dir_fd=descriptor, follow_symlinks=False))
                    found.append((name, self._followed(directory / name) or status if status.is_link else status))
        finally:
            os.close(descriptor)
        return found

    def _followed(self, path: Path) -> FileStatus | None:
        """What a link leads to; None when it may not or cannot be followed. FileNotFoundError when nothing is there."""
        try:
            status = self.status(path)
        except OSError:
            return None
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return status

    def rename(self, source: Path, target: Path) -> None:
        with links.entries_of(source, target) as (old, new):
            require_replaceable(new, target)
            os.replace(old.name, new.name, src_dir_fd=old.descriptor, dst_dir_fd=new.descriptor)

    def remove(self, path: Path) -> None:
        with links.entry_of(path) as entry:
            os.unlink(entry.name, dir_fd=entry.descriptor)

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        try:
            make_directory(path, access)
        except FileNotFoundError:
            if not parents or path.parent == path:
                raise
            self.make_directory(path.parent, parents, access)
            self.make_directory(path, parents, access)
        except FileExistsError:
            found = self.status(path) if parents else None
            if found is None or not found.is_directory:
                raise

    def remove_directory(self, path: Path) -> None:
        with links.entry_of(path) as entry:
            os.rmdir(entry.name, dir_fd=entry.descriptor)

    def sync_directory(self, path: Path) -> None:
        descriptor = links.open_path(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _Naming(path):
                sync(descriptor)
        finally:
            os.close(descriptor)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        with links.entry_of(path, follow=True) as entry:
            found = os.stat(entry.name, dir_fd=entry.descriptor, follow_symlinks=False)
            times = (found.st_atime_ns, modified_ms * 1_000_000)
            os.utime(entry.name, ns=times, dir_fd=entry.descriptor, follow_symlinks=False)

    def copy_attributes(self, source: Path, target: Path) -> None:
        wanted = self.status(source)
        if wanted is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        descriptor = _open(target, "r")
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                raise not_a_file(target)
            give(descriptor, Access.of(wanted))
            os.utime(descriptor, ns=(found.st_atime_ns, wanted.modified_ns))
        finally:
            os.close(descriptor)

    def reads_at_once(self, path: Path) -> int:  # noqa: ARG002 (no path is far away)
        return 1

    def free_bytes(self, path: Path) -> int:
        descriptor = links.open_path(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstatvfs(descriptor)
            return found.f_bavail * found.f_frsize
        finally:
            os.close(descriptor)

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        with self.open(path, "r") as file:
            return read_whole(file, limit)

    def link(self, source: Path, target: Path) -> None:
        with links.entries_of(source, target) as (old, new):
            os.link(old.name, new.name, src_dir_fd=old.descriptor, dst_dir_fd=new.descriptor, follow_symlinks=False)


def read_whole(file: File, limit: int) -> bytes:
    """All that an open file holds. RefusedError when that is more than `limit` bytes."""
    size = file.size()
    if size > limit:
        raise RefusedError(f"{file.path}: {size} bytes, more than the {limit} bytes such a file may have")
    return file.read_at(0, size)


def _status_of(found: os.stat_result) -> FileStatus:
    kind = found.st_mode
    return FileStatus(
        size=found.st_size,
        modified_ms=found.st_mtime_ns // 1_000_000,
        modified_ns=found.st_mtime_ns,
        inode=found.st_ino,
        device=found.st_dev,
        mode=stat.S_IMODE(kind),
        owner=found.st_uid,
        group=found.st_gid,
        allocated=found.st_blocks * 512,
        is_directory=stat.S_ISDIR(kind),
        is_link=stat.S_ISLNK(kind),
        is_special=not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind)),
        names=found.st_nlink,
    )


class _Naming:
    """The operating system knows a descriptor; whoever reads the error wants a name. Entered as often as wanted.

    A class, as a generator takes a microsecond more, and every read of a file enters this.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing is to be done before."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            error.filename = error.filename or str(self._path)


def _as_bytes(buffer: ReadableBuffer) -> memoryview:
    """A flat view of a contiguous buffer's bytes; TypeError when it is not contiguous."""
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def _open(path: Path, mode: OpenMode) -> int:
    """Opens without disturbing the access time where the system permits it (the file's owner, or root)."""
    flags = (os.O_RDONLY if mode == "r" else os.O_RDWR) | _ALWAYS
    if mode == "r" and _NO_ACCESS_TIME:
        try:
            return links.open_path(path, flags | _NO_ACCESS_TIME)
        except PermissionError as error:
            if error.errno != errno.EPERM:
                raise
    return links.open_path(path, flags)
