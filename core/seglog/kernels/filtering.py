"""Which records of a v2 batch survive, and the batch without the others (Kafka: MemoryRecords.filterTo, Cleaner).

For each batch, in order, under flags that the caller has worked out (transactions, producers, tombstones):

1. DELETE: the batch goes unread; only the ordinals of its records are counted.
2. Otherwise its records are read. Each is dropped (its transaction was aborted, no key, superseded, an expired
   tombstone) or kept. Records at or behind the first dirty offset ask the survivors' bits, older ones the map.
3. All kept and nothing to stamp: the batch stays as its bytes are.
4. Some kept: a new batch. Base timestamp = delete horizon, or the first kept record's timestamp; each record's bytes
   are copied, and only where its timestamp delta changes are length and delta written anew.
5. None kept: nothing, or under RETAIN_EMPTY a header without records.

Rebuilt batches of a compressed source come out as bare payloads, which the caller compresses and seals.
"""

from __future__ import annotations

from typing import TypeAlias

from seglog import layout
from seglog.kernels._jit import inlined, kernel
from seglog.kernels.arrays import (
    Batches,
    BatchRow,
    Bytes,
    Int64s,
    Records,
    WritableBatches,
    WritableBytes,
    WritableInt8s,
    WritableInt64s,
)
from seglog.kernels.bits import get_bit
from seglog.kernels.hashing import hash_key
from seglog.kernels.offset_map import find_key, prefetch_slots
from seglog.kernels.rebuilding import keep_row, write_batch
from seglog.kernels.records import COUNT_INVALID, LEAST_RECORD_SIZE, LENGTH_INVALID, RECORDS_VALID, TRAILING_BYTES
from seglog.kernels.spans import read_record
from seglog.kernels.varint import read_varint

# Flags of a batch.
DISCARD = 1  # none of its records is kept
RETAIN_EMPTY = 2  # without records it stays as a header
DELETE = 4  # DISCARD without RETAIN_EMPTY: not even read
STAMP_MARKER = 8  # a marker whose transaction has no batch left: gets a horizon
DIRTY = 16  # its last offset is at or behind the first dirty offset, and its records have ordinals
EXPIRED = 32  # its tombstones are not protected any more
KEEP_ALL = 64  # the index passed over it as aborted: no ordinals, and nothing is dropped

# What `filter_batches` returns besides a record status.
FILTER_COMPLETE = 0
FILTER_FULL = -1  # no room in `out` for the next batch

# Counters (int64).
RECORDS_READ = 0
RECORDS_WRITTEN = 1
BATCHES_READ = 2
BATCHES_DISCARDED = 3  # DELETE
RECORDS_DISCARDED = 4  # of aborted transactions, and markers that went, also of unread batches
RECORDS_WITHOUT_KEY = 5
RECORDS_SUPERSEDED = 6  # with those without a key in batches that are dirty as a whole: OffsetMap.without_key
TOMBSTONES_EXPIRED = 7
TOMBSTONES_KEPT = 8
BATCHES_VERBATIM = 9
BATCHES_REBUILT = 10
BATCHES_EMPTIED = 11
HORIZONS_SET = 12
CONTROL_RECORDS_KEPT = 13
COUNTER_SLOTS = 14

# Settings (int64).
FIRST_DIRTY = 0
NEW_HORIZON = 1  # now + delete.retention.ms
SLOTS = 2  # of the map; 0: no map
KEY_OVERHEAD = 3
HASH_MASK = 4
CLEAN_BITS = 5  # 1: `superseded` answers for records in front of the first dirty offset, not the map
COMPRESSED = 6  # 1: rebuilt batches come out as payloads, verbatim ones as nothing
LAST_KEPT = 7  # offset of a record that stays whatever the strategy says, or -1
SETTINGS_SLOTS = 8

# What tells which record is the latest: survivors, superseded, slots, store, seeds, settings.
Place: TypeAlias = tuple[Bytes, Bytes, Bytes, Bytes, Int64s, Int64s]

# Ordinals (int64): next among the records indexed, next among those in front of them.
DIRTY_ORDINAL = 0
CLEAN_ORDINAL = 1

_CONTROL = layout.CONTROL_MASK
_OVERHEAD = layout.RECORD_BATCH_OVERHEAD
_GROWTH = 12  # most bytes that a new timestamp delta and the longer length add to a record


