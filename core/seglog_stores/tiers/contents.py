"""The stored files of a segment: whole objects, parts of objects, and chunks that are decoded on reading.

A `Stored` knows its size without reading; `open` returns a file for reading. One bounded `ChunkCache` holds the decoded
chunks of all files. Changed or truncated data raises CorruptTierError with the object and the position.
"""

from __future__ import annotations

import errno
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from seglog.errors import CorruptTierError, UnsupportedError
from seglog.format.compression import decompress_into
from seglog.format.payloads import DecompressionError
from seglog.model import Compression
from seglog.storage.filesystem import File, FileStatus, FileSystem, OpenMode, PassingFile, ReadOnlyFile, UnchangedFile
from seglog.storage.frozen import ViewFileSystem
from seglog_stores.formats.tier_keys import SEALED_BYTES, DataKey
from seglog_stores.formats.tier_manifest import ChunkIndex
from seglog_stores.remote.bytes_cache import BytesCache

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CACHE_BYTES = 64 << 20
CHUNK_BYTES_LIMIT = 128 << 20  # a plugin's default is 4 MiB

Opener = Callable[[], DataKey]
ChunkCache = BytesCache[tuple[Path, int, int], bytes]  # an object, its identity, the number of a chunk


class Stored(Protocol):
    """A file of a segment. `status` has the size of the decoded file."""

    @property
    def status(self) -> FileStatus: ...

    def open(self, path: Path) -> File:
        """Opens the file, which reports `path` as its own. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class WholeObject:
    """An object that is the file, byte for byte. `crc32c` is the checksum that its writer recorded, None if none."""

    fs: FileSystem
    path: Path
    status: FileStatus
    crc32c: int | None = None

    def open(self, path: Path) -> File:
        return _Whole(self.fs.open(self.path, "r"), path)


@dataclass(frozen=True, slots=True)
class PartOfObject:
    """A part of an object, `status.size` bytes from `start`: an unencrypted index, or the front of a log."""

    whole: Stored
    start: int
    status: FileStatus

    def open(self, path: Path) -> File:
        return _Window(self.whole.open(path), self.start, self.status, path)


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A file that is not stored as such. `data` is its content; `status` is that of the object it is derived from, with
    the size of `data`.
    """

    data: bytes
    status: FileStatus

    def open(self, path: Path) -> File:
        return _Made(path, self)


@dataclass(frozen=True, slots=True)
class SealedPart:
    """An encrypted index: `stored` bytes of an object from `start`, decrypted as a whole."""

    whole: WholeObject
    start: int
    stored: int
    opener: Opener

    @property
    def status(self) -> FileStatus:
        return self.whole.status._replace(size=max(0, self.stored - SEALED_BYTES))

    def open(self, path: Path) -> File:
        with self.whole.open(path) as file:
            data = self.opener().opened(file.read_at(self.start, self.stored), self.whole.path, self.start)
        return _Decoded(self.whole.open(path), path, self.status, len(data), lambda _: data)


@dataclass(frozen=True, slots=True)
class ChunkedLog:
    """A log in compressed or encrypted chunks. `opener` returns the key, None if they are not encrypted."""

    whole: WholeObject
    chunks: ChunkIndex
    compressed: bool
    opener: Opener | None
    cache: ChunkCache

    @property
    def status(self) -> FileStatus:
        return self.whole.status._replace(size=self.chunks.file_bytes)

    def open(self, path: Path) -> File:
        if self.chunks.chunk_bytes > CHUNK_BYTES_LIMIT and self.chunks.file_bytes > CHUNK_BYTES_LIMIT:
            raise UnsupportedError(
                f"{self.whole.path}: it is stored in chunks of {self.chunks.chunk_bytes} bytes, but seglog reads chunks"
                f" of at most {CHUNK_BYTES_LIMIT}"
            )
        below = self.whole.open(path)
        return _Decoded(below, path, self.status, self.chunks.chunk_bytes, lambda number: self._chunk(below, number))

    def _chunk(self, below: File, number: int) -> bytes:
        key = (self.whole.path, self.whole.status.inode, number)
        chunk = self.cache.get(key)
        if chunk is None:
            chunk = self._decoded(below, number)
            self.cache.put(key, chunk)
        return chunk

    def _decoded(self, below: File, number: int) -> bytes:
        position, size = self.chunks.stored(number)
        place, wanted = self.whole.path, self.chunks.original_bytes(number)
        data = below.read_at(position, size)
        if len(data) < size:
            raise CorruptTierError(place, f"it ends in chunk {number}, after {len(data)} of {size} bytes", position)
        if self.opener is not None:
            data = self.opener().opened(data, place, position)
        if self.compressed:
            room = np.empty(wanted, dtype=np.uint8)
            try:
                data = room[: decompress_into(Compression.ZSTD, data, room)].tobytes()
            except DecompressionError as error:
                raise CorruptTierError(place, f"chunk {number}: {error}", position) from error
        if len(data) != wanted:
            raise CorruptTierError(place, f"chunk {number} has {len(data)} bytes instead of {wanted}", position)
        return data


