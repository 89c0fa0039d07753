"""Recognises paths in tiered storage by the names of directories and of their contents.

For a path that is not a tier, commands and the library need nothing else; `view`, which reads tiers, is imported only
for a path that is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.format import filenames
from seglog.model import TopicPartition
from seglog.remote_path import SNAPSHOT_MARK, WEB_SERVERS, RemotePath
from seglog.scan.listing import listed
from seglog.storage import links
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog_stores.formats.tier_names import (
    COMMITTED,
    LOCAL_TIERED_STORAGE,
    WATERMARK,
    ObjectKind,
    is_place_name,
    parse_local_tiered_directory,
    parse_object_name,
    parse_partition_number,
    parse_tiered_topic,
)

if TYPE_CHECKING:
    from seglog_stores.formats.log_manifest import ManifestPartition
    from seglog_stores.formats.snapshot_manifest import StoredPartition


class Layout(Enum):
    """The writer of the objects."""

    AIVEN = "Aiven"
    LOCAL = "LocalTieredStorage"
    PINTEREST = "Pinterest"
    MANIFEST = "seglog"  # committed by a manifest of ours: `tiers.manifests`
    SNAPSHOT = "snapshot"  # in a backup repository: `tiers.snapshots`


@dataclass(frozen=True, slots=True)
class KeptPartition:
    """A partition in a snapshot of the repository at `repository`; `status` is that of the snapshot's manifest."""

    repository: Path
    partition: StoredPartition
    status: FileStatus


@dataclass(frozen=True, slots=True)
class TierPlace:
    """A partition in tiered storage, by the names of directories; `described` is its entry in a manifest of ours,
    `kept` that in a snapshot.
    """

    directory: Path
    layout: Layout
    topic_partition: TopicPartition
    topic_id: str | None = None
    described: ManifestPartition | None = None
    kept: KeptPartition | None = None

    @property
    def is_listed(self) -> bool:
        """True if a manifest or a snapshot lists all of the log."""
        return self.described is not None or self.kept is not None


@dataclass(frozen=True, slots=True)
class Recognised:
    """The meaning of a path: the partitions in tiered storage (none: it is not a tier) and the directory in which they
    are shown. `file` is the file meant, "" for a partition, None for all partitions. For logs committed below `prefix`,
    the manifest there lists the places; for those in a backup, that of the snapshot at `snapshot`.
    """

    path: Path
    places: list[TierPlace]
    shown_in: Path
    file: str | None
    prefix: Path | None = None
    snapshot: Path | None = None

    @property
    def is_tier(self) -> bool:
        """True if the path is in tiered storage."""
        return bool(self.places) or self.is_listed

    @property
    def is_listed(self) -> bool:
        """True if a manifest or a snapshot lists the places."""
        return self.prefix is not None or self.snapshot is not None


def recognise(fs: FileSystem, paths: Iterable[Path]) -> list[Recognised]:
    """Returns the meaning of each path. Raises OSError."""
    return [_recognised(fs, path) for path in paths]


def committed_prefix(fs: FileSystem, path: Path) -> Path | None:
    """Returns the prefix below which a manifest of ours commits the logs of a path, None if there is none."""
    return _recognised(fs, path).prefix


def places_in(fs: FileSystem, path: Path) -> list[TierPlace]:
    """Returns the partitions in tiered storage that a path contains or is in; [] if it is not a tier, or if a manifest
    of ours lists them. Raises OSError.
    """
    return _recognised(fs, path).places


def _recognised(fs: FileSystem, path: Path) -> Recognised:
    status = fs.status(path)
    if status is None:
        snapshot = snapshot_around(fs, path)
        if snapshot is not None:
            return Recognised(links.resolve(path), [], snapshot, None, snapshot=snapshot)
        prefix = _prefix_of_missing(fs, path)
        return Recognised(path if prefix is None else links.resolve(path), [], path, "", prefix)
    if not status.is_directory:
        return Recognised(path, *_recognised_file(fs, path))
    place_of = links.resolve(path)
    names = listed(fs.list, place_of)
    prefix = _prefix_around(fs, place_of, names)
    if prefix is not None:
        return Recognised(place_of, [], prefix, None, prefix)
    return Recognised(path, *_recognised_directory(fs, place_of, names))


def snapshot_around(fs: FileSystem, path: Path) -> Path | None:
    """Returns the path of the snapshot that a path means or is in; None if there is none, or if that path exists.

    Such a path is REPOSITORY#SNAPSHOT; a name with that sign which exists is never taken for a snapshot.
    """
    if SNAPSHOT_MARK not in str(path):
        return None
    from seglog_stores.formats.snapshot_manifest import MARKER

    for above in reversed([path, *path.parents]):
        place, mark, _ = above.name.rpartition(SNAPSHOT_MARK)
        if mark and place and fs.status(above) is None:
            return links.resolve(above) if fs.status(above.with_name(place) / MARKER) is not None else None
    return None


