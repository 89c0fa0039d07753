"""Shows paths in tiered storage as partition directories to everything that reads partitions, through `see_tiers`.

    fs, paths = see_tiers(fs, paths, options, on_remark)

A caller that has already recognised its paths (`recognition.recognise`) uses `show_tiers`.

A path in tiered storage becomes one that any reader treats as a partition directory or a log directory. Every other
path stays as it is, and so does the file system if no path is in tiered storage.

| path | becomes |
|---|---|
| `…/orders-3-<id>` of LocalTieredStorage, `…/orders-<id>/3` of Aiven | the partition directory `…/orders-3` |
| a directory of such directories, or one that holds `kafka-tiered-storage` | a log directory |
| a directory with `offset.wm` (Pinterest) | itself, without incomplete uploads |
| an object of a segment | the corresponding file in the partition directory |
| a prefix with `_seglog` (a manifest of ours), or a path below it | itself, with what the manifest has committed |
| REPOSITORY#SNAPSHOT of a backup, or a path below it | itself, as a restore would make it |
| any of these, with a local log directory | the partition in that log directory, joined with the tier |

Partitions that are only local are not shown. The others are loaded when they are first read, and `on_remark` then
receives the remarks about them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seglog.errors import RefusedError
from seglog.format import filenames
from seglog.storage import links
from seglog.storage.filesystem import READ_BYTES_LIMIT, File, FileStatus, FileSystem, OpenMode, read_whole
from seglog.storage.frozen import ViewFileSystem
from seglog_stores.formats.tier_names import COMMITTED
from seglog_stores.tiers.contents import Stored
from seglog_stores.tiers.manifests import required
from seglog_stores.tiers.recognition import Recognised, TierPlace, recognise
from seglog_stores.tiers.segments import Remark
from seglog_stores.tiers.snapshots import ShownSnapshot, require_single, shown_snapshot
from seglog_stores.tiers.tiered_partition import TieredPartition, TierOptions, load_partition

OnRemark = Callable[[Remark], None]


def see_tiers(
    fs: FileSystem, paths: Sequence[Path], options: TierOptions | None = None, on_remark: OnRemark | None = None
) -> tuple[FileSystem, list[Path]]:
    """Returns the file system and the paths through which tiers are read; the given ones if no path is a tier.

    Raises RefusedError if two topics of one name would get one path, or if the local part of a tier is named beside it.
    Raises OSError.
    """
    return show_tiers(fs, recognise(fs, paths), options, on_remark)


def show_tiers(
    fs: FileSystem,
    recognised: Sequence[Recognised],
    options: TierOptions | None = None,
    on_remark: OnRemark | None = None,
) -> tuple[FileSystem, list[Path]]:
    """Returns the file system and the paths through which recognised tiers are read, with the errors of `see_tiers`."""
    options = options or TierOptions()
    shown = _Shown(fs)
    top = None if options.local is None else links.resolve(options.local)
    for recognition in recognised:
        shown.add(recognition, top)
    if not shown.mounts and not shown.directories:
        return fs, shown.paths
    if top is not None:
        for path in shown.plain:  # what a path shows must not depend on the other paths
            where = links.resolve(path)
            if where in shown.mounts or any(mount.parent == where for mount in shown.mounts):
                raise RefusedError(f"{path} is the local part (--local) of the tier; name only the tier")
    options = replace(options, local=top)
    files = TierFileSystem(fs, shown.mounts, shown.roots, options, on_remark, shown.made, shown.directories)
    return files, shown.paths


def snapshot_files(fs: FileSystem, *snapshots: ShownSnapshot) -> TierFileSystem:
    """Returns a file system that shows all log directories of snapshots."""
    mounts = {place.directory: place for snapshot in snapshots for place in snapshot.places()}
    made: dict[Path, Stored] = {}
    directories: dict[Path, FileStatus] = {}
    for snapshot in snapshots:
        made |= snapshot.files()
        directories |= snapshot.directories()
    return TierFileSystem(fs, mounts, set(), TierOptions(), None, made, directories)


class _Shown:
    """What recognised paths are shown as: the fields of a `TierFileSystem`, and the paths in it; `plain` are those that
    lie in no tier.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.mounts: dict[Path, TierPlace] = {}
        self.made: dict[Path, Stored] = {}
        self.roots: set[Path] = set()
        self.directories: dict[Path, FileStatus] = {}
        self.paths: list[Path] = []
        self.plain: list[Path] = []
        self._snapshots: dict[Path, ShownSnapshot] = {}

    def add(self, recognition: Recognised, top: Path | None) -> None:
        """Adds a path; `top` is the log directory with the local parts."""
        if recognition.snapshot is not None:
            self._add_snapshot(recognition, recognition.snapshot)
        elif recognition.prefix is not None:
            self._add_committed(recognition, recognition.prefix)
        elif not recognition.places:
            self.paths.append(recognition.path)
            self.plain.append(recognition.path)
        else:
            self._add_tier(recognition, links.resolve(recognition.shown_in) if top is None else top)

    def _add_snapshot(self, recognition: Recognised, root: Path) -> None:
        if root not in self._snapshots:
            self._snapshots[root] = snapshot = shown_snapshot(self._fs, root)
            self.mounts |= {place.directory: place for place in snapshot.places()}
            self.made |= snapshot.files()
            self.directories |= snapshot.directories()
        require_single(self._snapshots[root], recognition.path)
        self.paths.append(recognition.path)

    def _add_committed(self, recognition: Recognised, prefix: Path) -> None:
        logs = required(self._fs, prefix)
        for place in logs.places():
            _mount(self.mounts, place.directory, place)
        self.made |= logs.checkpoints()
        self.roots.add(logs.prefix)
        self.paths.append(recognition.path)

    def _add_tier(self, recognition: Recognised, top: Path) -> None:
        for place in recognition.places:
            _mount(self.mounts, top / str(place.topic_partition), place)
        first, file = top / str(recognition.places[0].topic_partition), recognition.file
        self.paths.append(top if file is None else first / file if file else first)
        if file is None:
            self.roots.add(top)


