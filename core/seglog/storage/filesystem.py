"""The only door to files: the `FileSystem` protocol, whole small files, and base classes for its implementations.

Everything the engine reads, writes, renames or syncs goes through this protocol, so that tests can cut the power at any
call, fill the disk or return short reads (`tests/support/crash_filesystem.py`). `local` implements it for the operating
system, `remote.filesystem` for object stores.

Errors of the operating system stay `OSError`, with errno and file name; nothing is retried or hidden.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, Protocol, Self

from seglog.errors import RefusedError
from seglog.remote_path import RemotePath

if TYPE_CHECKING:
    from types import TracebackType

    from _typeshed import ReadableBuffer, WriteableBuffer

OpenMode = Literal["r", "r+", "create", "create_new"]

READ_BYTES_LIMIT = 256 * 1024 * 1024
TEMPORARY_SUFFIX = ".tmp"
# Others never get write permission, even in a directory that they may write (/tmp).
_INHERITED = 0o2775


class FileStatus(NamedTuple):
    """What the operating system reports about a path: a tuple, because a look at a directory makes one for each name.

    `size` and `allocated` (blocks on disk, less than `size` in a sparse file) are in bytes. `modified_ms` is the
    modification time rounded down to milliseconds, as Java's `File.lastModified` returns it. `names` counts hard links.
    A special file is neither a regular file nor a directory nor a link. `version` is an object's ETag, "" for files.
    """

    size: int
    modified_ms: int
    modified_ns: int
    inode: int
    device: int
    mode: int
    owner: int
    group: int
    allocated: int
    is_directory: bool
    is_link: bool = False
    is_special: bool = False
    names: int = 1
    version: str = ""

    @property
    def no_file(self) -> str:
        """What is there in place of a file, "" if a file is there."""
        return "a directory" if self.is_directory else "a pipe, a socket or a device" if self.is_special else ""


@dataclass(frozen=True, slots=True)
class Access:
    """Owner, group and mode of a new file or directory, whatever the umask. `mode` is a directory's; a file takes its
    read and write bits. An `owner` or `group` of -1 stays the process's.
    """

    owner: int
    group: int
    mode: int

    @classmethod
    def of(cls, found: FileStatus) -> Access:
        """The access of an existing file, without the setuid, setgid and sticky bits."""
        return cls(found.owner, found.group, found.mode & 0o777)

    @classmethod
    def within(cls, directory: FileStatus) -> Access:
        """The access for a directory's contents: whoever may create files there may also write the existing ones."""
        return cls(directory.owner, directory.group, directory.mode & _INHERITED)


# For what only this user may see.
PRIVATE = Access(-1, -1, 0o700)


