"""Finds a segment's objects whose custom metadata names another prefix or key than its manifest.

A broker calls Aiven's plugin with that metadata, and the plugin reads log and indexes from there (Aiven:
ObjectKeyFactory); only the manifest always has the configured prefix. The names of directories do not show the root of
a key: a bucket's root, or that of a copy. So the root is the nearest directory above the partition's from which both
objects are found.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from seglog.format.wire import WireError
from seglog.remote_path import RemotePath
from seglog.storage.filesystem import FileSystem
from seglog_stores.formats.tier_manifest import CustomMetadata, RemoteSegment, parse_custom_metadata
from seglog_stores.formats.tier_names import ObjectKind, ObjectName, TieredDirectory
from seglog_stores.tiers.contents import WholeObject
from seglog_stores.tiers.metadata import RemoteLogs
from seglog_stores.tiers.recognition import TierPlace
from seglog_stores.tiers.segments import Objects, Problem, Remark

_MOVED = (ObjectKind.LOG, ObjectKind.INDEXES)
# Errors for a key that is resolved from the wrong directory: no permission, or not a possible path.
_NOWHERE = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG)


class Relocation:
    """Locates the objects of a partition's segments by the metadata. Several threads may call it."""

    def __init__(self, fs: FileSystem, place: TierPlace, metadata: RemoteLogs) -> None:
        self._fs, self._place, self._copies = fs, place, metadata.of(place)
        self._remarks: list[Remark] = []
        self._absent: list[tuple[RemoteSegment, str]] = []  # segments, and their keys without objects

    def objects(self, segment_id: str, beside: Objects) -> Objects:
        """Returns the manifest, log and indexes of a segment. `beside` are the objects in the directory of its
        manifest, which count if no others are named or found.
        """
        copy = self._copies.get(segment_id)
        if copy is None or not copy.custom or not copy.is_readable:
            return beside
        segment, own = copy.segment, beside[ObjectKind.MANIFEST]
        try:
            key, stems = _named(self._place, segment, parse_custom_metadata(copy.custom))
        except WireError as error:
            why = f"the custom metadata of the segment at offset {segment.start_offset} cannot be read: {error}"
            self._remark(Problem.BAD_OBJECT, f"{why}; the objects beside its manifest count", segment, own.path)
            return beside
        left = {kind: beside[kind] for kind in _MOVED if kind in beside}
        here = own.path.with_suffix("")
        for stem in stems:
            found = left if stem == here else self._at(stem)
            if len(found) == len(_MOVED):
                for one in left.values() if stem != here else ():
                    message = f"{one.path} is left out: by the metadata the segment's objects are at {stem}"
                    self._remark(Problem.ORPHAN_OBJECT, message, segment, one.path)
                return {ObjectKind.MANIFEST: own, **found}
        if here not in stems:
            self._absent.append((segment, key))
        return beside

    def remarks(self) -> list[Remark]:
        """Returns the remarks on the segments located so far."""
        found = sorted(self._remarks, key=lambda one: (one.first_offset or 0, str(one.path)))
        if self._absent:
            absent = sorted(self._absent, key=lambda one: one[0].start_offset)
            message = (
                f"the custom metadata of {len(absent)} segments names objects that do not exist or cannot be listed"
                f" (the first: {absent[0][1]}); the objects beside the manifests count"
            )
            first, last = absent[0][0].start_offset, max(one.end_offset for one, _ in absent)
            partition, where = str(self._place.topic_partition), self._place.directory
            found.append(Remark(Problem.MOVED_OBJECT, partition, message, first, last, where))
        return found

    def _at(self, stem: Path) -> dict[ObjectKind, WholeObject]:
        found = {}
        for kind in _MOVED:
            path = stem.with_name(stem.name + kind.value)
            try:
                status = self._fs.status(path)
            except OSError as error:
                if error.errno not in _NOWHERE:
                    raise
                status = None
            if status is not None and not status.is_directory:
                found[kind] = WholeObject(self._fs, path, status)
        return found

    def _remark(self, problem: Problem, message: str, segment: RemoteSegment, path: Path) -> None:
        partition = str(self._place.topic_partition)
        self._remarks.append(Remark(problem, partition, message, segment.start_offset, segment.end_offset, path))


def _named(place: TierPlace, segment: RemoteSegment, custom: CustomMetadata) -> tuple[str, Sequence[Path]]:
    """Returns the key of a segment's objects without suffix, and its possible paths, the nearest first."""
    topic = str(TieredDirectory(segment.topic_partition.topic, segment.topic_id))
    stem = str(ObjectName(segment.start_offset, segment.segment_id, ObjectKind.LOG)).removesuffix(ObjectKind.LOG.value)
    key = custom.key if custom.key is not None else f"{topic}/{segment.topic_partition.partition}/{stem}"
    above = place.directory.parents[1:]  # without the directory of the topic
    if custom.prefix is None:
        # the configured prefix; its end is part of that directory's name if it does not end with a slash
        key, above = place.directory.parent.name.removesuffix(topic) + key, above[:1]
    else:
        key = custom.prefix + key
    roots = [one for one in above if not isinstance(one, RemotePath) or one.store]
    return key, [one.joinpath(*key.split("/")) for one in roots]
