"""Reads snapshots in a backup repository where they are: as log directories, which `seglog backup restore` would make.

A path such as `/mnt/backup#latest` or `s3://bucket/backup#20261128T180000000Z-1f2e3d4c/orders-0` means a snapshot if
nothing of that name exists, and what is before the `#` is a repository. The manifest lists every file and its bytes, so
nothing is listed, copied or unpacked, and only the bytes that are read are fetched from objects and packs. Batches have
their own checksums; digests are compared by `seglog backup verify` and by a restore.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from seglog.errors import CorruptTierError, NotALogError, RefusedError
from seglog.format.checkpoint import format_offset_checkpoint, parse_offset_checkpoint
from seglog.model import TopicPartition
from seglog.remote_path import SNAPSHOT_MARK, RemotePath
from seglog.scan.listing import OFFSET_CHECKPOINTS
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog_stores.formats.manifest_fields import json_fields
from seglog_stores.formats.snapshot_manifest import (
    FORMAT,
    MARKER,
    REDACTIONS,
    SNAPSHOT_BYTES_LIMIT,
    SNAPSHOT_SUFFIX,
    SNAPSHOTS,
    VERSION,
    Snapshot,
    StoredFile,
    directory_names,
    is_folder_of_manifests,
    last_committed,
    snapshot_id_of,
)
from seglog_stores.formats.snapshot_reading import Manifest, read_manifest, unpacked_manifest
from seglog_stores.tiers.contents import Extents, MadeFile, Part, Stored
from seglog_stores.tiers.recognition import KeptPartition, Layout, TierPlace

_MARKER_LIMIT = 1 << 16
_LATEST = "latest"
_DIRECTORY_MODE = 0o40755


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The snapshots of the repository at `place`. All methods raise OSError.

    `folder` is where the manifests are; None: where they are now (`listed`). An erasure makes all of them anew in
    another folder, and one mark, made at once, says that this one counts from then on. Whoever was stopped meanwhile
    writes where nobody looks any more.
    """

    fs: FileSystem
    place: Path
    folder: str | None = None

    def listed(self) -> str:
        """Returns the folder of the manifests that count. Raises CorruptTierError."""
        if self.folder is not None:
            return self.folder
        mark = last_committed(self.marks())
        if mark is None:
            return SNAPSHOTS
        path = self.place / REDACTIONS / mark
        fields = json_fields(self.fs.read_bytes(path, _MARKER_LIMIT), path)
        folder = fields.text("snapshots")
        if not is_folder_of_manifests(folder):
            raise fields.wrong("snapshots", f"{folder[:60]!r} is not a folder of manifests")
        return folder

    def marks(self) -> list[str]:
        """Returns the names of the marks of erasures."""
        try:
            return self.fs.list(self.place / REDACTIONS)
        except FileNotFoundError:
            return []

    def pinned(self) -> Self:
        """Returns these snapshots as they are now, also after an erasure."""
        return replace(self, folder=replace(self, folder=None).listed())

    def require(self) -> None:
        """Raises NotALogError if there is no repository, CorruptTierError if its marker is not one of this version."""
        path = self.place / MARKER
        try:
            fields = json_fields(self.fs.read_bytes(path, _MARKER_LIMIT), path)
        except FileNotFoundError as error:
            raise NotALogError(self.place, f"not a backup repository: it has no {MARKER}") from error
        if fields.text("format") != FORMAT:
            raise fields.wrong("format", f"it is not {FORMAT}")
        if fields.integer("version") != VERSION:
            raise fields.wrong("version", f"{fields.integer('version')} is not {VERSION}: a newer seglog wrote it")

    def ids(self, folder: str | None = None) -> list[str]:
        """Returns the ids of the snapshots, the oldest first."""
        try:
            names = self.fs.list(self.place / (folder or self.listed()))
        except FileNotFoundError:
            return []
        return sorted(
            identity for identity in map(snapshot_id_of, names) if identity is not None and _is_time(identity)
        )

    def named(self, text: str) -> str:
        """Returns the id that `text` begins, or the newest one for "latest" (of the directories with a tag, for
        "latest-TAG"). Raises RefusedError if there is none, or more than one.
        """
        ids = self.ids()
        latest, _, tag = text.partition("-")
        if latest == _LATEST:
            ids = [identity for identity in ids if not tag or source_of(identity) == tag]
            if not ids:
                raise RefusedError(f"{self.place} has no snapshot{f' whose id ends with {tag}' if tag else ''}")
            _require_one_source(self.place, ids)
            return ids[-1]
        matching = [identity for identity in ids if identity.startswith(text)]
        if len(matching) != 1:
            what = "no snapshot" if not matching else f"{len(matching)} snapshots"
            raise RefusedError(f"{self.place} has {what} whose id begins with {text!r}; seglog backup list shows them")
        return matching[0]

    def read(self, identity: str, folder: str | None = None) -> Snapshot:
        """Reads a snapshot. Raises CorruptTierError, FileNotFoundError."""
        return self.manifest(identity, folder).snapshot()

    def manifest(self, identity: str, folder: str | None = None) -> Manifest:
        """Reads a snapshot's manifest, whose parts are parsed later. Raises CorruptTierError, FileNotFoundError."""
        path = self.manifest_path(identity, folder)
        try:
            data = self.fs.read_bytes(path, SNAPSHOT_BYTES_LIMIT)
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:
            raise unreadable(path, error) from error
        return read_manifest(unpacked_manifest(data, path), path, identity)

    def manifest_path(self, identity: str, folder: str | None = None) -> Path:
        """Returns the path of a snapshot's manifest."""
        return self.place / self.manifest_name(identity, folder)

    def manifest_name(self, identity: str, folder: str | None = None) -> str:
        """Returns that path in the repository."""
        return f"{folder or self.listed()}/{identity}{SNAPSHOT_SUFFIX}"


