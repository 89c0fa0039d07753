"""Views: file systems with read-only parts, and the one that shows a directory as it was at one moment.

A broker keeps changing the directory, but it only ever appends to a file, renames it, replaces it by a rename, or
removes it. Opening all files of a partition and noting their sizes therefore makes a copy of that moment at no cost: an
open file outlives its name, and appended bytes lie after the noted size. Two kinds of files need more:

- files changed in place (the indexes of the segment being written, which a broker maps into memory) are read at once,
  up to the zeros after what was written;
- files beyond the number of descriptors that may be held are opened when they are needed: by their name, or by the
  name that a deletion gives them first, and only if they are still the same file. Otherwise they have vanished.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from seglog.errors import reduced
from seglog.storage.adapters import ChangingFileSystem
from seglog.storage.filesystem import (
    READ_BYTES_LIMIT,
    File,
    FileStatus,
    FileSystem,
    OpenMode,
    PassingFile,
    ReadOnlyFile,
    UnchangedFile,
    read_whole,
    refuse_to_write,
)
from seglog.storage.padding import FRONT_BYTES, written_bytes, written_front

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_DELETED = ".deleted"
_MOST_WHOLE_BYTES = 64 << 20  # an index file of `segment.index.bytes` has 10 MiB
_HOLE_ALIGNMENT = 4096


class ViewFileSystem(ChangingFileSystem):
    """`below`, where some paths are only read (`is_only_read`): views. Other paths can be changed as below."""

    def is_only_read(self, path: Path) -> bool:
        """True if nothing may be changed at a path."""
        raise NotImplementedError

    def changing(self, *paths: Path) -> None:
        for path in paths:
            if self.is_only_read(path):
                refuse_to_write(path)

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode != "r":
            self.changing(path)
        return super().open(path, mode)

    def sync_directory(self, path: Path) -> None:
        self.changing(path)
        super().sync_directory(path)

    def link(self, source: Path, target: Path) -> None:
        self.changing(source)
        super().link(source, target)


class VanishedError(FileNotFoundError):
    """A file that was in its directory at the first look is gone, or another one has its name."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.ENOENT, "the file was removed or replaced while it was looked at", str(path))

    def __reduce__(self) -> tuple[object, ...]:
        return reduced(self)


class DescriptorBudget:
    """How many files may be held open at a time: a number, or half of the process's limit."""

    def __init__(self, most: int | None = None) -> None:
        self._most, self._held, self._guard = most, 0, threading.Lock()

    def take(self) -> bool:
        """Counts one more file; returns False, and counts nothing, if no more may be held."""
        with self._guard:
            if self._most is None:
                soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                self._most = 1 << 16 if soft == resource.RLIM_INFINITY else soft // 2
            if self._held >= self._most:
                return False
            self._held += 1
            return True

    def give(self) -> None:
        """Counts one file less."""
        with self._guard:
            self._held -= 1


SHARED_BUDGET = DescriptorBudget()


@dataclass(slots=True)
class _Entry:
    """A file as it was: held open, held as bytes, or only known. `counted`: `file` counts in the budget.

    With both, `file` has what follows the bytes; without `file`, zeros follow them.
    """

    status: FileStatus
    file: File | None = None
    data: bytes | None = None
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """How to take a directory: `names` in the order in which to open them, and the `whole` ones to read at once.

    `written`: a process is changing those in place, so not even zeros after their contents are read later. `passing`
    are names that may come and go without changing the meaning of the others.
    """

    names: Sequence[str]
    whole: frozenset[str] = frozenset()
    written: bool = False
    passing: frozenset[str] = frozenset()