@inlined
def _is_latest(
    arena: Bytes,
    key_position: int,
    key_size: int,
    offset: int,
    flags: int,
    ordinals: Int64s,
    place: Place,
) -> bool:
    """Whether no record that survives has the same key."""
    survivors, superseded, slots, store, seeds, settings = place
    if flags & 64 != 0 or offset == settings[7]:
        return True
    if offset >= settings[0]:
        return flags & 16 == 0 or get_bit(survivors, ordinals[0]) != 0
    if settings[5] != 0:
        return get_bit(superseded, ordinals[1] + ordinals[0]) == 0  # the first dirty batch may begin clean
    if settings[2] == 0:
        return True
    key_hash = hash_key(arena, key_position, key_size, seeds) & settings[4]
    _, word = find_key(slots, settings[2], store, settings[3], arena, key_position, key_size, key_hash)
    return word == 0


@kernel
def _choose(
    arena: Bytes,
    start: int,
    end: int,
    row: BatchRow,
    flags: int,
    ordinals: WritableInt64s,
    place: Place,
    kept: WritableBytes,
    counters: WritableInt64s,
) -> tuple[int, int, int]:
    """Puts the records to keep into `kept`; returns (status, how many, how many of them without a value)."""
    settings = place[5]
    count = int(row["count"])
    base_offset = int(row["base_offset"])
    control = int(row["attributes"]) & _CONTROL != 0
    indexed = flags & 81 == 16 and base_offset >= settings[0]
    n = 0
    tombstones = 0
    p = start
    for _ in range(count):
        found = read_record(arena, p, end)
        status, stop, timestamp_delta, behind_delta, offset_delta, key_position, key_size, value_size, _ = found
        if status != RECORDS_VALID:
            return status, 0, 0
        keep = False
        if flags & 1 != 0:
            counters[4] += 1
        elif control:
            keep = True
            counters[13] += 1
        elif key_size < 0:
            counters[6 if indexed else 5] += 1  # the index has counted those without a key already
        elif not _is_latest(arena, key_position, key_size, base_offset + offset_delta, flags, ordinals, place):
            counters[6] += 1
        elif value_size < 0 and flags & 32 != 0:
            counters[7] += 1
        else:
            keep = True
        if keep:
            keep_row(kept, n, p, stop, timestamp_delta, behind_delta)
            n += 1
            if value_size < 0:
                tombstones += 1
        if not control:
            ordinals[0 if flags & 16 != 0 else 1] += 1
        p = stop
    if count > 0 and p != end:
        return TRAILING_BYTES, 0, 0
    counters[0] += count
    return RECORDS_VALID, n, tombstones


@kernel
def _choose_indexed(
    arena: Bytes,
    start: int,
    end: int,
    row: BatchRow,
    expired: bool,
    ordinal: int,
    survivors: Bytes,
    kept: WritableBytes,
    counters: WritableInt64s,
) -> tuple[int, int, int]:
    """The same for a batch whose every record has been indexed, so that its bits say all there is to say.

    What the index has read is known to be sound: of a record that goes only the length is read again.
    """
    count = int(row["count"])
    n = 0
    tombstones = 0
    superseded = 0
    dropped = 0
    p = start
    for k in range(count):
        length, body = read_varint(arena, p, end)
        if body < 0 or length < 0 or length > end - body:
            return LENGTH_INVALID, 0, 0
        if get_bit(survivors, ordinal + k) == 0:
            superseded += 1
        else:
            found = read_record(arena, p, end)
            status, stop, timestamp_delta, behind_delta, _, _, _, value_size, _ = found
            if status != RECORDS_VALID:
                return status, 0, 0
            if value_size < 0 and expired:
                dropped += 1
            else:
                keep_row(kept, n, p, stop, timestamp_delta, behind_delta)
                n += 1
                if value_size < 0:
                    tombstones += 1
        p = body + length
    counters[0] += count
    counters[6] += superseded
    counters[7] += dropped
    return RECORDS_VALID, n, tombstones