def unreadable(path: Path, error: OSError) -> CorruptTierError:
    """Returns what says that a disk does not read a file of a repository, as of a damaged one. A store's error is
    raised: it is of the moment.
    """
    if isinstance(path, RemotePath):
        raise error
    return CorruptTierError(path, f"it cannot be read: {error.strerror or error}")


def _require_one_source(place: Path, ids: list[str]) -> None:
    """Raises RefusedError if the snapshots are of several sets of log directories: the newest of all means nothing."""
    sources = sorted({source_of(identity) for identity in ids})
    if len(sources) > 1:
        raise RefusedError(
            f"{place} has snapshots of {len(sources)} different sets of log directories: name a snapshot, or one of"
            f" {', '.join(f'{_LATEST}-{source}' for source in sources[:10])}; seglog backup list shows them"
        )


def source_of(identity: str) -> str:
    """Returns the tag of the directories in a snapshot's id."""
    return identity.rpartition("-")[2]


def ended_ms(identity: str) -> int:
    """Returns when the snapshot of this id ended, in epoch milliseconds."""
    moment = datetime.strptime(identity[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1000 + int(identity[15:18])


def _is_time(identity: str) -> bool:
    try:
        return ended_ms(identity) >= 0
    except ValueError:
        return False


# --- a snapshot as directories ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShownSnapshot:
    """A snapshot, shown below `root`; `status` is that of its manifest."""

    fs: FileSystem
    root: Path
    repository: Path
    status: FileStatus
    snapshot: Snapshot

    @property
    def log_directories(self) -> list[Path]:
        """The log directories, in the order of the manifest."""
        return [self.root / name for name in directory_names(self.snapshot.directories)]

    def places(self) -> Iterator[TierPlace]:
        """Yields the partitions."""
        for directory, shown in zip(self.snapshot.directories, self.log_directories, strict=True):
            for partition in directory.partitions:
                yield TierPlace(
                    shown / partition.name,
                    Layout.SNAPSHOT,
                    partition.topic_partition,
                    partition.topic_id,
                    kept=KeptPartition(self.repository, partition, self.status),
                )

    def files(self) -> dict[Path, Stored]:
        """Returns the files of the log directories by path, without those of partitions."""
        return {
            shown / file.name: _stored(self.fs, self.repository, file, self.status)
            for directory, shown in zip(self.snapshot.directories, self.log_directories, strict=True)
            for file in directory.files
        }

    def directories(self) -> dict[Path, FileStatus]:
        """Returns the directories that are shown, by path."""
        status = as_directory(self.status)
        shown = [self.root, *self.log_directories, *(place.directory for place in self.places())]
        return dict.fromkeys(shown, status)


def shown_snapshot(fs: FileSystem, root: Path) -> ShownSnapshot:
    """Returns the snapshot at `root`, a path that `recognition` has recognised.

    Raises NotALogError if the repository is none, RefusedError if it has no such snapshot, CorruptTierError, OSError.
    """
    repository, name = place_and_name(root)
    snapshots = Snapshots(fs, repository)
    snapshots.require()
    snapshots = snapshots.pinned()
    identity = snapshots.named(name)
    snapshot = snapshots.read(identity)
    status = fs.status(snapshots.manifest_path(identity))
    if status is None:
        raise NotALogError(root, f"snapshot {identity} was removed meanwhile")
    return ShownSnapshot(fs, root, repository, status, snapshot)


def place_and_name(root: Path) -> tuple[Path, str]:
    """Returns the repository, and what names a snapshot in it, of a path whose last part has the mark."""
    place, _, name = root.name.rpartition(SNAPSHOT_MARK)
    return root.with_name(place), name


def files_of_kept(fs: FileSystem, kept: KeptPartition) -> Mapping[str, Stored]:
    """Returns the files of a partition in a snapshot by name."""
    return {file.name: _stored(fs, kept.repository, file, kept.status) for file in kept.partition.files}


def _stored(fs: FileSystem, repository: Path, file: StoredFile, manifest: FileStatus) -> Extents:
    parts = tuple(Part(repository / extent.object, extent.position, extent.size) for extent in file.extents)
    status = manifest._replace(
        size=file.size,
        allocated=file.size,
        modified_ms=file.modified_ns // 1_000_000,
        modified_ns=file.modified_ns,
        inode=file.inode,
        names=1,
        version="",
    )
    return Extents(fs, parts, status)


def as_directory(manifest: FileStatus) -> FileStatus:
    """Returns the status of a directory that is shown; `manifest` is the one of the manifest."""
    return manifest._replace(size=0, allocated=0, mode=_DIRECTORY_MODE, is_directory=True, names=1, version="")


def checkpoints_for(fs: FileSystem, log_directory: Path, name: TopicPartition) -> dict[Path, Stored]:
    """Returns what the checkpoints of a log directory say of one partition, as files in memory. Raises OSError."""
    made: dict[Path, Stored] = {}
    for file in OFFSET_CHECKPOINTS:
        path = log_directory / file
        status = fs.status(path)
        if status is not None:
            offsets = parse_offset_checkpoint(fs.read_bytes(path), path)
            data = format_offset_checkpoint({name: offsets[name]} if name in offsets else {})
            made[path] = MadeFile(data, status._replace(size=len(data)))
    return made


def require_single(shown: ShownSnapshot, path: Path) -> None:
    """Raises NotALogError if the path means a snapshot of several log directories: one of them must be named."""
    names = directory_names(shown.snapshot.directories)
    if path == shown.root and len(names) != 1:
        every = ", ".join(str(shown.root / name) for name in names[:10])
        what = f"this snapshot has {len(names)} log directories: name one of {every}" if names else "it holds nothing"
        raise NotALogError(path, what)
