"""Makes log directories from a snapshot, and checks what a repository holds."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path

from seglog.errors import CorruptTierError, RefusedError
from seglog.progress import BytesRead
from seglog.repairs.undo.beside import new_directory
from seglog.storage.filesystem import FileSystem
from seglog.units import count_text
from seglog_rescue.backup.repository import Repository
from seglog_stores.formats.snapshot_manifest import Extent, Part, Snapshot, StoredDirectory, StoredFile, directory_names
from seglog_stores.formats.snapshot_reading import KnownLines, Manifest
from seglog_stores.tiers.snapshots import unreadable


@dataclass(slots=True)
class RestoredBackup:
    """What was made: log directories, their partitions, files and bytes."""

    directories: list[Path] = field(default_factory=list)
    partitions: int = 0
    files: int = 0
    bytes: int = 0


def restore_snapshots(
    repository: Repository, snapshots: Sequence[Snapshot], fs: FileSystem, target: Path, progress: BytesRead
) -> RestoredBackup:
    """Makes `target` a log directory with the files of a snapshot, or of one for each broker; with several, a directory
    with one for each.

    Each byte is compared with what was stored. Raises CorruptTierError if it differs, RefusedError if `target` is not
    empty or the disk has no room; OSError. Then nothing is at `target`.
    """
    done = RestoredBackup()
    with new_directory(fs, target) as place:
        free = fs.free_bytes(place)
        size, directories = size_of(snapshots), [each for snapshot in snapshots for each in snapshot.directories]
        if size > free:
            raise RefusedError(f"{target}: the snapshot has {size} bytes, and the disk has room for {free}")
        for directory, name in zip(directories, directory_names(directories), strict=True):
            inner = place / name if name else place
            if name:
                fs.make_directory(inner)
            _fill(repository, fs, inner, directory, done, progress)
            done.directories.append(target / name if name else target)
            fs.sync_directory(inner)
    return done


def size_of(snapshots: Iterable[Snapshot]) -> int:
    """Returns the bytes of all files in snapshots."""
    return sum(snapshot.size for snapshot in snapshots)


def _fill(
    repository: Repository,
    fs: FileSystem,
    place: Path,
    directory: StoredDirectory,
    done: RestoredBackup,
    progress: BytesRead,
) -> None:
    for partition in directory.partitions:
        inner = place / partition.name
        fs.make_directory(inner)
        for file in partition.files:
            _write(repository, fs, inner, file, done, progress)
        fs.sync_directory(inner)
        done.partitions += 1
    for file in directory.files:
        _write(repository, fs, place, file, done, progress)


def _write(
    repository: Repository, fs: FileSystem, place: Path, stored: StoredFile, done: RestoredBackup, progress: BytesRead
) -> None:
    path, position = place / stored.name, 0
    with fs.open(path, "create_new") as file:
        for extent in stored.extents:
            for piece in repository.extent_pieces(extent):
                file.write_at(position, piece)
                position += len(piece)
                progress(len(piece))
        file.sync()
    fs.set_modified(path, stored.modified_ns // 1_000_000)
    done.files += 1
    done.bytes += position


@dataclass(slots=True)
class CheckedBackup:
    """What a verification read, and what is wrong: an error for each extent, with the snapshots that it belongs to."""

    snapshots: int = 0
    extents: int = 0
    bytes: int = 0
    problems: list[tuple[CorruptTierError, tuple[str, ...]]] = field(default_factory=list)


def verify_snapshots(
    repository: Repository, identities: Iterable[str], share: float, chance: random.Random, progress: BytesRead
) -> CheckedBackup:
    """Reads all extents that snapshots name, each once, or a `share` of them (0 to 1) by `chance`.

    Raises OSError for a store that fails. What a disk cannot read is a problem, as what is missing is.
    """
    done, named = CheckedBackup(), _NamedExtents()
    for identity in identities:
        done.snapshots += 1
        try:
            named.take(repository.manifest(identity))
        except CorruptTierError as error:
            done.problems.append((error, (identity,)))
        except FileNotFoundError:
            done.snapshots -= 1  # pruned meanwhile
    wrong: list[_Wrong] = []
    last: Extent | None = None  # that was read
    for extent in sorted(named.extents, key=lambda extent: (extent.object, extent.position)):
        if share < 1 and chance.random() >= share:
            continue
        if last is not None and extent.object == last.object and extent.position < last.position + last.size:
            reason = "manifests name the same bytes in two ways"  # reading them each time could take for ever
            overlap = CorruptTierError(repository.place / extent.object, reason, extent.position)
            wrong.append((overlap, (last, extent)))
            continue
        last = extent
        done.extents += 1
        try:
            for piece in repository.extent_pieces(extent):
                done.bytes += len(piece)
                progress(len(piece))
        except CorruptTierError as error:
            wrong.append((error, (extent,)))
        except OSError as error:
            wrong.append((unreadable(repository.place / extent.object, error), (extent,)))
    done.problems += named.with_snapshots(wrong)
    return done


_Wrong = tuple[CorruptTierError, tuple[Extent, ...]]


class _NamedExtents:
    """The extents that manifests name. Which snapshots have one is known of lines, and asked for only of wrong ones."""

    def __init__(self) -> None:
        self.extents: dict[Extent, Extent] = {}  # each is in memory once
        self._known = KnownLines(self._line)
        self._snapshots: list[str] = []

    def take(self, manifest: Manifest) -> None:
        """Takes a manifest, or none of it. Raises CorruptTierError."""
        lines = [line for _, line in manifest.lines(self._known)]
        for line in lines:
            if not line.snapshots:
                self.extents.update(zip(line.extents, line.extents, strict=True))
            line.snapshots |= 1 << len(self._snapshots)
        self._snapshots.append(manifest.id)

    def with_snapshots(self, wrong: Sequence[_Wrong]) -> Iterator[tuple[CorruptTierError, tuple[str, ...]]]:
        """Yields each error with the snapshots that have one of its extents."""
        holders = dict.fromkeys((extent for _, extents in wrong for extent in extents), 0)
        for line in self._known.made():
            for extent in holders.keys() & line.extents:
                holders[extent] |= line.snapshots
        for error, extents in wrong:
            bits = reduce(or_, (holders[extent] for extent in extents))
            yield error, tuple(identity for i, identity in enumerate(self._snapshots) if bits >> i & 1)

    def _line(self, part: Part) -> _NamedLine:
        extents = (extent for file in part.files for extent in file.extents)
        return _NamedLine(tuple(self.extents.get(extent, extent) for extent in extents))


@dataclass(slots=True)
class _NamedLine:
    """The extents of a manifest's line, and a bit for each snapshot that has it."""

    extents: tuple[Extent, ...]
    snapshots: int = 0


def snapshots_text(identities: Sequence[str]) -> str:
    """Names snapshots in a sentence."""
    if len(identities) == 1:
        return f"snapshot {identities[0]}"
    return f"{count_text(len(identities), 'snapshot')} from {identities[0]} on"


def damage_of(snapshot: Snapshot) -> Iterator[str]:
    """Yields a sentence for each place in a snapshot's logs that was damaged when it was stored."""
    for directory in snapshot.directories:
        for partition in directory.partitions:
            for at in partition.damage:
                where = Path(directory.path) / partition.name / at.file
                yield f"{where}: position {at.position}: {at.reason}; stored as it is"
