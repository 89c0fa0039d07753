"""Paths in tiered storage, for everything that reads partitions: `see_tiers` is the one door.

    fs, paths = see_tiers(fs, paths, options, on_remark)

Who has asked already what the paths mean (`recognition.recognise`) goes on with `show_tiers`.

A path that holds a layout of tiered storage becomes one that any reader takes for a partition directory or a log
directory; every other path stays as it is, and so does the file system where no path is one.

| path | becomes |
|---|---|
| `…/orders-3-<id>` of LocalTieredStorage, `…/orders-<id>/3` of Aiven | the partition directory `…/orders-3` |
| a directory of such ones, or one that holds `kafka-tiered-storage` | a log directory |
| a directory with `offset.wm` (Pinterest) | itself, without what is not uploaded yet |
| an object of a segment | the file that it is in the partition directory |
| a prefix with `_seglog` (a manifest of ours), or what lies below it | itself, with what the manifest has committed |
| any of these, with a local log directory | the partition in that log directory, joined with the tier |

Partitions that are only local are not shown. The others are looked at when they are first read; then `on_remark` hears
what must be known about them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seglog.errors import RefusedError
from seglog.format import filenames
from seglog.format.tier_names import COMMITTED
from seglog.storage import links
from seglog.storage.filesystem import (
    READ_BYTES_LIMIT,
    File,
    FileStatus,
    FileSystem,
    OpenMode,
    ViewFileSystem,
    read_whole,
)
from seglog.tiers.contents import Stored
from seglog.tiers.manifests import required
from seglog.tiers.partition import TieredPartition, TierOptions, load_partition
from seglog.tiers.recognition import Place, Recognised, recognise
from seglog.tiers.segments import Remark

OnRemark = Callable[[Remark], None]


def see_tiers(
    fs: FileSystem, paths: Sequence[Path], options: TierOptions | None = None, on_remark: OnRemark | None = None
) -> tuple[FileSystem, list[Path]]:
    """The file system and the paths through which tiers are read; the same ones where no path is a tier.

    RefusedError where two topics of one name would have one path: name the directory of one of them; also where the
    local part of a tier is named beside it. Raises OSError.
    """
    return show_tiers(fs, recognise(fs, paths), options, on_remark)


def show_tiers(
    fs: FileSystem,
    recognised: Sequence[Recognised],
    options: TierOptions | None = None,
    on_remark: OnRemark | None = None,
) -> tuple[FileSystem, list[Path]]:
    """As `see_tiers`, of paths of which it is known what they mean."""
    options = options or TierOptions()
    mounts: dict[Path, Place] = {}
    made: dict[Path, Stored] = {}
    seen: list[Path] = []
    plain: list[Path] = []
    roots: set[Path] = set()
    for found in recognised:
        if found.prefix is not None:
            logs = required(fs, found.prefix)
            for place in logs.places():
                _mount(mounts, place.directory, place)
            made |= logs.checkpoints()
            roots.add(logs.prefix)
            seen.append(found.path)
            continue
        if not found.places:
            seen.append(found.path)
            plain.append(found.path)
            continue
        top = links.resolve(options.local if options.local is not None else found.shown_in)
        for place in found.places:
            _mount(mounts, top / str(place.topic_partition), place)
        one = top / str(found.places[0].topic_partition)
        seen.append(top if found.file is None else one / found.file if found.file else one)
        if found.file is None:
            roots.add(top)
    if not mounts:
        return fs, seen
    local = None if options.local is None else links.resolve(options.local)
    if local is not None:
        _refuse_twice(plain, mounts)
    return TierFileSystem(fs, mounts, roots, replace(options, local=local), on_remark, made), seen


def _refuse_twice(plain: Sequence[Path], mounts: Mapping[Path, Place]) -> None:
    """What a path shows may not depend on which other one is named: the local part is shown with its tier."""
    for path in plain:
        where = links.resolve(path)
        if where in mounts or any(path.parent == where for path in mounts):
            raise RefusedError(f"{path} is read with the tier, as its local part (--local): name the tier alone")


def _mount(mounts: dict[Path, Place], path: Path, place: Place) -> None:
    known = mounts.get(path)
    if known is not None and known.directory != place.directory:
        raise RefusedError(
            f"{known.directory} and {place.directory} are both partition {place.topic_partition}, of topics with"
            " different ids: name the directory of the one that is meant"
        )
    mounts[path] = place


def _is_hidden(name: str) -> bool:
    return name == COMMITTED or filenames.parse_partition_directory(name) is not None


def _unheard(remark: Remark) -> None:
    """Where nobody wants to hear of them."""


class TierFileSystem(ViewFileSystem):
    """`below`, in which partitions of tiered storage are directories, which cannot be changed.

    `mounts` are the partitions by the path at which they are shown; a path among `roots` shows no others, and of a
    local log directory its checkpoints. `made` are files that no object is.
    """

    def __init__(
        self,
        below: FileSystem,
        mounts: Mapping[Path, Place],
        roots: set[Path],
        options: TierOptions,
        on_remark: OnRemark | None = None,
        made: Mapping[Path, Stored] | None = None,
    ) -> None:
        super().__init__(below)
        self._mounts, self._roots, self._on_remark = mounts, roots, on_remark or _unheard
        self.made, self.options = made or {}, options
        self._loaded: dict[Path, TieredPartition] = {}
        self._guard = threading.Lock()

    def shows(self, path: Path) -> bool:
        """Whether a partition of the tier is shown at `path`."""
        return path in self._mounts

    def place_at(self, path: Path) -> Place | None:
        """Where the partition lies that is shown at `path`."""
        return self._mounts.get(path)

    def partition(self, path: Path) -> TieredPartition:
        """The partition that is shown at a path of `mounts`, looked at once."""
        with self._guard:
            if path not in self._loaded:
                found = load_partition(self._below, self._mounts[path], self.options)
                self._loaded[path] = found
                for remark in found.remarks:
                    self._on_remark(remark)
            return self._loaded[path]

    def stored(self, path: Path) -> Stored | None:
        """What the tier has of a file that is shown; None where the file is another one, or there is none."""
        if path in self.made:
            return self.made[path]
        if path.parent not in self._mounts or self._local_status(path) is not None:
            return None
        return self.partition(path.parent).files.get(path.name)

    def is_only_read(self, path: Path) -> bool:
        return path in self.made or path in self._mounts or path.parent in self._mounts

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode != "r" or not self.is_only_read(path):
            return super().open(path, mode)
        stored = self.stored(path)
        return self._below.open(path, mode) if stored is None else stored.open(path)

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        if path in self._mounts:
            status = self._below.status(path, follow)
            place = self._mounts[path]
            if status is None:
                status = self._below.status(place.directory)
            # a manifest's partition is there also when nothing is left of it
            return status if status is not None or place.described is None else self._below.status(path.parent)
        if path in self.made:
            return self.made[path].status
        if path.parent in self._mounts:
            stored = self.partition(path.parent).files.get(path.name)
            return self._local_status(path) or (None if stored is None else stored.status)
        return self._below.status(path, follow)

    def list(self, directory: Path) -> list[str]:
        return (
            [name for name, _ in self.entries(directory)] if self._is_shown(directory) else self._below.list(directory)
        )

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        if directory in self._mounts:
            shown = {name: stored.status for name, stored in self.partition(directory).files.items()}
            if self._has_local and self._below.status(directory) is not None:
                shown |= dict(self._below.entries(directory))
            return sorted(shown.items())
        found = {} if directory in self._roots and not self._has_local else dict(self._below.entries(directory))
        if directory in self._roots:
            found = {name: one for name, one in found.items() if not _is_hidden(name)}
        found |= {path.name: stored.status for path, stored in self.made.items() if path.parent == directory}
        for path in self._mounts:
            if path.parent == directory:
                status = self.status(path)
                if status is not None:
                    found[path.name] = status
        return sorted(found.items())

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        with self.open(path, "r") as file:
            return read_whole(file, limit)

    def _is_shown(self, directory: Path) -> bool:
        return directory in self._mounts or any(path.parent == directory for path in self._mounts)

    @property
    def _has_local(self) -> bool:
        """Whether a path of `mounts` may be a local directory, too; Pinterest's may be the tier's own."""
        return self.options.local is not None

    def _local_status(self, path: Path) -> FileStatus | None:
        return self._below.status(path) if self._has_local else None