class File(Protocol):
    """An open file. All access is positional, so one file may be read by many threads at once."""

    path: Path

    def size(self) -> int:
        """Bytes in the file now."""
        ...

    def status(self) -> FileStatus:
        """What the operating system reports about this very file, whatever its name refers to by now."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Returns `size` bytes from `position`; fewer only at the end. Never allocates more than the file holds."""
        ...

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        """Fills a contiguous buffer from `position`; returns the bytes read, fewer only at the end."""
        ...

    def lend(self, position: int, size: int) -> memoryview | None:
        """Returns at most `size` bytes from `position` without copying, if the file's bytes are in memory anyway: at
        least one byte unless the file ends there. They never change. None for any other file: use `read_into`.
        """
        ...

    def next_data(self, position: int) -> int:
        """Returns the first position from `position` on where bytes are stored, at least the size if there is none.

        All bytes before it are zeros (a hole). Without knowledge of holes it is `position` itself.
        """
        ...

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        """Writes all of a contiguous buffer at `position`; a gap before it reads as zeros."""
        ...

    def truncate(self, size: int) -> None:
        """Cuts the file to `size` bytes, or grows it with zeros that take no disk space."""
        ...

    def give(self, access: Access) -> None:
        """Sets owner, group and mode of a file that was just created, as far as this user may."""
        ...

    def sync(self) -> None:
        """Returns when contents, size and times are on stable storage."""
        ...

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        """Announces that these bytes will be read in order: a hint, for files where each request costs time.

        `side_by_side`: `FileSystem.reads_at_once` threads do so, each with a part of its own. `again`: they will be
        read once more, so they are worth keeping.
        """
        ...

    def advise_dropped(self, position: int, size: int) -> None:
        """Tells the page cache that these bytes are not needed again: a hint, where the system accepts one."""
        ...

    def start_writing(self, position: int, size: int) -> None:
        """Starts writing these bytes to disk, so that `sync` waits for less: a hint, where the system accepts one."""
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
    """The file system that the engine needs. Every error is an `OSError`, as the operating system raises it."""

    def open(self, path: Path, mode: OpenMode) -> File:
        """Opens a regular file: `r` reads, `r+` changes, `create_new` creates, `create` replaces an old one too."""
        ...

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        """Returns the status of `path`, or None if nothing is there. With `follow` a link at the end is followed."""
        ...

    def list(self, directory: Path) -> list[str]:
        """Names in `directory`, sorted."""
        ...

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        """Names in `directory`, sorted, with their status; quicker than asking for each.

        Links are followed, except untrusted ones, which have their own status (`is_link`). Names that are gone by now
        are left out.
        """
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Moves a file or directory within one file system, replacing a file at `target` in one step."""
        ...

    def remove(self, path: Path) -> None:
        """Removes a file, or a link but not its target."""
        ...

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        """Creates a directory with `access` (None: what the umask leaves); with `parents` also those above it, and then
        an existing one is not an error.
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
        """Returns the bytes that this user may still write to the file system of `path`."""
        ...

    def reads_at_once(self, path: Path) -> int:
        """Returns how many reads at `path` may wait for their bytes at once: 1 without a network in between."""
        ...

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        """Returns a whole small file. Raises RefusedError if it is larger than `limit` bytes."""
        ...

    def read_each(self, directory: Path, names: Iterable[str], limit: int = READ_BYTES_LIMIT) -> Sequence[bytes]:
        """Returns whole small files in `directory`, in order: as `read_bytes`, and quicker than asking for each."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Makes `target` a second name of the file `source` (a hard link)."""
        ...


def read_whole(file: File, limit: int) -> bytes:
    """Returns all bytes of an open file. Raises RefusedError if it has more than `limit`."""
    return file.read_at(0, require_size(file, limit))


def several_names(path: Path, names: int) -> RefusedError:
    """Returns the error for writing a file that has other names: one may be a backup's, or that of a file of root."""
    return RefusedError(
        f"{path} has {names} names (hard links), and writing it would change the file under its other names: give it"
        f" contents of its own first (cp -p {path} COPY && mv COPY {path})"
    )


def leads_nowhere(fs: FileSystem, path: Path) -> bool:
    """True for a link to something that is not there. Raises OSError."""
    link = fs.status(path, follow=False)
    return link is not None and link.is_link and fs.status(path) is None


def require_size(file: File, limit: int) -> int:
    """Returns the size of an open file. Raises RefusedError if it has more than `limit` bytes."""
    size = file.size()
    if size > limit:
        raise RefusedError(f"{file.path}: {size} bytes, more than the {limit} bytes such a file may have")
    return size