def _mount(mounts: dict[Path, TierPlace], path: Path, place: TierPlace) -> None:
    known = mounts.get(path)
    if known is not None and known.directory != place.directory:
        raise RefusedError(
            f"{known.directory} and {place.directory} are both partition {place.topic_partition}, of topics with"
            " different ids; name the directory of one of them"
        )
    mounts[path] = place


class TierFileSystem(ViewFileSystem):
    """`below` with the partitions of tiered storage as read-only directories.

    `mounts` are the partitions by the path at which they are shown. A path in `roots` shows no other partitions, and of
    a local log directory its checkpoints. `made` are files that are not objects. `directories` are those of snapshots,
    which do not exist below, and have nothing but what is shown.
    """

    def __init__(
        self,
        below: FileSystem,
        mounts: Mapping[Path, TierPlace],
        roots: set[Path],
        options: TierOptions,
        on_remark: OnRemark | None = None,
        made: Mapping[Path, Stored] | None = None,
        directories: Mapping[Path, FileStatus] | None = None,
    ) -> None:
        super().__init__(below)
        self._mounts, self._roots, self._on_remark = mounts, roots, on_remark
        self.made, self.options, self._directories = made or {}, options, directories or {}
        self._loaded: dict[Path, TieredPartition] = {}
        self._guard = threading.Lock()

    def shows(self, path: Path) -> bool:
        """True if a partition of the tier is shown at `path`."""
        return path in self._mounts

    def place_at(self, path: Path) -> TierPlace | None:
        """Returns the place of the partition that is shown at `path`."""
        return self._mounts.get(path)

    def partition(self, path: Path) -> TieredPartition:
        """Returns the partition that is shown at a path of `mounts`, loaded once."""
        with self._guard:
            if path not in self._loaded:
                found = load_partition(self._below, self._mounts[path], self.options)
                self._loaded[path] = found
                if self._on_remark is not None:
                    for remark in found.remarks:
                        self._on_remark(remark)
            return self._loaded[path]

    def stored(self, path: Path) -> Stored | None:
        """Returns the tier's file at `path`, None if the file is not the tier's or does not exist."""
        if path in self.made:
            return self.made[path]
        if path.parent not in self._mounts or self._local_status(path) is not None:
            return None
        return self.partition(path.parent).files.get(path.name)

    def is_only_read(self, path: Path) -> bool:
        is_shown = path in self.made or path in self._mounts or path.parent in self._mounts
        return is_shown or path in self._directories or path.parent in self._directories

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode != "r" or not self.is_only_read(path):
            return super().open(path, mode)
        stored = self.stored(path)
        return self._below.open(path, mode) if stored is None else stored.open(path)

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        if path in self._directories:
            return self._directories[path]
        if path in self._mounts:
            status = self._below.status(path, follow)
            place = self._mounts[path]
            if status is None:
                status = self._below.status(place.directory)
            # a manifest's partition exists even if none of its objects does
            return status if status is not None or place.described is None else self._below.status(path.parent)
        if path in self.made:
            return self.made[path].status
        if path.parent in self._mounts:
            stored = self.partition(path.parent).files.get(path.name)
            return self._local_status(path) or (None if stored is None else stored.status)
        if path.parent in self._directories:
            return None
        return self._below.status(path, follow)

    def list(self, directory: Path) -> list[str]:
        if (
            directory in self._mounts
            or directory in self._directories
            or any(path.parent == directory for path in self._mounts)
        ):
            return [name for name, _ in self.entries(directory)]
        return self._below.list(directory)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        if directory in self._mounts:
            files = {name: stored.status for name, stored in self.partition(directory).files.items()}
            if self._has_local and self._below.status(directory) is not None:
                files |= dict(self._below.entries(directory))
            return sorted(files.items())
        if directory in self._directories:
            inside = (path for path in self._directories if path.parent == directory and path != directory)
            listed = {path.name: self._directories[path] for path in inside}
            return sorted((listed | self._made_in(directory)).items())
        listed = {} if directory in self._roots and not self._has_local else dict(self._below.entries(directory))
        if directory in self._roots:
            is_partition = filenames.parse_partition_directory
            listed = {n: status for n, status in listed.items() if n != COMMITTED and is_partition(n) is None}
        listed |= self._made_in(directory)
        for path in self._mounts:
            if path.parent == directory:
                status = self.status(path)
                if status is not None:
                    listed[path.name] = status
        return sorted(listed.items())

    def _made_in(self, directory: Path) -> dict[str, FileStatus]:
        return {path.name: stored.status for path, stored in self.made.items() if path.parent == directory}

    def free_bytes(self, path: Path) -> int:
        while path in self._directories:
            path = path.parent  # where the repository is
        return self._below.free_bytes(path)

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        with self.open(path, "r") as file:
            return read_whole(file, limit)

    @property
    def _has_local(self) -> bool:
        """True if a path of `mounts` may also be a local directory. (Pinterest's may be the tier's own.)"""
        return self.options.local is not None

    def _local_status(self, path: Path) -> FileStatus | None:
        return self._below.status(path) if self._has_local else None
