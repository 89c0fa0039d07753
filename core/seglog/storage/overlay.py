"""A file system over another one: reads go through, every change stays in memory.

Every dry run gives this to the code that does the work, so the plan is the work's own decision; read-only analyses use
it too. A changed file keeps the untouched front of the file below and holds the rest in memory: truncating a large log
costs nothing, and only newly written bytes take memory.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.storage.filesystem import (
    File,
    FileStatus,
    FileSystem,
    OpeningEach,
    OpenMode,
    PassingFileSystem,
    VirtualFile,
    write_atomically,
)
from seglog.storage.frozen import VanishedError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from seglog.storage.filesystem import Access

BLOCK_BYTES = 4096
FILES_HELD = 16


class _FilesBelow:
    """The files below that changed ones still need. At most FILES_HELD are open at a time; the others are opened again
    when they are read, because a log may have more segments than a process descriptors.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs, self._lock = fs, threading.RLock()
        self._open: dict[_FileBelow, File] = {}  # least recently read first

    def add(self, path: Path) -> _FileBelow:
        """Opens a file. Raises OSError."""
        with self._lock:
            opened = self._fs.open(path, "r")
            found = _FileBelow(path, _identity(opened.status()), self)
            self._hold(found, opened)
        return found

    def read_into(self, wanted: _FileBelow, position: int, buffer: memoryview) -> int:
        """Raises VanishedError if another file has the name by now."""
        with self._lock:
            opened = self._open.pop(wanted, None)
            if opened is None:
                opened = self._fs.open(wanted.path, "r")
                if _identity(opened.status()) != wanted.identity:
                    opened.close()
                    raise VanishedError(wanted.path)
            self._hold(wanted, opened)
            return opened.read_into(position, buffer)

    def close(self) -> None:
        """Closes them; one that is read after that is opened again."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    def _hold(self, wanted: _FileBelow, opened: File) -> None:
        self._open[wanted] = opened
        if len(self._open) > FILES_HELD:
            self._open.pop(next(iter(self._open))).close()


@dataclass(frozen=True, slots=True, eq=False)
class _FileBelow:
    """A file below, whose unchanged bytes are still read."""

    path: Path
    identity: tuple[object, ...]
    files: _FilesBelow

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self.files.read_into(self, position, buffer)

    def read_at(self, position: int, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.read_into(position, memoryview(buffer))])


@dataclass(slots=True)
class Contents:
    """A changed file: `below[0:kept]`, then `tail`. `given_back` are the bytes on disk that emptying it would free.

    `let_go` are the bytes of a tail that is no longer kept.
    """

    status: FileStatus
    below: _FileBelow | None = None
    kept: int = 0
    tail: bytearray = field(default_factory=bytearray)
    given_back: int = 0
    let_go: int = 0

    @property
    def written(self) -> int:
        """The bytes after those that are kept."""
        return len(self.tail) + self.let_go

    @property
    def size(self) -> int:
        return self.kept + self.written


@dataclass(frozen=True, slots=True)
class Derived:
    """How a changed file follows from the one below: the first `kept` bytes of `source`, then written bytes, `size` in
    all. Without a source all bytes were written.
    """

    source: Path | None
    kept: int
    size: int


@dataclass(frozen=True, slots=True)
class RoomTaken:
    """The disk space that an overlay's changes would take and free, in bytes.

    `written` counts new blocks; only files that are emptied and filled again give back theirs first. `released` counts
    the blocks of all files that go or are rewritten: an upper bound. `growth` is how much more is taken when all is
    done, at least 0: with less room no order of the changes succeeds.
    """

    written: int
    released: int
    growth: int


class OverlayFile(VirtualFile):
    """A changed file of an overlay, in memory. It reads like any other file."""

    def __init__(self, path: Path, contents: Contents) -> None:
        self.path, self._contents = path, contents

    def size(self) -> int:
        return self._contents.size

    def status(self) -> FileStatus:
        return self._contents.status._replace(size=self.size())

    def read_at(self, position: int, size: int) -> bytes:
        buffer = bytearray(max(0, min(size, self.size() - position)))
        return bytes(buffer[: self.read_into(position, buffer)])

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        contents, view = self._contents, memoryview(buffer)
        if not view.nbytes:
            return 0
        view = view.cast("B")
        wanted = max(0, min(view.nbytes, contents.size - position))
        front = max(0, min(wanted, contents.kept - position))
        if front and contents.below is not None:
            got = contents.below.read_into(position, view[:front])
            if got < front:  # a broker has cut the file below meanwhile
                return got
        start = position + front - contents.kept
        view[front:wanted] = memoryview(contents.tail)[start : start + wanted - front]
        return wanted

    def write_at(self, position: int, data: ReadableBuffer) -> None:
        contents, view = self._contents, memoryview(data)
        if not view.nbytes:
            return
        view = view.cast("B")
        if position < contents.kept:
            moved = contents.below.read_at(position, contents.kept - position) if contents.below else b""
            contents.tail[:0], contents.kept = moved, position
        start = position - contents.kept
        if start > len(contents.tail):
            contents.tail.extend(bytes(start - len(contents.tail)))
        contents.tail[start : start + view.nbytes] = view

    def truncate(self, size: int) -> None:
        contents = self._contents
        if size <= contents.kept:
            contents.kept = size
            contents.tail.clear()
        elif size < contents.size:
            del contents.tail[size - contents.kept :]
        else:
            contents.tail.extend(bytes(size - contents.size))

    def give(self, access: Access) -> None:
        status = self._contents.status
        owner = status.owner if access.owner < 0 else access.owner
        group = status.group if access.group < 0 else access.group
        self._contents.status = status._replace(owner=owner, group=group, mode=access.mode & 0o666)


class OverlayFileSystem(OpeningEach):
    """`below` with changes in memory. Directories are created in memory, too; moving directories is not supported."""

    def __init__(self, below: FileSystem) -> None:
        self._below = below
        self._files_below = _FilesBelow(below)
        self._changed: dict[Path, Contents] = {}
        self._directories: dict[Path, FileStatus] = {}
        self._gone: set[Path] = set()
        self._touched: dict[Path, set[Path]] = {}  # by directory, for listings: a dry run touches ten thousand of them

    @property
    def changed(self) -> tuple[Path, ...]:
        """The files whose contents or names differ from those below."""
        return tuple(sorted(self._changed))

    @property
    def gone(self) -> tuple[Path, ...]:
        """The files that were removed or renamed away."""
        return tuple(sorted(self._gone - self._changed.keys()))

    @property
    def changes_directories(self) -> bool:
        """True if any directory was created or removed."""
        removed = (self._below.status(path, follow=False) for path in self._gone)
        return bool(self._directories) or any(status is not None and status.is_directory for status in removed)

    @property
    def room(self) -> RoomTaken:
        """The disk space of the changes, in whole blocks, including one for new names."""
        taken = [blocks(found.written) - found.given_back for found in self._changed.values() if found.written]
        written = sum(max(0, size) for size in taken)
        released = grown = 0
        for path in self._gone | self._changed.keys():
            status, contents = self._below.status(path), self._changed.get(path)
            allocated = 0 if status is None else status.allocated
            released += allocated
            grown -= allocated
            if contents is not None:
                grown += min(blocks(contents.kept), allocated) + blocks(contents.written)
        return RoomTaken(written + BLOCK_BYTES if written else 0, released, max(0, grown))

    def let_go(self) -> None:
        """Forgets what was written, for a caller that needs only the names and sizes of files from here on; opening
        such a file is a ValueError."""
        for contents in self._changed.values():
            contents.let_go, contents.tail = contents.written, bytearray()

    def close_files(self) -> None:
        """Closes the files below that changed ones need: a disk gives no room for removed files that are open."""
        self._files_below.close()

    def derived(self, path: Path) -> Derived:
        """Returns how a changed file follows from the one below."""
        contents = self._changed[path]
        return Derived(None if contents.below is None else contents.below.path, contents.kept, contents.size)

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode == "r" and not self._touched:
            return self._below.open(path, "r")
        status = self.status(path)
        if status is not None and status.is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if mode == "r" and path not in self._changed:
            self._require(path, status)
            return self._below.open(path, "r")
        if mode == "create_new" and status is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        if path in self._changed and self._changed[path].let_go:
            raise ValueError(f"{path}: what was written to it was dropped")
        if mode in ("create", "create_new"):
            made = _new_status(None, 0o644) if status is None else status._replace(size=0)
            self._change(path, Contents(made, given_back=made.allocated))
        else:
            self._adopt(path)
        return OverlayFile(path, self._changed[path])

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        if not self._touched:  # without a change no path need be hashed, which takes longer than the rest
            return self._below.status(path, follow)
        if path in self._changed:
            contents = self._changed[path]
            return contents.status._replace(size=contents.size)
        if path in self._directories:
            return self._directories[path]
        return None if path in self._gone else self._below.status(path, follow)

    def list(self, directory: Path) -> list[str]:
        found = set() if directory in self._directories else set(self._below.list(directory))
        for path in self._touched.get(directory, ()):
            if path in self._changed or path in self._directories:
                found.add(path.name)
            elif path in self._gone:
                found.discard(path.name)
        return sorted(found)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        found = {} if directory in self._directories else dict(self._below.entries(directory))
        for path in self._touched.get(directory, ()):
            status = self.status(path) if path in self._changed or path in self._directories else None
            if status is not None:
                found[path.name] = status
            elif path in self._gone:
                found.pop(path.name, None)
        return sorted(found.items())

    def rename(self, source: Path, target: Path) -> None:
        self._adopt(source)
        self._change(target, self._changed.pop(source))
        self._drop(source)

    def remove(self, path: Path) -> None:
        self._require(path, self.status(path))
        self._changed.pop(path, None)
        self._drop(path)

    def make_directory(self, path: Path, parents: bool = False, access: Access | None = None) -> None:
        if self.status(path) is not None:
            if parents:
                return
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        if parents and path.parent != path:
            self.make_directory(path.parent, parents=True, access=access)
        self._directories[path] = _new_status(access, 0o755)._replace(is_directory=True)
        self._touch(path)

    def remove_directory(self, path: Path) -> None:
        if self.list(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        self._directories.pop(path, None)
        self._drop(path)

    def sync_directory(self, path: Path) -> None:
        self._require(path, self.status(path))

    def set_modified(self, path: Path, modified_ms: int) -> None:
        contents = self._adopt(path)
        contents.status = contents.status._replace(modified_ms=modified_ms, modified_ns=modified_ms * 1_000_000)

    def copy_attributes(self, source: Path, target: Path) -> None:
        wanted, contents = self.status(source), self._adopt(target)
        self._require(source, wanted)
        if wanted is not None:
            contents.status = wanted._replace(size=contents.size)

    def free_bytes(self, path: Path) -> int:
        return self._below.free_bytes(path)

    def reads_at_once(self, path: Path) -> int:
        return self._below.reads_at_once(path)

    def link(self, source: Path, target: Path) -> None:
        if self.status(target) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        self._change(target, self._adopt(source))

    def substitute(self, path: Path, source: Path) -> None:
        """Gives `path` the contents of `source`, a file below. An existing `path` keeps its attributes; a new one gets
        those of `source`.
        """
        given, status = self._below.status(source), self.status(path)
        self._require(source, given)
        assert given is not None
        size = given.size
        contents = Contents((status or given)._replace(size=size), self._files_below.add(source), size)
        self._change(path, contents)

    def write(self, path: Path) -> None:
        """Writes a changed file below, durably: in place if it was opened there, which takes no more room than `room`
        says; else as a whole (`write_atomically`).
        """
        contents, status = self._changed[path], self._below.status(path)
        if status is None or _identity(status) != _identity(contents.status):
            write_atomically(self._below, path, self.read_bytes(path))
            return
        with self._below.open(path, "r+") as file:
            file.truncate(contents.kept)
            file.write_at(contents.kept, contents.tail)
            file.sync()

    def _adopt(self, path: Path) -> Contents:
        """Returns the contents of a file that is about to change."""
        if path not in self._changed:
            status = self.status(path)
            self._require(path, status)
            assert status is not None
            self._change(path, Contents(status, self._files_below.add(path), status.size))
        return self._changed[path]

    def _change(self, path: Path, contents: Contents) -> None:
        self._changed[path] = contents
        self._touch(path)

    def _drop(self, path: Path) -> None:
        self._gone.add(path)
        self._touch(path)

    def _touch(self, path: Path) -> None:
        self._touched.setdefault(path.parent, set()).add(path)

    def _require(self, path: Path, status: FileStatus | None) -> None:
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def _identity(status: FileStatus) -> tuple[object, ...]:
    return status.device, status.inode


def blocks(size: int) -> int:
    """Returns the bytes that a file of `size` bytes takes on disk."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _new_status(access: Access | None, mode: int) -> FileStatus:
    owner, group = (-1, -1) if access is None else (access.owner, access.group)
    return FileStatus(
        size=0,
        modified_ms=0,
        modified_ns=0,
        inode=0,
        device=0,
        mode=mode if access is None else access.mode,
        owner=os.geteuid() if owner < 0 else owner,
        group=os.getegid() if group < 0 else group,
        allocated=0,
        is_directory=False,
    )


