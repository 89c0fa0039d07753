"""Which neighbouring segments become one (Kafka: Cleaner.groupSegmentsBySize).

Greedy from the left, by the sizes before cleaning. The next segment joins when the sum of the logs stays within
`segment.bytes`, the sum of each kind of index within `segment.index.bytes`, and its last possible offset, relative to
the group's base, within 31 bits; an empty segment always fits the last rule.
"""

from __future__ import annotations

from collections.abc import Sequence

from seglog import layout
from seglog.log.segment import LogSegment


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
        time_bytes += segment.time_index.size
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
            log_bytes, offset_bytes, time_bytes = segment.size, segment.offset_index.size, segment.time_index.size
    return tuple(tuple(group) for group in groups)
