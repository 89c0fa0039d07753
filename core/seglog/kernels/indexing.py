"""Decides where index entries go: one rule for append, recovery, reindexing and the cleaner.

Follows LogSegment.append and LogSegment.recover of Kafka 4.3 (specification §5.1 and §5.2). For each batch, in order:

1. A max timestamp above the largest so far replaces it, together with the batch's last offset.
2. If more bytes than the interval lie between the last entry and this batch, the batch gets an offset entry (last
   offset, position), and a time entry (largest timestamp so far, its offset) unless that repeats a timestamp.
3. Only then are the batch's own bytes counted. So the first batch of a segment never gets an entry.
"""

from __future__ import annotations

from seglog.kernels._jit import kernel
from seglog.kernels.arrays import Batches, Int64s, WritableInt64s, WritablePairs

# Slots of the state (int64) that is passed from call to call.
BYTES_SINCE_LAST_ENTRY = 0
MAX_TIMESTAMP = 1
OFFSET_OF_MAX_TIMESTAMP = 2
OFFSET_ENTRIES = 3  # entries in the offset index, including those of this call
LAST_ENTRY_OFFSET = 4  # offset of the last one
TIME_ENTRIES = 5
LAST_TIME_ENTRY_TIMESTAMP = 6
LAST_TIME_ENTRY_OFFSET = 7
STATE_SLOTS = 8

# Columns of the entries (int64): (offset, position) in an offset index, (timestamp, offset) in a time index.
OFFSET_ENTRY_OFFSET = 0
OFFSET_ENTRY_POSITION = 1
TIME_ENTRY_TIMESTAMP = 0
TIME_ENTRY_OFFSET = 1

ENTRIES_VALID = 0
ENTRIES_OFFSET_NOT_ASCENDING = 1  # Kafka: InvalidOffsetException
ENTRIES_TIMESTAMP_NOT_ASCENDING = 2  # Kafka: IllegalStateException


@kernel
def time_entry_status(timestamp: int, offset: int, state: Int64s) -> int:
    """Returns an ENTRIES_* status: may (timestamp, offset) follow the last time entry? Kafka: TimeIndex.maybeAppend."""
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
    """Appends the entries for `batches` (layout.BATCH) and updates `state`.

    `offset_entries` and `time_entries` have at least as many rows as there are batches; their offsets are absolute.
    Returns (offset entries, time entries, batches done, ENTRIES_* status). A batch that breaks the order ends the work
    and is not counted as done.
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
            offset_entries[offsets, OFFSET_ENTRY_OFFSET] = last_offset
            offset_entries[offsets, OFFSET_ENTRY_POSITION] = row["position"]
            offsets += 1
            state[OFFSET_ENTRIES] += 1
            state[LAST_ENTRY_OFFSET] = last_offset
            status = time_entry_status(state[MAX_TIMESTAMP], state[OFFSET_OF_MAX_TIMESTAMP], state)
            if status != ENTRIES_VALID:
                return offsets, times, i, status
            if state[MAX_TIMESTAMP] > state[LAST_TIME_ENTRY_TIMESTAMP]:
                time_entries[times, TIME_ENTRY_TIMESTAMP] = state[MAX_TIMESTAMP]
                time_entries[times, TIME_ENTRY_OFFSET] = state[OFFSET_OF_MAX_TIMESTAMP]
                times += 1
                state[TIME_ENTRIES] += 1
                state[LAST_TIME_ENTRY_TIMESTAMP] = state[MAX_TIMESTAMP]
                state[LAST_TIME_ENTRY_OFFSET] = state[OFFSET_OF_MAX_TIMESTAMP]
            state[BYTES_SINCE_LAST_ENTRY] = 0
        state[BYTES_SINCE_LAST_ENTRY] += row["size"]
    return offsets, times, len(batches), ENTRIES_VALID