class FrozenFileSystem(ViewFileSystem):
    """`below`, where `directory` is as it was when `take` ran, and cannot be changed.

    Closing it, or leaving its `with`, closes the held files.
    """

    def __init__(self, below: FileSystem, directory: Path, budget: DescriptorBudget = SHARED_BUDGET) -> None:
        super().__init__(below)
        self._directory, self._budget = directory, budget
        text = str(directory)
        self._prefix = "" if text == "." else text if text.endswith("/") else f"{text}/"
        self._entries: dict[str, _Entry] = {}

    def is_only_read(self, path: Path) -> bool:
        return self._directory in (path, path.parent)

    def take(
        self, order_of: Callable[[Sequence[str]], Order], entries: Sequence[tuple[str, FileStatus]] | None = None
    ) -> bool:
        """Takes the directory as it is now; returns whether it stayed the same meanwhile, new names aside.

        `entries` are those of a moment ago, if the caller has them: then the look began when they were listed. Raises
        OSError if the directory cannot be read.
        """
        self.close()
        there = dict(self._below.entries(self._directory) if entries is None else entries)
        order = order_of(list(there))
        same = True
        with ExitStack() as stack:
            opened = self._announced(order.whole)
            stack.callback(_close_all, opened)
            for name in order.names:
                whole = name in order.whole
                found = self._look(name, there[name], opened.pop(name, None), whole=whole, written=order.written)
                if found is not None:
                    self._entries[name] = found
                same = same and (found is not None or name in order.passing)
        later = dict(self._below.entries(self._directory))
        kept = ((name, entry) for name, entry in self._entries.items() if name not in order.passing)
        return same and all(_identity(later.get(name)) == _identity(entry.status) for name, entry in kept)

    def close(self) -> None:
        """Closes the held files; the directory is empty then."""
        for entry in self._entries.values():
            if entry.file is not None:
                entry.file.close()
            if entry.counted:
                self._budget.give()
        self._entries = {}

    def cut(self, path: Path, size: int) -> None:
        """Shows only the first `size` bytes of a file from now on."""
        entry = self._entries[path.name]
        entry.status = entry.status._replace(size=min(size, entry.status.size))

    @contextmanager
    def hold(self, paths: Iterable[Path]) -> Iterator[None]:
        """Holds files, if they are not held yet, while the `with` lasts. Raises VanishedError for one that is gone."""
        opened: list[_Entry] = []
        try:
            for path in paths:
                entry = self._entries.get(path.name)
                if entry is None:
                    raise VanishedError(path)
                if entry.file is None and entry.data is None:
                    with suppress(PermissionError):  # reading it raises that
                        entry.file = self._reopened(path, entry)
                        opened.append(entry)
            yield
        finally:
            for entry in opened:
                if entry.file is not None:
                    entry.file.close()
                    entry.file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # a view that an error left behind must not cost descriptors until the process ends
        self.close()

    # --- looking ------------------------------------------------------------------------------------------

    def _announced(self, names: Iterable[str]) -> dict[str, File]:
        """Opens the files that can be opened and announces them together, so that a store delivers them at once."""
        opened: dict[str, File] = {}
        for name in names:
            with suppress(OSError):  # `_look` handles that
                opened[name] = self._below.open(self._directory / name, "r")
                opened[name].advise_wanted(0, min(opened[name].size(), FRONT_BYTES))
        return opened

    def _look(self, name: str, status: FileStatus, opened: File | None, *, whole: bool, written: bool) -> _Entry | None:
        """Returns the file's entry, held if possible; None if the file is gone by now."""
        path = self._directory / name
        whole = whole and status.size <= _MOST_WHOLE_BYTES
        if status.is_directory or status.is_link or not (whole or self._budget.take()):
            return _Entry(status)
        try:
            file = opened or self._below.open(path, "r")
        except OSError as error:
            if not whole:
                self._budget.give()
            # any other error is raised to whoever reads the file
            return None if isinstance(error, FileNotFoundError) else _Entry(status)
        size = file.size()
        status = status if status.size == size else status._replace(size=size)
        if not whole:
            return _Entry(status, file, counted=True)
        with ExitStack() as stack:
            stack.enter_context(file)
            entry = self._read(file, status, written=written)
            if entry.file is not None:
                stack.pop_all()
            return entry

    def _read(self, file: File, status: FileStatus, *, written: bool) -> _Entry:
        """Returns the entry of a file that is read at once. Zeros that take disk space, or may, are left for later."""
        data = written_front(file).rstrip(b"\0")
        end = -(-len(data) // _HOLE_ALIGNMENT) * _HOLE_ALIGNMENT
        if status.size <= FRONT_BYTES or file.next_data(min(end, status.size)) >= status.size:
            return _Entry(status, data=data)
        if written or not self._budget.take():
            return _Entry(status, data=written_bytes(file).rstrip(b"\0"))
        return _Entry(status, file, data, counted=True)

    # --- reading ------------------------------------------------------------------------------------------

    def open(self, path: Path, mode: OpenMode) -> File:
        name = self._name_inside(path)
        if name is None or mode != "r":
            return super().open(path, mode)
        entry = self._entries.get(name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if entry.data is not None:
            return _WholeFile(path, entry)
        if entry.file is not None:
            return _FrozenFile(entry.file, entry.status.size, path, owned=False)
        return _FrozenFile(self._reopened(path, entry), entry.status.size, path, owned=True)

    def _name_inside(self, path: Path) -> str | None:
        """Returns the name of a path in the directory, None for any other path."""
        # as text: comparing the parents of paths takes a tenth of a look's time
        text = str(path)
        name = text[len(self._prefix) :] if text.startswith(self._prefix) and text != "." else ""
        return name if name and "/" not in name else None

    def _reopened(self, path: Path, entry: _Entry) -> File:
        for candidate in (path, path.with_name(path.name + _DELETED)):
            try:
                file = self._below.open(candidate, "r")
            except FileNotFoundError:
                continue
            # the same identity before and after opening: else another file has the name
            if _identity(self._below.status(candidate)) == _identity(entry.status) and file.size() >= entry.status.size:
                return file
            file.close()
        raise VanishedError(path)

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        name = self._name_inside(path)
        if name is None:
            return self._below.status(path, follow)
        entry = self._entries.get(name)
        return None if entry is None else entry.status

    def list(self, directory: Path) -> list[str]:
        return sorted(self._entries) if directory == self._directory else self._below.list(directory)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        if directory != self._directory:
            return self._below.entries(directory)
        return [(name, self._entries[name].status) for name in sorted(self._entries)]

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        with self.open(path, "r") as file:
            return read_whole(file, limit)


class _FrozenFile(UnchangedFile, PassingFile):
    """A file with the size it had; closing one that the file system holds leaves it open."""

    def __init__(self, below: File, size: int, path: Path, *, owned: bool) -> None:
        super().__init__(below)
        self.path, self._size, self._owned = path, size, owned

    def size(self) -> int:
        """The size it had, or less if the file was cut since."""
        return min(self._size, self._below.size())

    def read_at(self, position: int, size: int) -> bytes:
        return self._below.read_at(position, max(0, min(size, self._size - position)))

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        wanted = max(0, min(view.nbytes, self._size - position))
        return self._below.read_into(position, view.cast("B")[:wanted]) if wanted else 0

    def lend(self, position: int, size: int) -> memoryview | None:
        return self._below.lend(position, max(0, min(size, self._size - position)))

    def close(self) -> None:
        if self._owned:
            self._below.close()


class _WholeFile(ReadOnlyFile):
    """A file whose contents were read: `data`, then what the entry's file has, or zeros up to `size`."""

    def __init__(self, path: Path, entry: _Entry) -> None:
        self.path, self._status, self._rest = path, entry.status, entry.file
        self._data, self._size = entry.data or b"", entry.status.size

    def size(self) -> int:
        return self._size

    def status(self) -> FileStatus:
        return self._status

    def read_at(self, position: int, size: int) -> bytes:
        buffer = bytearray(max(0, min(size, self._size - position)))
        return bytes(buffer[: self.read_into(position, buffer)])

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(view.nbytes, self._size - position))
        held = self._data[position : position + wanted]
        if self._rest is None or len(held) == wanted:
            view[:wanted] = held.ljust(wanted, b"\0")
            return wanted
        view[: len(held)] = held
        return len(held) + self._rest.read_into(position + len(held), view[len(held) : wanted])

    def next_data(self, position: int) -> int:
        if position < len(self._data):
            return position
        return max(position, self._size) if self._rest is None else self._rest.next_data(position)


def _close_all(files: dict[str, File]) -> None:
    for file in files.values():
        file.close()


def _identity(status: FileStatus | None) -> tuple[int, int] | None:
    return None if status is None else (status.device, status.inode)
