"""What a share group knows of a partition's offsets: batches of snapshot and updates, put together as Kafka does."""

from __future__ import annotations

from heapq import heappop, heappush

from seglog_rescue.groups.committed_offsets import ShareBatch, ShareState

# Kafka: RecordState. A record that is acquired is not written as such.
SHARE_STATES = {0: "available", 2: "acknowledged", 3: "archiving", 4: "archived"}


def batches_of(state: ShareState) -> list[ShareBatch]:
    """Returns what is known of a share partition's offsets from its start on, in ascending order, without overlaps.

    Of an offset in several batches the highest count decides, then the highest state (Kafka:
    PersisterStateBatchCombiner, which orders the whole so).
    """
    waiting = sorted(state.written, reverse=True)
    chosen: list[ShareBatch] = []
    heap: list[tuple[int, int, int]] = []  # of those that have begun: -count, -state, last offset
    at = state.start_offset
    while waiting or heap:
        at = max(at, waiting[-1].first) if waiting and not heap else at
        while waiting and waiting[-1].first <= at:
            batch = waiting.pop()
            heappush(heap, (-batch.deliveries, -batch.state, batch.last))
        while heap and heap[0][2] < at:
            heappop(heap)
        if heap:
            count, kind, last = heap[0]
            end = min(last, waiting[-1].first - 1) if waiting else last
            _join(chosen, ShareBatch(at, end, -kind, -count))
            at = end + 1
    return chosen


def _join(batches: list[ShareBatch], batch: ShareBatch) -> None:
    """Adds a batch, or makes the last one longer if it continues that."""
    if batches and batches[-1].last + 1 == batch.first and batches[-1][2:] == batch[2:]:
        batches[-1] = batches[-1]._replace(last=batch.last)
    else:
        batches.append(batch)
