"""Routes a path to its file system: the machine's, or that of URLs.

`machine_files()` is where commands, the library and Spark get their files. Object stores are another package's: their
code is imported (`seglog.doors`), and a store opened, only when a URL comes up. A path of this machine costs one check
of its type.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from seglog.doors import door
from seglog.remote_path import OBJECT_STORES, RemotePath
from seglog.storage.filesystem import READ_BYTES_LIMIT, File, FileStatus, FileSystem, OpenMode, PassingFileSystem
from seglog.storage.local import LocalFileSystem


class StoreFiles(FileSystem, Protocol):
    """What object stores can do beside reading (`remote.filesystem.RemoteFileSystem`)."""

    def forget_listings(self) -> None:
        """Drops all listings."""

    def expect(self, path: Path, size: int, modified_ns: int, version: str) -> None:
        """Sets what is known of an object."""

    def beginning(self, directory: Path, start: str) -> set[str]:
        """Returns the names of the directories in `directory` that begin with `start`."""

    def put(self, path: Path, pieces: Iterable[bytes], size: int) -> None:
        """Makes an object, whole and durable on return."""

    def create(self, path: Path, data: bytes) -> bool:
        """Makes an object unless the name exists; then returns False."""

    def discard(self, path: Path) -> None:
        """Removes an object if it exists."""


def machine_files() -> RoutingFileSystem:
    """Returns the file system of this machine's files and of URLs."""
    return RoutingFileSystem(LocalFileSystem(), lambda: door("store files")())


class RoutingFileSystem(PassingFileSystem):
    """Routes RemotePaths to `remote`, other paths to `local`. URLs are read-only here: changes go to `local`, which has
    no such path. `put`, `create` and `discard` handle both.
    """

    def __init__(self, local: FileSystem, remote: Callable[[], StoreFiles]) -> None:
        super().__init__(local)
        self._remote = remote
        self._opened: StoreFiles | None = None

    def forget_listings(self) -> None:
        """Drops all listings of stores."""
        if self._opened is not None:
            self._opened.forget_listings()

    def expect(self, path: Path, size: int, modified_ns: int, version: str) -> None:
        """Sets what is known of a remote object (`StoreFiles.expect`)."""
        if isinstance(path, RemotePath):
            self._opening().expect(path, size, modified_ns, version)

    def beginning(self, directory: Path, start: str) -> set[str] | None:
        """Returns the names of the directories in an object store's `directory` that begin with `start`, and lists only
        those. Returns None if a listing cannot be limited so.
        """
        is_store = isinstance(directory, RemotePath) and directory.scheme in OBJECT_STORES
        return self._opening().beginning(directory, start) if is_store else None

    def put(self, path: Path, pieces: Iterable[bytes], size: int) -> None:
        """Makes an object or a file, whole and durable on return. Its name must be new."""
        if isinstance(path, RemotePath):
            self._opening().put(path, pieces, size)
            return
        self._below.make_directory(path.parent, parents=True)
        with self._below.open(path, "create_new") as file:
            position = 0
            for piece in pieces:
                file.write_at(position, piece)
                position += len(piece)
            file.sync()
        self._below.sync_directory(path.parent)

    def create(self, path: Path, data: bytes) -> bool:
        """Makes an object or a file with `data` unless the name exists; then returns False. If several create one name
        at once, one gets True, and no reader sees a part.
        """
        if isinstance(path, RemotePath):
            return self._opening().create(path, data)
        unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        self.put(unfinished, [data], len(data))
        try:
            self._below.link(unfinished, path)
        except FileExistsError:
            return False
        finally:
            self._below.remove(unfinished)
        self._below.sync_directory(path.parent)
        return True

    def discard(self, path: Path) -> None:
        """Removes an object or a file if it exists."""
        if isinstance(path, RemotePath):
            self._opening().discard(path)
            return
        with suppress(FileNotFoundError):
            self._below.remove(path)

    def open(self, path: Path, mode: OpenMode) -> File:
        return self._of(path).open(path, mode)

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        return self._of(path).status(path, follow)

    def list(self, directory: Path) -> list[str]:
        return self._of(directory).list(directory)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        return self._of(directory).entries(directory)

    def reads_at_once(self, path: Path) -> int:
        return self._of(path).reads_at_once(path)

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        return self._of(path).read_bytes(path, limit)

    def read_each(self, directory: Path, names: Iterable[str], limit: int = READ_BYTES_LIMIT) -> Sequence[bytes]:
        return self._of(directory).read_each(directory, names, limit)

    def _of(self, path: Path) -> FileSystem:
        return self._opening() if isinstance(path, RemotePath) else self._below

    def _opening(self) -> StoreFiles:
        self._opened = self._remote()
        return self._opened
