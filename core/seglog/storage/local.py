"""The operating system's files.

Reads are positional (`pread`), never mapped: a broker that truncates a file under a mapping kills the process that
mapped it (SIGBUS). Interrupted calls are continued: PEP 475 repeats them, and the loops below finish short reads and
writes.

`storage.links` walks every path: it follows no link of another user, in any component. A file with other names (hard
links) is not written in place; special files are neither opened nor replaced.

No file is created through a name that exists: a file to be replaced is removed first, never emptied, so neither the
target of a link nor another name of the file is touched. Owner and mode are set through the descriptor, not the name.

Kafka: FileRecords, FileChannel, Utils.atomicMoveWithFallback, Utils.flushDir.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from seglog.storage import links
from seglog.storage.filesystem import READ_BYTES_LIMIT, Access, FileStatus, OpeningEach, OpenMode, several_names

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_UNCHECKED_READ_SIZE = 1024 * 1024

# Opening a named pipe among the segments would block for ever; regular files ignore O_NONBLOCK.
_ALWAYS = os.O_CLOEXEC | os.O_NONBLOCK
_NO_ACCESS_TIME: int = getattr(os, "O_NOATIME", 0)
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NONBLOCK
_TRIES = 8  # to replace a file that somebody creates again and again
# No privilege, or (in a user namespace) no such user.
_MAY_NOT_GIVE = (errno.EPERM, errno.EACCES, errno.EINVAL)
_SYNC_FILE_RANGE_WRITE = 2
_PLAIN = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
_SEEK_DATA: int = getattr(os, "SEEK_DATA", 0)  # file systems without holes answer as if all were data


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

    def next_data(self, position: int) -> int:
        # Moves the descriptor's own position, which nothing here uses.
        try:
            return os.lseek(self._descriptor, position, _SEEK_DATA) if _SEEK_DATA else position
        except OSError as error:
            return max(position, self.size()) if error.errno == errno.ENXIO else position

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
        """Checked once, before the first change."""
        if not self._has_one_name:
            names = os.fstat(self._descriptor).st_nlink
            if names > 1:
                raise several_names(self.path, names)
            self._has_one_name = True

    def give(self, access: Access) -> None:
        with self._named:
            give(self._descriptor, access)

    def sync(self) -> None:
        with self._named:
            sync(self._descriptor)

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        """Does nothing: the kernel reads ahead by itself."""

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


class LocalFileSystem(OpeningEach):
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

    def _open_directory(self, directory: Path) -> int:
        return links.open_path(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def list(self, directory: Path) -> list[str]:
        descriptor = self._open_directory(directory)
        try:
            return sorted(os.listdir(descriptor))  # noqa: PTH208 (a path cannot be a descriptor)
        finally:
            os.close(descriptor)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        found = []
        descriptor = self._open_directory(directory)
        try:
            for name in self.list(directory):
                try:
                    status = _status_of(os.stat(name, dir_fd=descriptor, follow_symlinks=False))
                    found.append((name, self._followed(directory / name) or status if status.is_link else status))
                except FileNotFoundError:
                    continue  # gone since it was listed
        finally:
            os.close(descriptor)
        return found

    def _followed(self, path: Path) -> FileStatus | None:
        """The status of a link's target; None if it may not or cannot be followed. Raises FileNotFoundError."""
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

    def read_each(self, directory: Path, names: Iterable[str], limit: int = READ_BYTES_LIMIT) -> Sequence[bytes]:
        if type(self).open is not LocalFileSystem.open:  # which sees each file
            return super().read_each(directory, names, limit)
        descriptor = self._open_directory(directory)
        try:
            contents = []
            for name in names:
                data = self._read_within(descriptor, name, limit)
                contents.append(self.read_bytes(directory / name, limit) if data is None else data)
            return contents
        finally:
            os.close(descriptor)

    def _read_within(self, directory: int, name: str, limit: int) -> bytes | None:
        """Returns a file of an open directory; None if it is anything else, or if it cannot be read at once."""
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | _ALWAYS | _NO_ACCESS_TIME, dir_fd=directory)
        except OSError:
            return None  # a link, another user's file: `read_bytes` follows, or raises
        try:
            status = os.fstat(descriptor)
            is_small = stat.S_ISREG(status.st_mode) and status.st_size <= min(limit, _UNCHECKED_READ_SIZE)
            data = os.pread(descriptor, status.st_size, 0) if is_small else b""
            return data if is_small and len(data) == status.st_size else None
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def link(self, source: Path, target: Path) -> None:
        with links.entries_of(source, target) as (old, new):
            os.link(old.name, new.name, src_dir_fd=old.descriptor, dst_dir_fd=new.descriptor, follow_symlinks=False)


