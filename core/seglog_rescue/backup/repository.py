"""A backup repository: its marker, manifests, objects and packs, in a directory or below a prefix of an object store.

Objects are created and never changed. On a disk each is written under a temporary name first, so that a killed run
leaves nothing incomplete under a final name; a store makes an object whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from seglog.errors import CorruptTierError, NotALogError, RefusedError
from seglog.format.checksum import crc32c
from seglog.remote_path import RemotePath
from seglog.storage.files import pieces
from seglog.storage.filesystem import File, FileStatus
from seglog.storage.routing import RoutingFileSystem
from seglog_stores.formats.snapshot_manifest import (
    FORMAT,
    MARKER,
    OBJECTS,
    PACKS,
    REDACTIONS,
    VERSION,
    Extent,
    Snapshot,
    format_snapshot,
    packed_manifest,
)
from seglog_stores.formats.snapshot_reading import Manifest
from seglog_stores.tiers.snapshots import Snapshots

PRUNED = "pruned"  # manifests that were pruned: their objects go when no run can name them any more
TEMPORARY = ".part"
DIGEST_BLOCK = 64 << 10


def block_checksums(data: bytes | bytearray | memoryview) -> bytes:
    """Returns the CRC-32C of each 64 KiB of some bytes, of the last ones too, as a content's digest takes them."""
    view = memoryview(data)
    blocks = (view[at : at + DIGEST_BLOCK] for at in range(0, view.nbytes, DIGEST_BLOCK))
    return b"".join(crc32c(block).to_bytes(4, "big") for block in blocks)


class ContentDigest:
    """The digest of bytes that come in pieces, each but the last a multiple of 64 KiB (FORMAT.md)."""

    def __init__(self, checksums: bytes = b"") -> None:
        self._hash, self.size = hashlib.sha256(checksums), 0  # of `block_checksums`

    def update(self, piece: bytes | memoryview) -> None:
        """Takes the next piece."""
        self.size += len(piece)
        self._hash.update(block_checksums(piece))

    def text(self) -> str:
        """Returns the digest of all pieces."""
        return self._hash.hexdigest()[:32]


def digest_of(file: File, start: int, end: int) -> str:
    """Returns the digest of bytes of a file. Raises RefusedError if it ends before `end`."""
    digest = ContentDigest()
    for piece in pieces(file, start, end):
        digest.update(piece)
    if digest.size != end - start:
        raise RefusedError(f"{file.path} is shorter than it was")
    return digest.text()


