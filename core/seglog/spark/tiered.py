"""Partitions in tiered storage as jobs meet them: the driver finds out what a path means, a task sees its partition.

A task is sent the name of the partition's place, and what its reader must know: of a committed log what the manifest
says of that partition, of a broker's tier the key pairs and the records of `__remote_log_metadata` about it. So no
task lists a tier, or reads a manifest, again. Private keys travel as credentials do: nothing prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seglog.remote.settings import StoreSettings
from seglog.spark.files import files_of
from seglog.storage.filesystem import FileSystem
from seglog.tiers.contents import Stored
from seglog.tiers.manifests import checkpoints_of
from seglog.tiers.metadata import RemoteLogs
from seglog.tiers.partition import TierOptions
from seglog.tiers.recognition import Place
from seglog.tiers.segments import Keys, Remark
from seglog.tiers.view import TierFileSystem


@dataclass(frozen=True, slots=True)
class Shown:
    """A partition of a tier, shown at `path`; `made` are the files of its log directory that no object is."""

    path: Path
    place: Place
    local: Path | None
    keys: Keys = field(repr=False)
    metadata: RemoteLogs | None = field(repr=False)
    made: Mapping[Path, Stored] = field(repr=False)


def shown_at(fs: FileSystem, paths: Iterable[Path]) -> tuple[Shown, ...]:
    """Those of some partition directories, or files in them, that `fs` shows out of a tier."""
    if not isinstance(fs, TierFileSystem):
        return ()
    found = {}
    for path in paths:
        directory = path if fs.shows(path) else path.parent
        place = fs.place_at(directory)
        if place is not None:
            options = fs.options
            metadata = None if options.metadata is None else options.metadata.only(place)
            keys = Keys(options.keys.pairs)  # without those that the driver has opened
            found[directory] = Shown(directory, place, options.local, keys, metadata, _made_for(fs, directory, place))
    return tuple(found.values())


def size_of(fs: FileSystem, directory: Path) -> int:
    """Bytes of a file, or of what lies in a directory, of a committed log as its manifest says; of one that cannot be
    read its task tells.
    """
    place = fs.place_at(directory) if isinstance(fs, TierFileSystem) else None
    if place is not None and place.described is not None:
        return sum(one.size for segment in place.described.segments for one in segment.objects.values())
    try:
        return sum(status.size for _, status in fs.entries(directory))
    except NotADirectoryError:
        status = fs.status(directory)
        return 0 if status is None else status.size
    except OSError:
        return 0


def task_files(store: StoreSettings, shown: Sequence[Shown], hear: Callable[[Remark], None]) -> FileSystem:
    """What a task reads through: the partitions that are `shown`, where there are any."""
    fs = files_of(store)
    if not shown:
        return fs
    options = TierOptions(shown[0].local, shown[0].keys, _joined(shown))
    mounts = {one.path: one.place for one in shown}
    made = {path: stored for one in shown for path, stored in one.made.items()}
    return TierFileSystem(fs, mounts, {path.parent for path in mounts}, options, hear, made)


def _made_for(fs: TierFileSystem, directory: Path, place: Place) -> Mapping[Path, Stored]:
    """The checkpoints of its log directory, as far as they are about this partition."""
    above = [stored for path, stored in fs.made.items() if path.parent == directory.parent]
    if place.described is None or not above:
        return {}
    return checkpoints_of(directory.parent, [place.described], above[0].status)


def _joined(shown: Sequence[Shown]) -> RemoteLogs | None:
    """What the records say of all these partitions."""
    if shown[0].metadata is None:
        return None
    joined = RemoteLogs()
    for one in shown:
        if one.metadata is not None:
            joined.copies.update(one.metadata.copies)
            joined.deleted.update(one.metadata.deleted)
    return joined