@kernel
def filter_batches(
    data: Bytes,
    file_position: int,
    arena: Bytes,
    starts: Int64s,
    ends: Int64s,
    batches: Batches,
    first: int,
    flags: Bytes,
    ordinals: WritableInt64s,
    place: Place,
    kept: WritableBytes,
    out: WritableBytes,
    targets: WritableBatches,
    sources: WritableInt64s,
    actions: WritableInt8s,
    counters: WritableInt64s,
) -> tuple[int, int, int, int]:
    """Filters v2 batches from `first` on into `out` (uint8), one row of `targets` (layout.BATCH) a batch written.

    `data[0]` is at `file_position`; `arena[starts[i]:ends[i]]` is a payload. `kept` needs KEPT_ROW_BYTES for each
    record of the largest batch. `sources` and `actions` tell of each row which batch it was and what was done.
    Returns (batches done, bytes in `out`, rows, FILTER_* or the status of a bad record in batch `done`).
    """
    survivors, _, slots, _, seeds, settings = place
    at = rows = 0
    for i in range(first, len(batches)):
        row = batches[i]
        flag = int(flags[i])
        count = int(row["count"])
        control = int(row["attributes"]) & _CONTROL != 0
        if flag & 4 != 0:
            counters[2] += 1
            counters[3] += 1
            counters[4] += max(count, 0)
            if not control and flag & 64 == 0:
                ordinals[0 if flag & 16 != 0 else 1] += max(count, 0)
            continue
        if count < 0 or count * LEAST_RECORD_SIZE > ends[i] - starts[i]:
            return i, at, rows, COUNT_INVALID
        most = _OVERHEAD + max(int(row["size"]), ends[i] - starts[i]) + count * _GROWTH
        if most > len(out) - at:
            return i, at, rows, FILTER_FULL
        if flag & 80 == 0 and not control and settings[5] == 0 and settings[2] != 0:
            prefetch_slots(arena, starts[i], ends[i], count, slots, settings[2], seeds, settings[4])
        dirty, clean = ordinals[0], ordinals[1]
        holds_last_kept = int(row["base_offset"]) <= settings[7] and settings[7] <= int(row["last_offset"])
        if flag & 81 == 16 and not control and int(row["base_offset"]) >= settings[0] and not holds_last_kept:
            status, n, tombstones = _choose_indexed(
                arena, starts[i], ends[i], row, flag & 32 != 0, dirty, survivors, kept, counters
            )
            ordinals[0] += count
        else:
            status, n, tombstones = _choose(arena, starts[i], ends[i], row, flag, ordinals, place, kept, counters)
        if status != RECORDS_VALID:
            return i, at, rows, status
        if flag & 64 != 0:
            ordinals[0], ordinals[1] = dirty, clean
        counters[2] += 1
        if n == 0 and flag & 2 == 0:
            continue
        position = int(row["position"]) - file_position
        at, actions[rows] = write_batch(
            data, position, arena, row, flag, kept, n, tombstones, settings, out, at, targets[rows], counters
        )
        sources[rows] = i
        rows += 1
    return len(batches), at, rows, FILTER_COMPLETE


@kernel
def choose_rows(
    arena: Bytes,
    rows: Records,
    dirty: bool,
    expired: bool,
    ordinals: WritableInt64s,
    place: Place,
    keep: WritableBytes,
    counters: WritableInt64s,
) -> None:
    """The same choice for the messages of magic 0 and 1 in `rows` (layout.RECORD): fills `keep` (uint8)."""
    flags = 16 if dirty else 0
    for i in range(len(rows)):
        row = rows[i]
        key_size = int(row["key_size"])
        keep[i] = 0
        counters[0] += 1
        if key_size < 0:
            counters[5] += 1
        elif not _is_latest(
            arena,
            int(row["key_position"]),
            key_size,
            row["offset"],
            flags,
            ordinals,
            place,
        ):
            counters[6] += 1
        elif row["value_size"] < 0 and expired:
            counters[7] += 1
        else:
            keep[i] = 1
            counters[1] += 1
            if row["value_size"] < 0:
                counters[8] += 1
        ordinals[0 if dirty else 1] += 1


@kernel
def flag_last_batches(
    batches: Batches, producer_ids: Int64s, offsets: Int64s, epochs: Int64s, flags: WritableBytes
) -> None:
    """Sets RETAIN_EMPTY on the last batch of each active producer (ascending `producer_ids`; offset -1: none known).

    The last data batch where one is known, else the control batches of the producer's current epoch.
    """
    for i in range(len(batches)):
        row = batches[i]
        producer_id = int(row["producer_id"])
        if producer_id < 0:
            continue
        low = 0
        high = len(producer_ids)
        while low < high:
            middle = (low + high) >> 1
            if producer_ids[middle] < producer_id:
                low = middle + 1
            else:
                high = middle
        if low == len(producer_ids) or producer_ids[low] != producer_id:
            continue
        if offsets[low] >= 0:
            last = row["last_offset"] == offsets[low]
        else:
            last = int(row["attributes"]) & _CONTROL != 0 and row["producer_epoch"] == epochs[low]
        if last:
            flags[i] |= 2