def _status_of(found: os.stat_result) -> FileStatus:
    kind, modified_ns = found.st_mode, found.st_mtime_ns
    form = stat.S_IFMT(kind)
    return FileStatus(  # in the order of its fields: names take half of the time
        found.st_size,
        modified_ns // 1_000_000,
        modified_ns,
        found.st_ino,
        found.st_dev,
        stat.S_IMODE(kind),
        found.st_uid,
        found.st_gid,
        found.st_blocks * 512,
        form == stat.S_IFDIR,
        form == stat.S_IFLNK,
        form not in _PLAIN,
        found.st_nlink,
    )


class _Naming:
    """Adds the path to errors of calls that only know a descriptor. May be entered any number of times.

    A class, because a generator takes a microsecond more and every read enters this.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            error.filename = error.filename or str(self._path)


def _as_bytes(buffer: ReadableBuffer) -> memoryview:
    """Returns a flat view of a contiguous buffer's bytes. Raises TypeError if it is not contiguous."""
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


# --- system calls ------------------------------------------------------------------------------------------


def create_file(path: Path, *, replace: bool) -> int:
    """Creates a file and returns its descriptor. With `replace` it first removes an old file of that name."""
    for _ in range(_TRIES):
        try:
            return links.open_path(path, _CREATE, 0o666)
        except FileExistsError:
            if not replace:
                raise
            _remove_old(path)
    raise FileExistsError(errno.EEXIST, "Somebody makes this file again and again", str(path))


def _remove_old(path: Path) -> None:
    """Removes a file or a link. The target of a link, or another name of the file, stays as it is."""
    with links.entry_of(path) as entry:
        require_replaceable(entry, path)
        try:
            os.unlink(entry.name, dir_fd=entry.descriptor)
        except FileNotFoundError:
            return
        except PermissionError:  # macOS's answer for a directory
            if stat.S_ISDIR(os.stat(entry.name, dir_fd=entry.descriptor, follow_symlinks=False).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path)) from None
            raise


def make_directory(path: Path, access: Access | None) -> None:
    """Creates a directory, with `access` from its first moment on (None: what the umask leaves)."""
    with links.entry_of(path) as entry:
        os.mkdir(entry.name, 0o777 if access is None else 0o700, dir_fd=entry.descriptor)
        if access is None:
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(entry.name, flags, dir_fd=entry.descriptor)
    try:
        # Somebody may have put another directory there meanwhile, which is not ours to give.
        if os.fstat(descriptor).st_uid == os.geteuid():
            give(descriptor, access)
    finally:
        os.close(descriptor)


def give(descriptor: int, access: Access) -> None:
    """Sets owner, group and mode of an open file or directory.

    Only root may give a file away, and only a member of the group may change the group; without that right the file
    keeps the process's own.
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
    """Raises OSError if the name is a pipe's, a socket's or a device's."""
    try:
        kind = os.stat(entry.name, dir_fd=entry.descriptor, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind) or stat.S_ISDIR(kind)):
        raise not_a_file(path)


def not_a_file(path: Path) -> OSError:
    """Returns the error for a path that is not a regular file."""
    return OSError(errno.EINVAL, "Not a regular file", str(path))


def start_writing(descriptor: int, position: int, size: int) -> None:
    """Starts writing these bytes to disk, where the system has a call for it."""
    start = _sync_file_range()
    if start is not None:
        start(descriptor, position, size, _SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux's call that starts writing a range without waiting; Python does not expose it."""
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
