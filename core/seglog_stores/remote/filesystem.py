"""Object stores and web servers as a read-only `FileSystem`, and the creation of new objects.

A directory is a common prefix of keys up to a slash; it exists while it has contents. An object's size, time and ETag
come with the listing of its directory, so opening it needs no request. A read returns that version, or raises
ChangedObjectError. Calls that write, lock or create get EROFS; `put` and `create`, which `routing` calls, make new
objects.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.clock import Clock, SystemClock
from seglog.errors import GONE, RefusedError
from seglog.remote_path import OBJECT_STORES, RemotePath
from seglog.storage.filesystem import (
    File,
    FileStatus,
    OpeningEach,
    OpenMode,
    ReadOnlyFile,
    refuse_to_write,
)
from seglog_stores.remote.ahead import ReadAhead
from seglog_stores.remote.blocks import Blocks, Source
from seglog_stores.remote.limits import Limits, limits_of
from seglog_stores.remote.listings import Found, Listings
from seglog_stores.remote.read_only import ReadOnlyFileSystem
from seglog_stores.remote.settings import StoreSettings
from seglog_stores.remote.store import ObjectStatus, ObjectStore, ObstoreStore, open_store, root_of
from seglog_stores.remote.streams import Ask, ObjectStream
from seglog_stores.remote.traffic import Traffic

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


_STREAMS = 16  # per file


class RemoteFile(ReadOnlyFile):
    """An object opened by `RemoteFileSystem.open`. Sequential reads fetch blocks ahead, and so do announced reads
    (`advise_wanted`).
    """

    def __init__(self, path: Path, status: FileStatus, source: Source, blocks: Blocks, ask: Ask) -> None:
        self.path = path
        self._status, self._source, self._blocks, self._ask = status, source, blocks, ask
        self._ahead = ReadAhead(blocks.limits, blocks.announced)
        self._streams: list[ObjectStream] = []  # in the order of announcement

    def size(self) -> int:
        return self._source.size

    def status(self) -> FileStatus:
        return self._status

    def read_at(self, position: int, size: int) -> bytes:
        buffer = bytearray(max(0, min(size, self.size() - position)))
        self.read_into(position, buffer)
        return bytes(buffer)

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        wanted = max(0, min(view.nbytes, self.size() - position))
        if not wanted:
            return 0
        stream = self._stream_at(position)
        if stream is not None and stream.read_into(position, view.cast("B")[:wanted]):
            self._end_if_read(stream)
            return wanted
        step = self._ahead.read(position, position + wanted)
        self._let_come(step.begin, step.end)
        self._blocks.read_into(self._source, position, view.cast("B")[:wanted])
        self._blocks.give_up(self._source, step.passed, step.reached)
        return wanted

    def lend(self, position: int, size: int) -> memoryview | None:
        wanted = max(0, min(size, self.size() - position))
        if not wanted:
            return memoryview(b"")
        stream = self._stream_at(position)
        streamed = None if stream is None else stream.lend(position, wanted)
        if stream is not None and streamed is not None:
            self._end_if_read(stream)
            return streamed
        lent = self._blocks.lend(self._source, position, wanted)
        step = self._ahead.read(position, position + lent.nbytes)
        self._let_come(step.begin, step.end)
        self._blocks.give_up(self._source, step.passed, step.reached)
        return lent

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        stop, limits = min(position + size, self.size()), self._blocks.limits
        if side_by_side and stop - position > limits.request_bytes:
            self._begin_stream(position, stop)
        elif position < stop:
            self._let_come(*self._ahead.announce(position, stop, again=again))

    def close(self) -> None:
        self._ahead.close()
        for stream in list(self._streams):
            self._end(stream)

    def _begin_stream(self, position: int, stop: int) -> None:
        same = [each for each in self._streams if each.stop == stop]
        if not any(each.covers(position) for each in same):
            self._streams.append(ObjectStream(position, stop, self._ask))
            for each in same:
                self._end(each)
        most = max(_STREAMS, 2 * self._blocks.limits.requests_at_once)
        for each in self._streams[:-most]:
            self._end(each)

    def _stream_at(self, position: int) -> ObjectStream | None:
        return next((each for each in reversed(self._streams) if each.covers(position)), None)

    def _end_if_read(self, stream: ObjectStream) -> None:
        if stream.is_read:
            self._end(stream)

    def _end(self, stream: ObjectStream) -> None:
        with suppress(ValueError):  # another thread was faster
            self._streams.remove(stream)
        stream.close()

    def _let_come(self, start: int, end: int) -> None:
        self._blocks.read_ahead(self._source, start, end)


@dataclass(frozen=True, slots=True)
class _Root:
    """An open bucket, container or host. `device` is its number in file statuses."""

    store: ObjectStore
    listings: Listings
    device: int


class RemoteFileSystem(OpeningEach, ReadOnlyFileSystem):
    """The file system of all RemotePaths. Opens a store on its first use.

    `settings` override the environment's. `open_root` returns the ObjectStore of a bucket or host; by default obstore's
    with these settings. Requests count in `traffic`, by default an own one.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str] = os.environ,
        clock: Clock | None = None,
        limits: Limits | None = None,
        open_root: Callable[[RemotePath], ObjectStore] | None = None,
        settings: StoreSettings | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self._environment, self._clock = environment, clock or SystemClock()
        self._settings = settings or StoreSettings()
        self.limits = limits or limits_of(self._settings.over(environment))
        self.traffic = traffic or Traffic()
        self._blocks = Blocks(self.limits)
        self._open_root = open_root or self._obstore
        self._roots: dict[tuple[str, ...], _Root] = {}

    @property
    def cached_bytes(self) -> int:
        """The bytes of objects in the cache."""
        return self._blocks.held

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode != "r":
            refuse_to_write(path)
        remote = _checked(path)
        is_there, found = self._find(remote)
        if not is_there:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if found is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        source = Source((str(remote), found.version), found.size, self._fetching(remote, found))
        status = _status_of(remote.key, self._root(remote).device, found)
        return RemoteFile(path, status, source, self._blocks, self._asking(remote, found))

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:  # noqa: ARG002 (a store has no links)
        remote = _checked(path)
        is_there, found = self._find(remote)
        return _status_of(remote.key, self._root(remote).device, found) if is_there else None

    def list(self, directory: Path) -> list[str]:
        return sorted(self._listed(_checked(directory)))

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        remote = _checked(directory)
        found, device = self._listed(remote), self._root(remote).device
        above = f"{remote.key}/" if remote.key else ""
        return [(name, _status_of(above + name, device, entry)) for name, entry in sorted(found.items())]

    def _listed(self, directory: RemotePath) -> Mapping[str, Found]:
        found = self._root(directory).listings.entries(directory.key)
        if found is None and directory.key:
            is_file = self._find(directory)[1] is not None
            number = errno.ENOTDIR if is_file else errno.ENOENT
            raise OSError(number, os.strerror(number), str(directory))
        return found or {}

    def reads_at_once(self, path: Path) -> int:  # noqa: ARG002 (the same for all stores)
        return self.limits.requests_at_once

    def forget_listings(self) -> None:
        """Drops all listings, so that later calls list again."""
        for root in self._roots.values():
            root.listings.forget_all()

    def expect(self, path: Path, size: int, modified_ns: int, version: str) -> None:
        """Sets what is known of an object until its directory is listed, so that opening it needs no request.

        If the object is another version, the first read raises the error.
        """
        remote = _checked(path)
        self._root(remote).listings.expect(remote.key, ObjectStatus(remote.key, size, modified_ns, version))

    def beginning(self, directory: Path, start: str) -> set[str]:
        """Returns the names of the directories in `directory` that begin with `start`; lists only those."""
        remote = _checked(directory)
        return self._root(remote).listings.beginning(remote.key, start)

    def put(self, path: Path, pieces: Iterable[bytes], size: int) -> None:
        """Makes an object, whole or not at all. Its name must be new."""
        remote = _writable(path)
        root = self._root(remote)
        root.store.put(remote.key, pieces, size)
        root.listings.forget(remote.key)

    def create(self, path: Path, data: bytes) -> bool:
        """Makes an object if none exists. Returns False if one exists. Drops all listings."""
        remote = _writable(path)
        root = self._root(remote)
        made = root.store.create(remote.key, data)
        root.listings.forget_all()
        return made

    def discard(self, path: Path) -> None:
        """Removes an object if it exists."""
        remote = _writable(path)
        root = self._root(remote)
        root.store.delete(remote.key)
        root.listings.forget(remote.key)

    def _find(self, path: RemotePath) -> tuple[bool, Found]:
        return self._root(path).listings.find(path.key) if path.store else (False, None)

    def _fetching(self, path: RemotePath, known: ObjectStatus) -> Callable[[int, int], ReadableBuffer]:
        root = self._root(path)

        def fetch(start: int, size: int) -> ReadableBuffer:
            try:
                return root.store.get(known, start, size)
            except GONE:
                root.listings.forget(known.key)
                raise

        return fetch

    def _asking(self, path: RemotePath, known: ObjectStatus) -> Ask:
        root, piece = self._root(path), self.limits.piece_bytes

        def ask(start: int, wanted: int) -> Iterator[memoryview]:
            try:
                yield from root.store.stream(known, start, wanted, piece)
            except GONE:
                root.listings.forget(known.key)
                raise

        return ask

    def _root(self, path: RemotePath) -> _Root:
        found = self._roots.get(path.parts[:2])
        if found is None:
            root = root_of(path)
            store = self._open_root(root)
            opened = _Root(store, Listings(store, self._clock, self.limits.listing_s), _number(str(root)))
            found = self._roots.setdefault(path.parts[:2], opened)
        return found

    def _obstore(self, root: RemotePath) -> ObjectStore:
        store, address = open_store(root, self.limits, self._environment, self._settings)
        return ObstoreStore(store, root, address, self.limits, self.traffic, self._clock)


def _checked(path: Path) -> RemotePath:
    if not isinstance(path, RemotePath):
        raise RefusedError(f"{path} is a path of this machine, not a URL")
    return path


def _writable(path: Path) -> RemotePath:
    remote = _checked(path)
    if remote.scheme not in OBJECT_STORES or not remote.key:
        refuse_to_write(path)
    return remote


def _status_of(key: str, device: int, found: Found) -> FileStatus:
    """Returns the file status of an object or directory. The reader owns it; its version serves as inode."""
    version = "" if found is None else found.version
    size, modified_ns = (0, 0) if found is None else (found.size, found.modified_ns)
    return FileStatus(
        size=size,
        modified_ms=modified_ns // 1_000_000,
        modified_ns=modified_ns,
        inode=_number(f"{key}\0{version}"),
        device=device,
        mode=0o555 if found is None else 0o444,
        owner=os.geteuid(),
        group=os.getegid(),
        allocated=size,
        is_directory=found is None,
        version="" if found is None else found.tag,
    )


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogateescape"), digest_size=7).digest(), "big")
