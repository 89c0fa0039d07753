"""Where index entries go: the one rule that append, recovery, reindexing and the cleaner share.

Mirrors LogSegment.append and LogSegment.recover of Kafka 4.3 (specification §5.1 and §5.2). For each batch, in
order:

1. A maximum timestamp above the largest so far replaces it, with the batch's last offset.
2. When more bytes than the interval lie between the last entry and this batch, an offset entry (last offset,
   position) is added, and a time entry (largest timestamp so far, its offset) unless it repeats a timestamp.
3. Only then do the batch's own bytes count: the first batch of a segment never gets an entry.
"""

from __future__ import annotations

from seglog.kernels._jit import kernel
from seglog.kernels.arrays import Batches, Int64s, WritableInt64s, WritablePairs

# Slots of the state (int64) that goes from one call to the next.
BYTES_SINCE_LAST_ENTRY = 0
MAX_TIMESTAMP = 1
OFFSET_OF_MAX_TIMESTAMP = 2
OFFSET_ENTRIES = 3  # entries in the offset index, those of this call included
LAST_ENTRY_OFFSET = 4  # offset of its last entry
TIME_ENTRIES = 5
LAST_TIME_ENTRY_TIMESTAMP = 6
LAST_TIME_ENTRY_OFFSET = 7
STATE_SLOTS = 8

ENTRIES_VALID = 0
ENTRIES_OFFSET_NOT_ASCENDING = 1  # Kafka: InvalidOffsetException
ENTRIES_TIMESTAMP_NOT_ASCENDING = 2  # Kafka: IllegalStateException


@kernel
def time_entry_status(timestamp: int, offset: int, state: Int64s) -> int:
    """ENTRIES_* status: whether (timestamp, offset) may follow the last time entry (Kafka: TimeIndex.maybeAppend)."""
    if state[TIME_ENTRIES] > 0 and offset < state[LAST_TIME_ENTRY_OFFSET]:
        return ENTRIES_OFFSET_NOT_ASCENDING
    if state[TIME_ENTRIES] > 0 and timestamp < state[LAST_TIME_ENTRY_TIMESTAMP]:
        return ENTRIES_TIMESTAMP_NOT_ASCENDING
    return ENTRIES_VALID


@kernel
def fill_index_entries(
    batches: Batches,
    index_interval_bytes: int,
    state: WritableInt64s,
    offset_entries: WritablePairs,
    time_entries: WritablePairs,
) -> tuple[int, int, int, int]:
    """Appends the entries that `batches` (layout.BATCH) call for and updates `state`.

    `offset_entries` and `time_entries` are int64 arrays of shape (rows, 2) with at least as many rows as
    there are batches: (offset, position) and (timestamp, offset), offsets absolute. Returns (offset entries,
    time entries, batches done, ENTRIES_* status); a batch that breaks the order ends the work and is not
    counted as done.
    """
    offsets = 0
    times = 0
    for i in range(len(batches)):
        row = batches[i]
        last_offset = row["last_offset"]
        if row["max_timestamp"] > state[MAX_TIMESTAMP]:
            state[MAX_TIMESTAMP] = row["max_timestamp"]
            state[OFFSET_OF_MAX_TIMESTAMP] = last_offset
        if state[BYTES_SINCE_LAST_ENTRY] > index_interval_bytes:
            if state[OFFSET_ENTRIES] > 0 and last_offset <= state[LAST_ENTRY_OFFSET]:
                return offsets, times, i, ENTRIES_OFFSET_NOT_ASCENDING
            offset_entries[offsets, 0] = last_offset
            offset_entries[offsets, 1] = row["position"]
            offsets += 1
            state[OFFSET_ENTRIES] += 1
            state[LAST_ENTRY_OFFSET] = last_offset
            status = time_entry_status(state[MAX_TIMESTAMP], state[OFFSET_OF_MAX_TIMESTAMP], state)
            if status != ENTRIES_VALID:
                return offsets, times, i, status
            if state[MAX_TIMESTAMP] > state[LAST_TIME_ENTRY_TIMESTAMP]:
                time_entries[times, 0] = state[MAX_TIMESTAMP]
                time_entries[times, 1] = state[OFFSET_OF_MAX_TIMESTAMP]
                times += 1
                state[TIME_ENTRIES] += 1
                state[LAST_TIME_ENTRY_TIMESTAMP] = state[MAX_TIMESTAMP]
                state[LAST_TIME_ENTRY_OFFSET] = state[OFFSET_OF_MAX_TIMESTAMP]
            state[BYTES_SINCE_LAST_ENTRY] = 0
        state[BYTES_SINCE_LAST_ENTRY] += row["size"]
    return offsets, times, len(batches), ENTRIES_VALID
