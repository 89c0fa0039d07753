"""Where a cleaning task reads and puts what it makes, when no file system is shared: a source of any kind, new objects.

A task writes the segments of a group to its executor's own disk, as for a shared file system, and then copies them into
a place of its own below the output prefix (`tiers.publishing`). An attempt that fails, or is one too many, leaves a
place that no manifest names.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seglog.cleaner.output import SegmentSummary
from seglog.format.filenames import FileKind, FileState, segment_file_name
from seglog.format.log_manifest import ManifestSegment
from seglog.model import TopicPartition
from seglog.remote.settings import StoreSettings
from seglog.spark.files import files_of
from seglog.storage.files import remove_tree
from seglog.storage.filesystem import FileSystem
from seglog.tiers.publishing import SegmentToPut, new_place, put_segment
from seglog.tiers.view import see_tiers

_KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a task must know: the path that a user named, by which it reads, and the prefix that takes the output."""

    source: Path
    output: Path
    store: StoreSettings

    def files(self) -> FileSystem:
        """The source, and the executor's own disk."""
        return see_tiers(files_of(self.store), [self.source])[0]

    def put(
        self, fs: FileSystem, key: TopicPartition, directory: Path, summaries: Sequence[SegmentSummary]
    ) -> tuple[ManifestSegment, ...]:
        """Copies cleaned segments, which lie in a directory of this machine. Where each ends, its reader knows."""
        place, store = new_place(self.output, key), files_of(self.store)
        found = []
        for summary in summaries:
            base = summary.base_offset
            names = {kind: directory / segment_file_name(base, kind, FileState.CLEANED) for kind in _KINDS}
            there = {kind: path for kind, path in names.items() if fs.status(path) is not None}
            found.append(put_segment(fs, store, place, SegmentToPut(base, base, there)))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """A segment that stays as it is, and is copied by a task."""

    delivery: Delivery
    topic_partition: TopicPartition
    segment: SegmentToPut


def copied(work: SegmentCopy) -> ManifestSegment:
    """Copies a segment into a place of this attempt."""
    delivery = work.delivery
    place = new_place(delivery.output, work.topic_partition)
    return put_segment(delivery.files(), files_of(delivery.store), place, work.segment)


@contextmanager
def own_directory(fs: FileSystem, parent: Path) -> Iterator[Path]:
    """A directory on this machine, gone at the end."""
    path = parent / f"seglog-clean-{uuid.uuid4().hex}"
    fs.make_directory(path, parents=True)
    try:
        yield path
    finally:
        remove_tree(fs, path)
