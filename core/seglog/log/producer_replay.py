"""Bringing the producer state of a log up to an offset (Kafka: UnifiedLog.rebuildProducerState).

1. After a clean stop without any snapshot the state is taken as empty, with empty snapshots at the bases of the last
   two segments and at the end: the log was written before snapshots existed.
2. Otherwise the newest usable snapshot is loaded, and what follows it is replayed from the segments. Snapshots are
   taken on the way at the bases of the last two segments, and at the end.
"""

from __future__ import annotations

from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    last_offset: int,
    now_ms: int,
    *,
    reload_from_clean_shutdown: bool,
) -> None:
    """Makes `producers` the state at `last_offset`; producers silent for too long at `now_ms` are left out."""
    at = [segment.base_offset for segment in segments.snapshot()[-2:]]
    if producers.latest_snapshot_offset is None and reload_from_clean_shutdown:
        for offset in [*at, last_offset]:
            producers.end_offset = offset
            producers.take_snapshot()
        return
    was_empty = producers.is_empty and producers.end_offset >= last_offset
    producers.truncate_and_reload(log_start_offset, last_offset, now_ms)
    if last_offset > producers.end_offset and not was_empty:
        last_segment = segments.floor(last_offset)
        for segment in segments.between(producers.end_offset, last_offset):
            producers.end_offset = max(segment.base_offset, producers.end_offset, log_start_offset)
            if segment.base_offset in at:
                producers.take_snapshot()
            _replay_segment(producers, segment, last_offset if segment is last_segment else None)
    producers.end_offset = last_offset
    producers.take_snapshot()


def _replay_segment(producers: ProducerStateManager, segment: LogSegment, last_offset: int | None) -> None:
    first = segment.translate_offset(producers.end_offset)
    if first is None:
        return
    stop = None if last_offset is None else segment.translate_offset(last_offset, first.position)
    for chunk in segment.scan(first.position, None if stop is None else stop.position):
        producers.replay(chunk.data, chunk.batches, chunk.position, segment.path)
