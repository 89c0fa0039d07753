"""Sends the bytes of files to a repository: large extents as objects, small ones together in packs.

What earlier runs have stored of a file stays: the file's inode, and its last stored bytes, say that it only grew. A
file that was replaced has other content and is sent whole, unless the last snapshot names the same content.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from seglog.errors import RefusedError
from seglog.format.checksum import crc32c
from seglog.remote_path import RemotePath
from seglog.storage.files import pieces
from seglog.storage.filesystem import File, FileStatus
from seglog_rescue.backup.copying import CopiedFile
from seglog_rescue.backup.repository import ContentDigest, Repository, digest_of
from seglog_stores.formats.snapshot_manifest import (
    FILE_BYTES_LIMIT,
    OBJECTS,
    PACKS,
    TAIL_BYTES,
    Extent,
    StoredFile,
    is_object_name,
)

LARGE_BYTES = 1 << 20  # an extent of so many bytes is an object of its own
PACK_BYTES = 16 << 20
MOST_EXTENTS = 64  # a file in more extents is stored anew as one


@dataclass(slots=True)
class Sent:
    """What a run has sent: `objects` are requests to a store, manifests apart."""

    objects: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Sender:
    """Stores extents. Without a `repository` it only counts what it would send.

    `stored_objects` are the objects of the last snapshot, which are not sent again.
    """

    repository: Repository | None
    stored_objects: set[str]
    sent: Sent = field(default_factory=Sent)
    _pack: bytearray = field(default_factory=bytearray)
    _pack_name: str = ""

    def extended(
        self, name: str, file: File, size: int, status: FileStatus, old: StoredFile | None, folder: str
    ) -> StoredFile:
        """Stores the first `size` bytes of a file, of which `old` may have a part. `status` is the file's.

        Raises RefusedError if the file changes meanwhile or is too large for a manifest, OSError.
        """
        if size > FILE_BYTES_LIMIT:
            raise RefusedError(f"{file.path}: {size} bytes, more than a file of a log can have")
        start = kept_bytes(file, size, status, old)
        extents = old.extents if old is not None and start else ()
        if len(extents) >= MOST_EXTENTS and start < size:
            start, extents = 0, ()
        while start < size:  # what has no object of its own is held in memory: no more of it than a pack
            is_whole = size - start <= PACK_BYTES or _is_object(name, start, folder)
            end = size if is_whole else start + PACK_BYTES
            extents = (*extents, self.extent(name, file, start, end, folder))
            start = end
        return StoredFile(name, status.modified_ns, status.inode, tail_of(file, size), extents)

    def extent(self, name: str, file: File, start: int, end: int, folder: str) -> Extent:
        """Stores bytes of a file. Raises RefusedError if it changes meanwhile, OSError."""
        size = end - start
        if size < LARGE_BYTES or not _is_object(name, start, folder):
            data = file.read_at(start, size)
            if len(data) != size:
                raise RefusedError(f"{file.path} is shorter than it was")
            return self.packed(data)
        copied = file if isinstance(file, CopiedFile) and file.start == start else None
        digest = digest_of(file, start, end) if copied is None else copied.finish(end)
        target = _object_name(name, start, folder, digest)
        if target not in self.stored_objects:
            if copied is not None and copied.target is not None and self.repository is not None:
                self.repository.finish(copied.target, target)
                self._count(size)
            else:
                self._put(target, _unchanged(file, start, end, digest), size)
            self.stored_objects.add(target)
        return Extent(target, 0, size, digest)

    @contextmanager
    def copying(self, file: File, status: FileStatus, old: StoredFile | None, folder: str) -> Iterator[File]:
        """Returns a file, during whose reading what is new in it is digested and, on a disk, stored: `extended` takes
        it then. A file that has replaced another one is left as it is: its content may be stored already.
        """
        start = kept_bytes(file, status.size, status, old)
        is_new = status.size - start >= LARGE_BYTES and (old is None or start)
        if not is_new or (old is not None and len(old.extents) >= MOST_EXTENTS):
            yield file
        elif self.repository is None or isinstance(self.repository.place, RemotePath):
            # a store is told the name first, which has the digest: the bytes are read once more for it
            yield CopiedFile(file, start, None)
        else:
            with self.repository.unfinished(f"{OBJECTS}/{folder}") as target:
                yield CopiedFile(file, start, target)

    def packed(self, data: bytes) -> Extent:
        """Stores bytes in the pack that is being filled."""
        if self._pack and len(self._pack) + len(data) > PACK_BYTES:
            self.flush()
        if not self._pack:
            self._pack_name = f"{PACKS}/{uuid.uuid4().hex}.pack"
        digest = ContentDigest()
        digest.update(data)
        extent = Extent(self._pack_name, len(self._pack), len(data), digest.text())
        self._pack += data
        return extent

    def flush(self) -> None:
        """Sends the pack that is being filled."""
        if self._pack:
            self._put(self._pack_name, iter((bytes(self._pack),)), len(self._pack))
            self._pack.clear()

    def _put(self, name: str, parts: Iterator[bytes], size: int) -> None:
        if self.repository is not None:
            self.repository.put(name, parts, size)
        self._count(size)

    def _count(self, size: int) -> None:
        self.sent.objects += 1
        self.sent.bytes += size


def _object_name(name: str, start: int, folder: str, digest: str) -> str:
    stem, _, kind = name.partition(".")
    return f"{OBJECTS}/{folder}/{stem}-{start}-{digest}.{kind}"


def _is_object(name: str, start: int, folder: str) -> bool:
    """True for files of segments; checkpoints and the like, whatever size they claim, are in packs."""
    return is_object_name(_object_name(name, start, folder, "0" * 32))


def kept_bytes(file: File, size: int, status: FileStatus, old: StoredFile | None) -> int:
    """Returns how many of a file's first bytes `old` has: all that it has, or none."""
    if old is None or old.inode != status.inode or not old.extents or old.size > size:
        return 0
    if old.modified_ns == status.modified_ns and old.size == size:
        return size
    return old.size if tail_of(file, old.size) == old.tail else 0


def tail_of(file: File, size: int) -> int:
    """Returns the CRC-32C of the last of a file's first `size` bytes."""
    start = max(0, size - TAIL_BYTES)
    return crc32c(file.read_at(start, size - start))


def _unchanged(file: File, start: int, end: int, digest: str) -> Iterator[bytes]:
    """Yields the bytes; raises RefusedError before the end if they are others than before, so that no object is made
    under the name of other content."""
    again = ContentDigest()
    last = b""
    for piece in pieces(file, start, end):
        if last:
            yield last
        again.update(piece)
        last = piece
    if again.text() != digest:
        raise RefusedError(f"{file.path} was changed while it was copied")
    yield last