@dataclass(frozen=True, slots=True)
class Part:
    """`size` bytes of an object from `start` on."""

    path: Path
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Extents:
    """A file whose bytes are parts of objects, one after the other. An object is opened when a part of it is read."""

    fs: FileSystem
    parts: tuple[Part, ...]
    status: FileStatus

    def open(self, path: Path) -> File:
        return _Joined(self, path)


class OneFile(ViewFileSystem):
    """A file system in which one path is a stored file, for code that reads by path."""

    def __init__(self, below: FileSystem, path: Path, stored: Stored) -> None:
        super().__init__(below)
        self._path, self._stored = path, stored

    def is_only_read(self, path: Path) -> bool:
        return path == self._path

    def open(self, path: Path, mode: OpenMode) -> File:
        return self._stored.open(path) if path == self._path and mode == "r" else super().open(path, mode)

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        return self._stored.status if path == self._path else super().status(path, follow)


class _Made(ReadOnlyFile):
    """A file in memory."""

    def __init__(self, path: Path, made: MadeFile) -> None:
        self.path, self._made = path, made

    def size(self) -> int:
        return len(self._made.data)

    def status(self) -> FileStatus:
        return self._made.status

    def read_at(self, position: int, size: int) -> bytes:
        return self._made.data[position : position + max(0, size)]

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        data = self.read_at(position, view.nbytes)
        view.cast("B")[: len(data)] = data
        return len(data)


class _Whole(UnchangedFile, PassingFile):
    """An object under the name at which it is shown."""

    def __init__(self, below: File, path: Path) -> None:
        super().__init__(below)
        self.path = path


class _Joined(ReadOnlyFile):
    """A file in parts. Raises CorruptTierError where an object is missing or too short."""

    def __init__(self, stored: Extents, path: Path) -> None:
        self.path, self._stored = path, stored
        self._starts = [0, *accumulate(part.size for part in stored.parts)]
        self._files: dict[Path, File] = {}
        self._guard = threading.Lock()

    def size(self) -> int:
        return self._starts[-1]

    def status(self) -> FileStatus:
        return self._stored.status

    def read_at(self, position: int, size: int) -> bytes:
        buffer = bytearray(max(0, min(size, self.size() - position)))
        return bytes(buffer[: self.read_into(position, buffer)])

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(view.nbytes, self.size() - position))
        for part, skipped, begin, end in self._spans(position, wanted):
            count = self._file(part).read_into(part.start + skipped, view[begin:end])
            if count < end - begin:
                raise self._cut(part, skipped + count)
        return wanted

    def lend(self, position: int, size: int) -> memoryview | None:
        for part, skipped, begin, end in self._spans(position, min(size, self.size() - position)):
            lent = self._file(part).lend(part.start + skipped, end - begin)
            if lent is not None and not lent.nbytes:
                raise self._cut(part, skipped)
            return lent
        return memoryview(b"")

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        for part, skipped, begin, end in self._spans(position, min(size, self.size() - position)):
            self._file(part).advise_wanted(part.start + skipped, end - begin, side_by_side=side_by_side, again=again)

    def close(self) -> None:
        with self._guard:
            files, self._files = self._files, {}
        for file in files.values():
            file.close()

    def _spans(self, position: int, size: int) -> Iterator[tuple[Part, int, int, int]]:
        """Yields the parts of a range: each part, the bytes of it to skip, and where its bytes lie in the range."""
        at, end = position, position + size
        while at < end:
            i = bisect_right(self._starts, at) - 1
            until = min(end, self._starts[i + 1])
            yield self._stored.parts[i], at - self._starts[i], at - position, until - position
            at = until

    def _file(self, part: Part) -> File:
        with self._guard:
            file = self._files.get(part.path)
            if file is None:
                try:
                    file = self._files[part.path] = self._stored.fs.open(part.path, "r")
                except FileNotFoundError as error:
                    message = f"it is missing, and bytes of {self.path} are stored there"
                    raise CorruptTierError(part.path, message, part.start) from error
            return file

    def _cut(self, part: Part, count: int) -> CorruptTierError:
        message = f"it ends here, after {count} of {part.size} bytes of {self.path}"
        return CorruptTierError(part.path, message, part.start + count)