@dataclass(frozen=True, slots=True)
class Repository(Snapshots):
    """The repository at `place`, to write to. All its methods raise OSError."""

    fs: RoutingFileSystem

    def make(self) -> None:
        """Makes the repository if it is not there. Raises RefusedError if the place holds something else."""
        with suppress(NotALogError):
            self.require()
            return
        if not self.is_new():
            try:
                self.require()  # another run may have made it since
            except NotALogError as error:
                raise RefusedError(f"{self.place} holds something else: name a new place, or a repository") from error
            return
        self._ensure(self.place)
        self.fs.create(self.place / MARKER, (json.dumps({"format": FORMAT, "version": VERSION}) + "\n").encode())
        self.require()

    def is_new(self) -> bool:
        """True if the place is missing, or has nothing but the remains of a run that died while it made it."""
        status = self.fs.status(self.place)
        if status is None:
            return True
        return status.is_directory and all(name.startswith(f"{MARKER}.") for name in self.fs.list(self.place))

    def marks(self) -> list[str]:
        """Returns the names of the marks of erasures. That a bucket has none takes one request: a listing by the
        directory's name would also ask whether an object has it.
        """
        is_without = self.fs.beginning(self.place, f"{REDACTIONS}/") == set()
        return [] if is_without else Snapshots.marks(self)

    # --- manifests ----------------------------------------------------------------------------------------

    def ids(self, folder: str | None = None) -> list[str]:
        """Returns the ids of the snapshots, the oldest first, as they are now."""
        self.fs.forget_listings()
        return Snapshots.ids(self, folder)

    def write(self, snapshot: Snapshot, folder: str | None = None) -> int:
        """Writes a manifest, durably and as a whole; returns its size in bytes."""
        text, path = format_snapshot(snapshot), self.manifest_path(snapshot.id, folder)
        data = packed_manifest(text)
        self._ensure(path.parent)
        if not self.fs.create(path, data) and self.manifest(snapshot.id, folder).data != text:
            raise RefusedError(f"{path}: another run has written it meanwhile; run this again")
        return len(data)

    def replace(self, manifest: Manifest, folder: str | None = None) -> None:
        """Puts a manifest in the place of the one with its id, if there is one, durably and as a whole. Whoever has
        made it has read all of it.
        """
        data = packed_manifest(manifest.data)
        self.put(self.manifest_name(manifest.id, folder), (data,), len(data))

    def create(self, name: str, data: bytes) -> bool:
        """Makes a small object unless the name exists, durably; then returns False."""
        self._ensure((self.place / name).parent)
        return self.fs.create(self.place / name, data)

    def discard_manifest(self, identity: str, folder: str | None = None) -> None:
        """Removes a manifest, durably."""
        self.discard(self.manifest_name(identity, folder))

    def discard_manifests(self) -> None:
        """Removes the manifests in this folder, which must not be the one that counts."""
        for identity in self.ids():
            self.discard_manifest(identity)

    # --- objects ------------------------------------------------------------------------------------------

    def put(self, name: str, parts: Iterable[bytes], size: int) -> None:
        """Makes an object from pieces, durably. If one of that name is there, it is replaced by the same bytes."""
        path = self.place / name
        if isinstance(path, RemotePath):
            self.fs.put(path, parts, size)
            return
        with self.unfinished(str(Path(name).parent)) as file:
            position = 0
            for piece in parts:
                file.write_at(position, piece)
                position += len(piece)
            self.finish(file, name)

    @contextmanager
    def unfinished(self, folder: str) -> Iterator[File]:
        """Opens a new file in a folder of a repository on a disk, for bytes whose name is not known yet. It is removed
        at the end of the `with`, unless it was finished.
        """
        directory = self.place / folder
        self._ensure(directory)
        path = directory / f"{uuid.uuid4().hex}{TEMPORARY}"
        try:
            with self.fs.open(path, "create_new") as file:
                yield file
        finally:
            with suppress(OSError):
                self.fs.remove(path)

    def finish(self, file: File, name: str) -> None:
        """Makes an object of an `unfinished` file, durably."""
        file.sync()
        self.fs.rename(file.path, self.place / name)
        self.fs.sync_directory((self.place / name).parent)

    def discard(self, name: str) -> None:
        """Removes an object if it exists, durably."""
        path = self.place / name
        self.fs.discard(path)
        if not isinstance(path, RemotePath):
            with suppress(FileNotFoundError):
                self.fs.sync_directory(path.parent)

    def extent_pieces(self, extent: Extent) -> Iterator[bytes]:
        """Yields the bytes of an extent. Raises CorruptTierError at their end if they are not those that were stored,
        also if the object is missing or too short.
        """
        path, digest = self.place / extent.object, ContentDigest()
        try:
            with self.fs.open(path, "r") as file:
                if file.size() < extent.position + extent.size:  # which may be far beyond what anybody could read
                    there = max(0, file.size() - extent.position)
                    raise CorruptTierError(path, f"it ends after {there} of {extent.size} bytes", extent.position)
                for piece in pieces(file, extent.position, extent.position + extent.size):
                    digest.update(piece)
                    yield piece
        except FileNotFoundError as error:
            raise CorruptTierError(path, "it is missing, and a snapshot names it") from error
        if digest.size != extent.size:
            raise CorruptTierError(path, f"it ends after {digest.size} of {extent.size} bytes", extent.position)
        if digest.text() != extent.digest:
            raise CorruptTierError(path, "its bytes are not those that were stored", extent.position)

    def objects(self) -> Iterator[tuple[str, FileStatus]]:
        """Yields all objects and packs, and what killed runs left among them, by their paths in the repository."""
        for top in (OBJECTS, PACKS):
            yield from self._below(top)

    def _below(self, name: str) -> Iterator[tuple[str, FileStatus]]:
        for inner, status in self._entries(self.place / name):
            if status.is_directory:
                yield from self._below(f"{name}/{inner}")
            else:
                yield f"{name}/{inner}", status

    def _entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        try:
            return self.fs.entries(directory)
        except FileNotFoundError:
            return ()

    def _ensure(self, directory: Path) -> None:
        """Makes a directory of a disk and those above it, each durably."""
        if isinstance(directory, RemotePath) or self.fs.status(directory) is not None:
            return
        self._ensure(directory.parent)
        with suppress(FileExistsError):
            self.fs.make_directory(directory)
        self.fs.sync_directory(directory.parent)


def snapshot_id(ended_ms: int, source: str) -> str:
    """Returns the id of a snapshot that ended then; `source` is the tag of its directories."""
    moment = datetime.fromtimestamp(ended_ms / 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}{ended_ms % 1000:03d}Z-{source}"