def write_atomically(fs: FileSystem, path: Path, data: ReadableBuffer, access: Access | None = None) -> None:
    """Replaces the contents of `path`: readers and crashes see the old contents or the new, never a mixture.

    1. Create `<name>.tmp` beside the file, with `access`, else the owner and mode of the old file. A file of that name,
       left over or planted, is removed first: nothing is ever written through it.
    2. Write and fsync it.
    3. Rename it over the file.
    4. Fsync the directory, so that the rename itself survives.

    An error or a signal leaves the old contents in place and no temporary file. A crash may leave `<name>.tmp`,
    which Kafka and seglog overwrite the next time.

    Kafka: CheckpointFile.write, ProducerStateManager.writeSnapshot, Utils.atomicMoveWithFallback.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with fs.open(temporary, "create") as file:
            old = fs.status(path, follow=False)
            if access is None and old is not None and not old.is_link:
                access = Access.of(old)
            if access is not None:
                file.give(access)
            file.write_at(0, data)
            file.sync()
        fs.rename(temporary, path)
    except BaseException:  # a signal, too
        with contextlib.suppress(OSError):
            fs.remove(temporary)
        raise
    fs.sync_directory(path.parent)


# --- bases -------------------------------------------------------------------------------------------------


class PassingFile:
    """Passes every call on to `below`."""

    def __init__(self, below: File) -> None:
        self.path, self._below = below.path, below

    def size(self) -> int:
        return self._below.size()

    def status(self) -> FileStatus:
        return self._below.status()

    def read_at(self, position: int, size: int) -> bytes:
        return self._below.read_at(position, size)

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        return self._below.read_into(position, buffer)

    def lend(self, position: int, size: int) -> memoryview | None:
        return self._below.lend(position, size)

    def next_data(self, position: int) -> int:
        return self._below.next_data(position)

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        self._below.write_at(position, data)

    def truncate(self, size: int) -> None:
        self._below.truncate(size)

    def give(self, access: Access) -> None:
        self._below.give(access)

    def sync(self) -> None:
        self._below.sync()

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        self._below.advise_wanted(position, size, side_by_side=side_by_side, again=again)

    def advise_dropped(self, position: int, size: int) -> None:
        self._below.advise_dropped(position, size)

    def start_writing(self, position: int, size: int) -> None:
        self._below.start_writing(position, size)

    def fileno(self) -> int:
        return self._below.fileno()

    def close(self) -> None:
        self._below.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OpeningEach:
    """The reading of whole files where nothing is quicker than opening each."""

    def read_bytes(self: FileSystem, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        with self.open(path, "r") as file:
            return read_whole(file, limit)

    def read_each(
        self: FileSystem, directory: Path, names: Iterable[str], limit: int = READ_BYTES_LIMIT
    ) -> Sequence[bytes]:
        return [self.read_bytes(directory / name, limit) for name in names]


class PassingFileSystem(OpeningEach):
    """Passes every call on to `below`."""

    def __init__(self, below: FileSystem) -> None:
        self._below = below

    def open(self, path: Path, mode: OpenMode) -> File:
        return self._below.open(path, mode)

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        return self._below.status(path, follow)

    def list(self, directory: Path) -> list[str]:
        return self._below.list(directory)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        return self._below.entries(directory)

    def rename(self, source: Path, target: Path) -> None:
        self._below.rename(source, target)

    def remove(self, path: Path) -> None:
        self._below.remove(path)

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        self._below.make_directory(path, parents, access)

    def remove_directory(self, path: Path) -> None:
        self._below.remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._below.sync_directory(path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self._below.set_modified(path, modified_ms)

    def copy_attributes(self, source: Path, target: Path) -> None:
        self._below.copy_attributes(source, target)

    def free_bytes(self, path: Path) -> int:
        return self._below.free_bytes(path)

    def reads_at_once(self, path: Path) -> int:
        return self._below.reads_at_once(path)

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        return self._below.read_bytes(path, limit)

    def link(self, source: Path, target: Path) -> None:
        self._below.link(source, target)


_REMOTE = "seglog only reads here: this needs a local directory"
_VIEW = "seglog only reads here: this is shown as it was, or as a tier has it"


def refuse_to_write(path: Path) -> NoReturn:
    """Raises the OSError for a change at `path`: EROFS."""
    raise OSError(errno.EROFS, _REMOTE if isinstance(path, RemotePath) else _VIEW, str(path))


class VirtualFile:
    """Base for files without a file descriptor: nothing to lend, to store, to drop from a page cache, or to close."""

    path: Path

    def sync(self) -> None:
        """Does nothing: it is as stable as it will be."""

    def lend(self, position: int, size: int) -> memoryview | None:
        """Returns None: its bytes are made when they are read."""
        return None

    def next_data(self, position: int) -> int:
        """Returns `position`: holes are unknown."""
        return position

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        """Does nothing: announcing makes no read quicker."""

    def advise_dropped(self, position: int, size: int) -> None:
        """Does nothing: no page cache holds it."""

    def start_writing(self, position: int, size: int) -> None:
        """Does nothing: no disk is written."""

    def fileno(self) -> int:
        """Raises OSError: there is no descriptor."""
        raise OSError(errno.ENOTSUP, "no file descriptor stands for it: it is read, not sent", str(self.path))

    def close(self) -> None:
        """Does nothing: nothing is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class UnchangedFile:
    """Base for files that are only read: every change is an OSError (EROFS)."""

    path: Path

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        refuse_to_write(self.path)

    def truncate(self, size: int) -> None:
        refuse_to_write(self.path)

    def give(self, access: Access) -> None:
        refuse_to_write(self.path)


class ReadOnlyFile(UnchangedFile, VirtualFile):
    """Base for files that are only read and have no descriptor: adds all but `size`, `status` and reading."""