def _prefix_of_missing(fs: FileSystem, path: Path) -> Path | None:
    """Returns the prefix of a topic's name below it, or of a file shown in a partition. Makes only requests that the
    reader would make.
    """
    if isinstance(path, RemotePath) and path.scheme in WEB_SERVERS:
        return None  # it may not list anything
    above = fs.status(path.parent)
    if above is None or not above.is_directory:
        return None
    directory = links.resolve(path.parent)
    return _prefix_around(fs, directory, listed(fs.list, directory))


def _prefix_around(fs: FileSystem, directory: Path, names: Sequence[str]) -> Path | None:
    if COMMITTED in names:
        return directory
    is_partition = any(map(is_place_name, names))
    return directory.parent if is_partition and COMMITTED in listed(fs.list, directory.parent) else None


def _recognised_directory(fs: FileSystem, path: Path, names: Sequence[str]) -> tuple[list[TierPlace], Path, str | None]:
    """Returns `places`, `shown_in` and `file` of `Recognised`."""
    place = _place_of(path, names)
    if place is not None:
        return [place], _shown_in(place), ""
    if filenames.META_PROPERTIES in names or filenames.RECOVERY_POINT_CHECKPOINT in names:
        return [], path, None  # a broker's log directory
    if LOCAL_TIERED_STORAGE in names:
        path /= LOCAL_TIERED_STORAGE
        names = listed(fs.list, path)
    return _places_below(fs, path, names), path, None


def _recognised_file(fs: FileSystem, path: Path) -> tuple[list[TierPlace], Path, str | None]:
    name = parse_object_name(path.name)
    kinds = {kind.value: kind for kind in filenames.FileKind}
    if name is None or name.kind.value not in kinds or name.kind is ObjectKind.PRODUCER_SNAPSHOT:
        return [], path, ""
    directory = links.resolve(path.parent)
    try:
        place = _place_of(directory, listed(fs.list, directory))
    except PermissionError:  # the file itself is readable, and is what its name says
        return [], path, ""
    file = filenames.segment_file_name(name.base_offset, kinds[name.kind.value])
    return ([], path, "") if place is None else ([place], _shown_in(place), file)


def _shown_in(place: TierPlace) -> Path:
    return place.directory.parent.parent if place.layout is Layout.AIVEN else place.directory.parent


def _place_of(directory: Path, names: Sequence[str]) -> TierPlace | None:
    """Returns the partition of a directory, by its contents and then its name."""
    found = filenames.parse_topic_partition(directory.name)
    if WATERMARK in names and found is not None:
        return TierPlace(directory, Layout.PINTEREST, found)
    objects = [name for name in map(parse_object_name, names) if name is not None]
    if not objects:
        return None
    topic, number = parse_tiered_topic(directory.parent.name), parse_partition_number(directory.name)
    if number is not None and topic is not None:
        return TierPlace(directory, Layout.AIVEN, TopicPartition(topic.topic, number), topic.topic_id)
    named = parse_local_tiered_directory(directory.name)
    if named is None or any(name.kind.is_aivens for name in objects):
        return None
    return TierPlace(directory, Layout.LOCAL, *named)


def _places_below(fs: FileSystem, path: Path, names: Sequence[str]) -> list[TierPlace]:
    """Returns the partitions of a tier's root, or of Aiven's directory of a topic."""
    if parse_tiered_topic(path.name) is not None:
        numbered = _known(_place_of(path / name, _names(fs, path / name)) for name in names if name.isdigit())
        if numbered:
            return numbered
    places: list[TierPlace] = []
    for name in names:
        below = path / name
        if parse_tiered_topic(name) is None and parse_local_tiered_directory(name) is None:
            continue
        inside = _names(fs, below)
        place = _place_of(below, inside)
        if place is not None:
            places.append(place)
        else:
            numbers = [number for number in inside if parse_partition_number(number) is not None]
            places += _known(_place_of(below / number, _names(fs, below / number)) for number in numbers)
    return places


def _known(found: Iterable[TierPlace | None]) -> list[TierPlace]:
    return [one for one in found if one is not None]


def _names(fs: FileSystem, path: Path) -> list[str]:
    status = fs.status(path)
    try:
        return fs.list(path) if status is not None and status.is_directory else []
    except FileNotFoundError:  # it was removed between the two calls
        return []
