"""Which neighbouring segments become one (Kafka: Cleaner.groupSegmentsBySize).

Greedy from the left, by the sizes before cleaning. The next segment joins when the sum of the logs stays within
`segment.bytes`, the sum of each kind of index within `segment.index.bytes`, and its last possible offset, relative to
the group's base, within 31 bits; an empty segment always fits the last rule.

What a group leaves may still be larger than a segment can be (`SegmentBounds`), as messages of magic 0 and 1 grow when
they become batches; it then becomes several segments (`output.GroupOutput`). Kafka's round fails there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seglog import layout
from seglog.kernels import indexing
from seglog.log.segment import LogSegment


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """What one segment can hold: bytes of its `.log` (FileRecords counts them in 31 bits), bytes of each index
    (segment.index.bytes), offsets relative to its base in 31 bits."""

    log_bytes: int
    index_bytes: int
    index_interval_bytes: int

    def fitting(self, batches: np.ndarray, base_offset: int, size: int, state: np.ndarray) -> int:
        """How many of `batches` (layout.BATCH, ascending) a segment of `size` bytes still takes, from the first on.

        `state` is that of its index rule (`kernels.indexing`), and stays as it is.
        """
        by_bytes = np.searchsorted(np.cumsum(batches["size"], dtype=np.int64), self.log_bytes - size, side="right")
        by_offset = np.searchsorted(batches["last_offset"] - base_offset, layout.INT32_MAX, side="right")
        count = int(min(by_bytes, by_offset))
        most_entries = max(int(state[indexing.OFFSET_ENTRIES]), int(state[indexing.TIME_ENTRIES])) + count
        if most_entries < self.index_bytes // layout.TIME_INDEX_ENTRY.itemsize:  # its entries are the larger ones
            return count
        return self._indexable(batches[:count], state.copy())

    def _indexable(self, batches: np.ndarray, state: np.ndarray) -> int:
        """Kafka: OffsetIndex.append and TimeIndex.maybeAppend refuse a full index; a time index keeps a last entry."""
        most_offsets = self.index_bytes // layout.OFFSET_INDEX_ENTRY.itemsize
        most_times = self.index_bytes // layout.TIME_INDEX_ENTRY.itemsize - 1
        for i in range(len(batches)):
            full = state[indexing.OFFSET_ENTRIES] >= most_offsets or state[indexing.TIME_ENTRIES] >= most_times
            if full and state[indexing.BYTES_SINCE_LAST_ENTRY] > self.index_interval_bytes:
                return i
            indexing.index_entries_for(batches[i : i + 1], self.index_interval_bytes, state)
        return len(batches)


def group_segments(
    segments: Sequence[LogSegment], segment_bytes: int, index_bytes: int, first_uncleanable_offset: int
) -> tuple[tuple[LogSegment, ...], ...]:
    """Groups of `segments`, in order; every segment is in exactly one.

    `index_bytes` is segment.index.bytes; `first_uncleanable_offset` bounds the last segment's offsets.
    """
    groups: list[list[LogSegment]] = []
    log_bytes = offset_bytes = time_bytes = 0
    for i, segment in enumerate(segments):
        log_bytes += segment.size
        offset_bytes += segment.offset_index.size
        time_bytes += segment.closed_time_index_size
        behind = segments[i + 1].base_offset if i + 1 < len(segments) else first_uncleanable_offset
        fits = (
            bool(groups)
            and log_bytes <= segment_bytes
            and offset_bytes <= index_bytes
            and time_bytes <= index_bytes
            and (segment.size == 0 or behind - 1 - groups[-1][0].base_offset <= layout.INT32_MAX)
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log_bytes, offset_bytes = segment.size, segment.offset_index.size
            time_bytes = segment.closed_time_index_size
    return tuple(tuple(group) for group in groups)