class _ReadFile(UnchangedFile, PassingFile):
    """Base of files that are derived from a stored one on reading."""

    def __init__(self, below: File, status: FileStatus, path: Path) -> None:
        super().__init__(below)
        self.path, self._status = path, status

    def size(self) -> int:
        return self._status.size

    def status(self) -> FileStatus:
        return self._status

    def read_at(self, position: int, size: int) -> bytes:
        buffer = bytearray(max(0, min(size, self.size() - position)))
        return bytes(buffer[: self.read_into(position, buffer)])

    def lend(self, position: int, size: int) -> memoryview | None:  # noqa: ARG002 (subclasses with bytes override it)
        return None

    def next_data(self, position: int) -> int:
        """Returns `position`: holes are unknown."""
        return position

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        """Does nothing: the bytes are stored elsewhere in the object."""

    def fileno(self) -> int:
        """Raises OSError: the stored bytes are not those of the file."""
        raise OSError(errno.EBADF, "The file is decoded on reading and has no descriptor", str(self.path))


class _Window(_ReadFile):
    """A part of a file."""

    def __init__(self, below: File, start: int, status: FileStatus, path: Path) -> None:
        super().__init__(below, status, path)
        self._start = start

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        wanted = max(0, min(view.nbytes, self.size() - position))
        return self._below.read_into(self._start + position, view.cast("B")[:wanted]) if wanted else 0

    def lend(self, position: int, size: int) -> memoryview | None:
        return self._below.lend(self._start + position, max(0, min(size, self.size() - position)))

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        wanted = max(0, min(size, self.size() - position))
        self._below.advise_wanted(self._start + position, wanted, side_by_side=side_by_side, again=again)


class _Decoded(_ReadFile):
    """A file in chunks of `chunk_bytes`, the last one shorter; `chunk` returns each by number."""

    def __init__(
        self, below: File, path: Path, status: FileStatus, chunk_bytes: int, chunk: Callable[[int], bytes]
    ) -> None:
        super().__init__(below, status, path)
        self._chunk_bytes, self._chunk = max(1, chunk_bytes), chunk

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        wanted = max(0, min(view.nbytes, self.size() - position))
        if not wanted:
            return 0
        view, filled = view.cast("B"), 0
        while filled < wanted:
            number, skipped = divmod(position + filled, self._chunk_bytes)
            piece = memoryview(self._chunk(number))[skipped : skipped + wanted - filled]
            view[filled : filled + len(piece)] = piece
            filled += len(piece)
        return wanted

    def lend(self, position: int, size: int) -> memoryview | None:
        wanted = max(0, min(size, self.size() - position))
        if not wanted:
            return memoryview(b"")
        number, skipped = divmod(position, self._chunk_bytes)
        return memoryview(self._chunk(number))[skipped : skipped + wanted]
