"""Where in a segment's `.log` the batches of a range of offsets or times lie, as far as its indexes can be believed.

An index is a hint that may be missing, cut, damaged or another segment's. So every answer is a place where a batch was
found (`segment_scan.indexed_batch`), or the one that is always right: the file's start or end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from seglog.log.indexes import OffsetIndex
from seglog.scan.listing import SegmentFiles
from seglog.scan.segment_scan import indexed_batch
from seglog.storage.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class Place:
    """The byte position of a batch and its header's base offset. At the file's start that may be unknown (None)."""

    position: int = 0
    base_offset: int | None = None


class SegmentPlaces:
    """The places in a segment of `files.size` bytes. Raises OSError where a file cannot be read."""

    def __init__(self, fs: FileSystem, files: SegmentFiles) -> None:
        self.fs, self.files = fs, files

    @cached_property
    def _offsets(self) -> OffsetIndex | None:
        path = self.files.offset_index
        return None if path is None else OffsetIndex(self.fs, path, self.files.base_offset)

    def start(self, offset: int) -> Place:
        """Returns a place at or before the first batch that reaches `offset`."""
        files = self.files
        if self._offsets is None or offset <= files.base_offset:
            return Place()
        entries = self._offsets.entries_to(offset)
        with self.fs.open(files.log, "r") as file:
            row = indexed_batch(file, files.size, files.base_offset, entries)
        return Place() if row is None else Place(int(row["position"][0]), int(row["base_offset"][0]))
