"""Was this partition closed properly? Asked where no log directory can tell: of a copied or lone partition
directory.

A broker would treat such a directory as unclean and read it from its start, cutting it at the first damage.
That is more than the question asks for: segments before the active one were complete when they were rolled.
So:

- closed: nothing left over, every segment has its indexes without zero padding and with no entry beyond its end, the
  newest snapshot is at the log end, and the last batch ends where its file ends;
- otherwise unclean, from the first segment whose indexes are missing, padded or too long, at the latest from the active
  one.
"""

from __future__ import annotations

from dataclasses import dataclass

from seglog.log.segment import LogSegment
from seglog.scan.listing import PartitionListing, SegmentFiles
from seglog.storage.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class ShutdownEvidence:
    """What the files say: whether the log was closed, and from which offset on it must be recovered if not."""

    clean: bool
    recovery_point: int
    reason: str


def shutdown_evidence(fs: FileSystem, listing: PartitionListing) -> ShutdownEvidence:
    """Looks at names, indexes and the active segment's end; changes nothing."""
    if not listing.segments:
        return ShutdownEvidence(True, 0, "there are no segments")
    active = listing.segments[-1].base_offset
    segment = LogSegment(fs, listing.directory, active)
    next_offset, valid_bytes = segment.read_next_offset()
    ends = [*(later.base_offset for later in listing.segments[1:]), next_offset]
    for files, end in zip(listing.segments, ends, strict=True):
        reason = _unfinished_index(fs, files, end)
        if reason:
            return ShutdownEvidence(False, files.base_offset, reason)
    if valid_bytes != segment.size:
        return ShutdownEvidence(False, active, f"the last batch ends at byte {valid_bytes} of {segment.size}")
    if any(path.name.endswith((".swap", ".cleaned")) for path in listing.leftovers):
        return ShutdownEvidence(False, active, "a replacement of segments was interrupted")
    newest = max((snapshot.offset for snapshot in listing.snapshots), default=0)
    if newest != next_offset:
        return ShutdownEvidence(False, active, f"no producer snapshot at the log end, {next_offset}")
    return ShutdownEvidence(True, next_offset, "")


def _unfinished_index(fs: FileSystem, files: SegmentFiles, end: int) -> str:
    """What is wrong with the indexes of a segment that ends before offset `end`, or ""."""
    segment = LogSegment(fs, files.log.parent, files.base_offset)
    for index in (segment.offset_index, segment.time_index):
        status = fs.status(index.path)
        if status is None:
            return f"{index.path.name} is missing"
        if status.size != index.size:
            return f"{index.path.name} has {status.size} bytes for {index.size} bytes of entries"
    # a crash may undo the cutting of an index, and not that of its log
    offsets, times = segment.offset_index, segment.time_index
    if offsets.entries and (int(offsets.positions[-1]) >= files.size or offsets.last_offset >= end):
        return f"{offsets.path.name} has entries beyond the end of its segment"
    if times.entries and times.last_entry[1] >= end:
        return f"{times.path.name} has entries beyond the end of its segment"
    return ""
