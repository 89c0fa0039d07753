"""Splitting a segment whose offsets do not fit 31 bits relative to its base (Kafka: LocalLog.splitOverflowedSegment).

Old brokers' cleaners could merge segments too far. Whole batches are copied into new segments; when a batch does not
fit, a new one begins at that batch's base offset. Then the swap protocol replaces the old segment. Bytes that are not a
batch stay after the last one, for recovery to judge.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import SegmentOffsetOverflowError
from seglog.format.filenames import FileState
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments
from seglog.log.swap import Replacement, replace_segments
from seglog.scan.segment_scan import Chunk
from seglog.storage.files import copy_range


def is_overflowed(segment: LogSegment) -> bool:
    """True if the segment's last offset does not fit it, so that splitting helps."""
    last = segment.read_next_offset()[0] - 1
    return last >= segment.base_offset and not segment.fits(last)


def split_overflowed(segments: LogSegments, segment: LogSegment) -> tuple[list[LogSegment], list[Path]]:
    """Replaces an overflowed segment by several; returns them and the `.deleted` files to remove."""
    modified_ms = segment.modified_ms
    new = _copied(segment)
    tail = segment.size - sum(part.size for part in new)
    if tail:
        with segment.fs.open(segment.path, "r") as source, segment.fs.open(new[-1].path, "r+") as target:
            copy_range(source, segment.size - tail, segment.size, target, new[-1].size)
            target.sync()
    for part in new:
        part.on_become_inactive()
        part.flush()
        for path in part.files[:3]:
            segment.fs.set_modified(path, modified_ms)
        part.close_files()
    return new, replace_segments(segments, [Replacement(new, [segment])])


def _copied(segment: LogSegment) -> list[LogSegment]:
    new: list[LogSegment] = []
    for chunk in segment.scan():
        first = 0
        while first < len(chunk.batches):
            if not new or not new[-1].fits(int(chunk.batches["last_offset"][first])):
                new.append(_part(segment, _first_offset(chunk, first)))
            relative = chunk.batches["last_offset"][first:] - new[-1].base_offset
            outside = np.flatnonzero((relative < 0) | (relative > layout.INT32_MAX))
            last = first + (int(outside[0]) if len(outside) else len(relative))
            if last == first:
                row = chunk.batches[first]
                raise SegmentOffsetOverflowError(
                    segment.path, new[-1].base_offset, int(row["last_offset"]), int(row["position"])
                )
            rows = chunk.batches[first:last]
            begin = int(rows["position"][0]) - chunk.position
            bytes_ = chunk.data[begin : begin + int(rows["size"].sum())] if chunk.complete else chunk.pieces()
            new[-1].append(rows, bytes_)
            first = last
    return new


def _part(segment: LogSegment, base_offset: int) -> LogSegment:
    return LogSegment.create(
        segment.fs,
        segment.directory,
        base_offset,
        index_interval_bytes=segment.index_interval_bytes,
        state=FileState.CLEANED,
        created_ms=segment.created_ms,
    )


def _first_offset(chunk: Chunk, i: int) -> int:
    """Returns the offset of batch `i`'s first record; a wrapper of magic 0 or 1 must be decoded for it."""
    row = chunk.batches[i]
    if row["magic"] < 2:
        for records in chunk.records(chunk.batches[i : i + 1]):
            if len(records):
                return int(records.rows["offset"][0])
    return int(row["base_offset"])
