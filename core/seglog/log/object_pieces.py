"""Staged batches that a task has made a segment of, in the hope that it alone has rows of the partition.

Where a large part of a partition comes from one task, its bytes need not pass the driver: the task gives the batches
the offsets that follow on what is committed, makes the indexes, and puts the objects where the segment is to lie. If
nobody else has appended when the driver commits, the manifest names them, and the driver only adds the snapshot of the
producers, who stand as they stood before. Else the batches are read out of the object and appended as all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seglog.format.checkpoint import EpochEntry
from seglog.format.checksum import crc32c
from seglog.format.filenames import FileKind
from seglog.format.log_manifest import ManifestPartition, ManifestSegment, StoredObject
from seglog.format.producer_snapshot import encode_snapshot
from seglog.log.append_journal import MadeSegment, Placement, StagedFile
from seglog.log.partition_growth import Growth
from seglog.log.scratch_log import GrowingPrefix, new_segments, without_snapshot
from seglog.log.staged_batches import append_placed
from seglog.storage.trees import remove_tree
from seglog.tiers.manifests import object_of
from seglog.tiers.publishing import new_place, put_segment


def made(prefix: GrowingPrefix, growth: Growth, file: StagedFile) -> StagedFile | None:
    """A staged file of the scratch directory as the segment that comes next in a partition, put into the store; None
    where it is no single one: its offsets are not free, or it is too large.
    """
    name, base, fs = file.topic_partition, growth.base_offset, prefix.scratch_fs
    if file.first_offset is not None and file.first_offset < base:
        return None
    directory = prefix.scratch / f"{file.name}.log"
    fs.make_directory(directory)
    try:
        with prefix.log(directory, growth, None) as log:
            append_placed(log, prefix.scratch, Placement(name, base, growth.leader_epoch, (file,)))
        segments = new_segments(fs, directory, growth)
        if len(segments) != 1:
            return None
        place = new_place(prefix.path, name)
        segment = put_segment(fs, prefix.store, place, without_snapshot(segments[0]))
    finally:
        remove_tree(fs, directory)
    return replace(
        file,
        name=str(Path(str(name), place.name, segment.name_of(FileKind.LOG))),
        last_offset=segment.end_offset,
        made=MadeSegment(segment, growth.leader_epoch),
    )


def adopted(prefix: GrowingPrefix, growth: Growth, files: Sequence[StagedFile]) -> tuple[ManifestPartition | None, int]:
    """The partition with the first of these files that are the segments which come next in it, and how many they are.

    `growth` joins nothing. Raises OSError.
    """
    taken: list[ManifestSegment] = []
    end = growth.end_offset
    for file in files:
        made = file.made
        if made is None or (made.segment.base_offset, made.leader_epoch) != (end, growth.leader_epoch):
            break
        taken.append(made.segment)
        end = made.segment.end_offset + 1
    if not taken:
        return growth.before, 0
    if growth.knows_producers:
        found = prefix.snapshot(growth)
        data = encode_snapshot(()) if found is None else found
        taken = [_with_snapshot(prefix, growth, one, data) for one in taken]
    return growth.after(taken, [EpochEntry(growth.leader_epoch, taken[0].base_offset)]), len(taken)


def after_made(growth: Growth, made: MadeSegment) -> Growth:
    """The growth of a partition that this segment is part of."""
    after = growth.after([made.segment], [EpochEntry(made.leader_epoch, made.segment.base_offset)])
    return Growth(growth.topic_partition, after, after.segments, ())


def _with_snapshot(prefix: GrowingPrefix, growth: Growth, segment: ManifestSegment, data: bytes) -> ManifestSegment:
    kind = FileKind.PRODUCER_SNAPSHOT
    prefix.store.put(object_of(prefix.path, growth.topic_partition, segment, kind), [data], len(data))
    return replace(segment, objects={**segment.objects, kind: StoredObject(len(data), crc32c(data))})
