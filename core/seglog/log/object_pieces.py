"""Staged batches that a task has made a segment of, in the hope that it alone has rows of the partition.

Where a large part of a partition comes from one task, its bytes need not pass the driver: the task gives the batches
the offsets that follow on what is committed, makes the indexes, and puts the objects where the segment is to lie. If
nobody else has appended when the driver commits, the manifest names them, and the driver only adds the snapshot of the
producers, who stand as they stood before. Else the batches are read out of the object and appended as all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.format.checkpoint import EpochEntry
from seglog.format.checksum import crc32c
from seglog.format.filenames import FileKind
from seglog.format.log_manifest import ManifestPartition, ManifestSegment, StoredObject
from seglog.format.producer_snapshot import encode_snapshot
from seglog.log.append_journal import MadeSegment, Placement, StagedFile
from seglog.log.partition_growth import Growth
from seglog.log.scratch_log import new_segments, object_of, scratch_log, snapshot_of, without_snapshot
from seglog.log.staged_batches import append_placed
from seglog.storage.filesystem import FileSystem
from seglog.storage.trees import remove_tree
from seglog.tiers.publishing import ObjectFiles, new_place, put_segment


@dataclass(frozen=True, slots=True)
class SegmentMaker:
    """Makes segments of staged files, which `scratch_fs` has in the directory `scratch`."""

    store: ObjectFiles
    prefix: Path
    scratch_fs: FileSystem
    scratch: Path
    clock: Clock
    config: LogConfig

    def made(self, growth: Growth, file: StagedFile) -> StagedFile | None:
        """The file as the segment that comes next in a partition, put into the store; None where it is no single one:
        its offsets are not free, or it is too large.
        """
        base = growth.base_offset
        if file.first_offset is not None and file.first_offset < base:
            return None
        directory = self.scratch / f"{file.name}.log"
        self.scratch_fs.make_directory(directory)
        try:
            with scratch_log(self.scratch_fs, directory, growth, None, self.clock, self.config) as log:
                append_placed(log, self.scratch, Placement(file.topic_partition, base, growth.leader_epoch, (file,)))
            segments = new_segments(self.scratch_fs, directory, growth)
            if len(segments) != 1:
                return None
            place = new_place(self.prefix, file.topic_partition)
            segment = put_segment(self.scratch_fs, self.store, place, without_snapshot(segments[0]))
        finally:
            remove_tree(self.scratch_fs, directory)
        path = object_of(self.prefix, file.topic_partition, segment, FileKind.LOG)
        return replace(
            file,
            name=str(Path(*path.parts[len(self.prefix.parts) :])),
            last_offset=segment.end_offset,
            made=MadeSegment(segment, growth.leader_epoch),
        )


def adopted(
    store: ObjectFiles, prefix: Path, growth: Growth, files: Sequence[StagedFile]
) -> tuple[ManifestPartition | None, int]:
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
        found = snapshot_of(store, prefix, growth)
        data = encode_snapshot(()) if found is None else found
        taken = [_with_snapshot(store, prefix, growth, one, data) for one in taken]
    return growth.after(taken, [EpochEntry(growth.leader_epoch, taken[0].base_offset)]), len(taken)


def after_made(growth: Growth, made: MadeSegment) -> Growth:
    """The growth of a partition that this segment is part of."""
    after = growth.after([made.segment], [EpochEntry(made.leader_epoch, made.segment.base_offset)])
    return Growth(growth.topic_partition, after, after.segments, ())


def _with_snapshot(
    store: ObjectFiles, prefix: Path, growth: Growth, segment: ManifestSegment, data: bytes
) -> ManifestSegment:
    kind = FileKind.PRODUCER_SNAPSHOT
    store.put(object_of(prefix, growth.topic_partition, segment, kind), [data], len(data))
    return replace(segment, objects={**segment.objects, kind: StoredObject(len(data), crc32c(data))})