class TrialFileSystem(PassingFileSystem):
    """`below` with changes in memory, in `overlay`, until `keep` makes them and lets every call through."""

    def __init__(self, below: FileSystem) -> None:
        self.overlay, self._real = OverlayFileSystem(below), below
        super().__init__(self.overlay)

    @property
    def unchanged(self) -> bool:
        """True if no contents and no name were changed in memory."""
        return not self.written and not self.overlay.gone

    @property
    def written(self) -> tuple[Path, ...]:
        """The files that get new contents, or contents of another name."""
        return tuple(path for path in self.overlay.changed if not self._is_as_below(path))

    def keep(self) -> None:
        """Makes the changes of contents and names, durably; from here on reads and writes go to the file system below.
        Raises ValueError for a trial that created or removed directories.

        1. Files that were opened for writing are synced, written or not. One that may not be written is an error before
           any change.
        2. Removed files go first: a full disk may need the room.
        3. Files are written, in the order of names (`OverlayFileSystem.write`).

        Close every file that was opened for writing before.
        """
        overlay, real, written = self.overlay, self._real, self.written
        if overlay.changes_directories:
            raise ValueError("a trial that created or removed directories cannot be kept")
        untouched = set(overlay.changed).difference(written)
        for path in overlay.changed:
            if real.status(path) is not None:
                with real.open(path, "r+") as file:
                    if path in untouched:
                        file.sync()
        for path in overlay.gone:
            if real.status(path, follow=False) is not None:
                real.remove(path)
        for path in written:
            overlay.write(path)
        self._below = real

    def _is_as_below(self, path: Path) -> bool:
        derived, status = self.overlay.derived(path), self._real.status(path)
        return status is not None and derived == Derived(path, status.size, status.size)
