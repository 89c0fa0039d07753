"""Stores extents of snapshots anew, elsewhere, so that the objects in which they lay can go.

New extents are complete, and compared with their digests, before any manifest names them; a manifest is replaced as a
whole; only what no manifest names is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from seglog.format.checksum import crc32c
from seglog.storage.filesystem import File
from seglog.storage.local import LocalFileSystem
from seglog_rescue.backup.repository import Repository
from seglog_rescue.backup.sending import LARGE_BYTES, Sender
from seglog_stores.formats.snapshot_manifest import (
    TAIL_BYTES,
    Extent,
    Part,
    StoredDirectory,
    StoredFile,
    StoredPartition,
)

Extents = tuple[Extent, ...]


@dataclass(slots=True)
class ExtentMover:
    """Stores what lies in the objects `going` anew, each extent once, and rewritten content."""

    repository: Repository
    going: frozenset[str]
    sender: Sender = field(init=False)
    _moved: dict[str, dict[int, Extent]] = field(default_factory=dict)  # by object; positions and sizes in one number
    _made: list[Extent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sender = Sender(self.repository, set())

    def moved(self, name: str, folder: str, extents: Extents) -> Extents:
        """Returns where the bytes of these extents of a file lie from now on. Raises CorruptTierError, OSError."""
        result: list[Extent] = []
        for extent in extents:
            if extent.object not in self.going:
                result.append(extent)
                continue
            moved, place = self._moved.setdefault(extent.object, {}), extent.position << 64 | extent.size
            if place not in moved or moved[place].digest != extent.digest:  # of two digests one is wrong, and refused
                (moved[place],) = self.stored(name, folder, self.repository.extent_pieces(extent))
            result.append(moved[place])
        return tuple(result)

    def stored(self, name: str, folder: str, parts: Iterable[bytes | memoryview]) -> Extents:
        """Stores the bytes of a file's part: large ones by way of the temporary directory; none for no bytes."""
        small, size = bytearray(), 0
        with ExitStack() as opened:
            file: File | None = None
            for part in parts:
                if file is not None:
                    file.write_at(size, part)
                else:
                    small += part
                    if len(small) >= LARGE_BYTES:
                        file = opened.enter_context(_scratch_file())
                        file.write_at(0, bytes(small))
                size += len(part)
            if not size:
                return ()
            made = self.sender.packed(bytes(small)) if file is None else self.sender.extent(name, file, 0, size, folder)
        self._made.append(made)
        return (made,)

    def finish(self) -> None:
        """Sends what waits, and reads all that was stored. Raises CorruptTierError if it is not what was meant."""
        self.sender.flush()
        for extent in self._made:
            for _ in self.repository.extent_pieces(extent):
                pass
        self._made.clear()


@contextmanager
def _scratch_file() -> Iterator[File]:
    with (
        TemporaryDirectory(prefix="seglog-") as place,
        LocalFileSystem().open(Path(place) / "extent", "create_new") as file,
    ):
        yield file


def folder_of(partition: StoredPartition) -> str:
    """Returns the folder of a partition's objects."""
    return f"{partition.name}/{partition.topic_id or '_'}"


def moved_file(mover: ExtentMover, folder: str, file: StoredFile) -> StoredFile:
    """Returns a file without extents in objects that go."""
    return replace(file, extents=mover.moved(file.name, folder, file.extents))


def moved_part(mover: ExtentMover, part: Part) -> Part:
    """Returns a part of a manifest without extents in objects that go."""
    folder = "" if isinstance(part, StoredDirectory) else folder_of(part)
    return replace(part, files=tuple(moved_file(mover, folder, file) for file in part.files))


def tail_of_extents(repository: Repository, extents: Extents) -> int:
    """Returns the CRC-32C of the last bytes of a stored file, as its manifest has it. Raises OSError."""
    tail = b""
    for extent in reversed(extents):
        size = min(extent.size, TAIL_BYTES - len(tail))
        with repository.fs.open(repository.place / extent.object, "r") as file:
            tail = file.read_at(extent.position + extent.size - size, size) + tail
        if len(tail) >= TAIL_BYTES:
            break
    return crc32c(tail)
