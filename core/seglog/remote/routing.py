"""Routes a path to its file system: the machine's, or that of URLs.

`machine_files()` is where commands, the library and Spark get their files. Remote code is imported, and a store opened,
only when a URL comes up. A path of this machine costs one check of its type.
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.remote_path import OBJECT_STORES, RemotePath
from seglog.storage.filesystem import READ_BYTES_LIMIT, File, FileStatus, FileSystem, OpenMode, PassingFileSystem
from seglog.storage.local import LocalFileSystem

if TYPE_CHECKING:
    from seglog.remote.filesystem import RemoteFileSystem
    from seglog.remote.settings import StoreSettings
    from seglog.remote.traffic import Traffic


def machine_files() -> RoutingFileSystem:
    """Returns the file system of this machine's files and of URLs."""
    return RoutingFileSystem(LocalFileSystem(), shared_remote_files)


def files_with(settings: StoreSettings) -> RoutingFileSystem:
    """Returns a file system with its own store settings, cache and listings. Listings stay valid until
    `forget_listings`.
    """

    def remote() -> RemoteFileSystem:
        from seglog.remote.filesystem import RemoteFileSystem
        from seglog.remote.limits import limits_of
        from seglog.remote.traffic import OF_PROCESS

        limits = limits_of(settings.over(os.environ))
        return RemoteFileSystem(settings=settings, limits=replace(limits, listing_s=math.inf), traffic=OF_PROCESS)

    return RoutingFileSystem(LocalFileSystem(), cache(remote))


def shared_remote_files() -> RemoteFileSystem:
    """Returns the process's remote file system; all its users share its cache and limits."""
    global _shared
    if _shared is None:
        from seglog.remote.filesystem import RemoteFileSystem
        from seglog.remote.traffic import OF_PROCESS

        _shared = RemoteFileSystem(traffic=OF_PROCESS)
    return _shared


_shared: RemoteFileSystem | None = None


def traffic() -> Traffic:
    """Returns the requests to object stores of this process and of the tasks of its jobs."""
    from seglog.remote.traffic import OF_PROCESS

    return OF_PROCESS


class RoutingFileSystem(PassingFileSystem):
    """Routes RemotePaths to `remote`, other paths to `local`. URLs are read-only here: changes go to `local`, which has
    no such path. `put`, `create` and `discard` handle both.
    """

    def __init__(self, local: FileSystem, remote: Callable[[], RemoteFileSystem]) -> None:
        super().__init__(local)
        self._remote = remote
        self._opened: RemoteFileSystem | None = None

    def forget_listings(self) -> None:
        """Drops all listings of stores."""
        if self._opened is not None:
            self._opened.forget_listings()

    def expect(self, path: Path, size: int, modified_ns: int, version: str) -> None:
        """Sets what is known of a remote object (`RemoteFileSystem.expect`)."""
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

    def _of(self, path: Path) -> FileSystem:
        return self._opening() if isinstance(path, RemotePath) else self._below

    def _opening(self) -> RemoteFileSystem:
        self._opened = self._remote()
        return self._opened
