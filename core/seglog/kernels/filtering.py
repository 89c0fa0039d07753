"""Decides which records of v2 batches survive, and writes the batches without the others.

Kafka: MemoryRecords.filterTo, Cleaner. For each batch, in order, with flags that the caller has computed from
transactions, producers and tombstones:

1. DELETE or DEAD: the batch is dropped unread; only the ordinals of its records are counted.
2. Otherwise its records are read. A record is dropped if its transaction was aborted, it has no key, it is superseded,
   or it is an expired tombstone; all others are kept. For a record at or after the first dirty offset, the survivors'
   bits tell whether it is superseded; for an older one, the map.
3. All kept and nothing to stamp: the batch's bytes stay as they are.
4. Some kept: a new batch. Its base timestamp is the delete horizon, or the first kept record's timestamp. Records are
   copied; only where a timestamp delta changes are length and delta written anew.
5. None kept: no output, or with RETAIN_EMPTY a header without records.

Rebuilt batches of a compressed source are output as bare payloads, which the caller compresses and seals.
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
from seglog.kernels.bits import any_bit, get_bit
from seglog.kernels.filter_slots import (
    BATCHES_DISCARDED,
    BATCHES_READ,
    CLEAN_BITS,
    CLEAN_ORDINAL,
    CONTROL_RECORDS_KEPT,
    DEAD,
    DELETE,
    DIRTY,
    DIRTY_ORDINAL,
    DISCARD,
    EXPIRED,
    FATE_MASK,
    FIRST_DIRTY,
    HASH_MASK,
    KEEP_ALL,
    LAST_KEPT,
    MAP_UNASKED,
    RECORDS_DISCARDED,
    RECORDS_READ,
    RECORDS_SUPERSEDED,
    RECORDS_WITHOUT_KEY,
    RECORDS_WRITTEN,
    RETAIN_EMPTY,
    SLOTS,
    TOMBSTONES_EXPIRED,
    TOMBSTONES_KEPT,
)
from seglog.kernels.offset_map import prefetch_slots
from seglog.kernels.rebuilding import MOST_GROWTH, keep_row, write_batch
from seglog.kernels.records import COUNT_INVALID, LEAST_RECORD_SIZE, LENGTH_INVALID, RECORDS_VALID, TRAILING_BYTES
from seglog.kernels.spans import read_record
from seglog.kernels.superseding import is_superseded
from seglog.kernels.varint import read_varint

# What `filter_batches` returns, unless it is the status of a bad record.
FILTER_COMPLETE = 0
FILTER_FULL = -1  # no room in `out` for the next batch

# The data that tells which record of a key is the latest: survivors, superseded, slots, store, seeds, settings.
Place: TypeAlias = tuple[Bytes, Bytes, Bytes, Bytes, Int64s, Int64s]

_CONTROL = layout.CONTROL_MASK
_OVERHEAD = layout.RECORD_BATCH_OVERHEAD


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
    """True if no later record has the same key."""
    survivors, superseded, slots, store, seeds, settings = place
    if flags & KEEP_ALL != 0 or offset == settings[LAST_KEPT]:
        return True
    if offset >= settings[FIRST_DIRTY]:
        return flags & DIRTY == 0 or get_bit(survivors, ordinals[DIRTY_ORDINAL]) != 0
    if settings[CLEAN_BITS] != 0:
        # both ordinals: the first dirty batch may begin with clean records
        return get_bit(superseded, ordinals[CLEAN_ORDINAL] + ordinals[DIRTY_ORDINAL]) == 0
    if settings[SLOTS] == 0:
        return True
    return not is_superseded(arena, key_position, key_size, slots, store, seeds, settings)


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
    """Puts the records to keep into `kept`; returns (status, records kept, tombstones among them)."""
    _, _, _, _, _, settings = place
    count = int(row["count"])
    base_offset = int(row["base_offset"])
    control = int(row["attributes"]) & _CONTROL != 0
    indexed = flags & FATE_MASK == DIRTY and base_offset >= settings[FIRST_DIRTY]
    n = 0
    tombstones = 0
    p = start
    for _ in range(count):
        found = read_record(arena, p, end)
        status, stop, _, _, offset_delta, key_position, key_size, value_size, _ = found
        if status != RECORDS_VALID:
            return status, 0, 0
        keep = False
        if flags & DISCARD != 0:
            counters[RECORDS_DISCARDED] += 1
        elif control:
            keep = True
            counters[CONTROL_RECORDS_KEPT] += 1
        elif key_size < 0:
            # the index has already counted the keyless records that it read
            counters[RECORDS_SUPERSEDED if indexed else RECORDS_WITHOUT_KEY] += 1
        elif not _is_latest(arena, key_position, key_size, base_offset + offset_delta, flags, ordinals, place):
            counters[RECORDS_SUPERSEDED] += 1
        elif value_size < 0 and flags & EXPIRED != 0:
            counters[TOMBSTONES_EXPIRED] += 1
        else:
            keep = True
        if keep:
            keep_row(kept, n, p)
            n += 1
            if value_size < 0:
                tombstones += 1
        if not control:
            ordinals[DIRTY_ORDINAL if flags & DIRTY != 0 else CLEAN_ORDINAL] += 1
        p = stop
    if count > 0 and p != end:
        return TRAILING_BYTES, 0, 0
    counters[RECORDS_READ] += count
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
    """Puts the records to keep into `kept`, of a batch all of whose records were indexed, so that their bits decide;
    returns (status, records kept, tombstones among them).

    The index has already checked these records, so of a dropped one only the length is read again.
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
            status, _, _, _, _, _, _, value_size, _ = found
            if status != RECORDS_VALID:
                return status, 0, 0
            if value_size < 0 and expired:
                dropped += 1
            else:
                keep_row(kept, n, p)
                n += 1
                if value_size < 0:
                    tombstones += 1
        p = body + length
    counters[RECORDS_READ] += count
    counters[RECORDS_SUPERSEDED] += superseded
    counters[TOMBSTONES_EXPIRED] += dropped
    return RECORDS_VALID, n, tombstones


@inlined
def _bits_decide(row: BatchRow, flags: int, settings: Int64s) -> bool:
    """True if the survivors' bits alone decide on every record of a batch."""
    base_offset = int(row["base_offset"])
    return (
        flags & FATE_MASK == DIRTY
        and int(row["attributes"]) & _CONTROL == 0
        and base_offset >= settings[FIRST_DIRTY]
        and not (base_offset <= settings[LAST_KEPT] and settings[LAST_KEPT] <= int(row["last_offset"]))
    )


@kernel
def flag_dead_batches(batches: Batches, ordinal: int, place: Place, flags: WritableBytes) -> None:
    """Sets DEAD on the v2 batches of which neither a record nor the header is to stay.

    `ordinal` is that of the first dirty record in them. Reads no byte of a batch.
    """
    survivors, _, _, _, _, settings = place
    for i in range(len(batches)):
        row = batches[i]
        flag = int(flags[i])
        count = int(row["count"])
        if count <= 0 or flag & MAP_UNASKED != DIRTY or int(row["attributes"]) & _CONTROL != 0:
            continue
        known = ordinal + count <= 8 * len(survivors)
        decided = known and flag & RETAIN_EMPTY == 0 and _bits_decide(row, flag, settings)
        if decided and not any_bit(survivors, ordinal, count):
            flags[i] |= DEAD
        ordinal += count


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
    """Filters the v2 batches from `first` on into `out`, with one row of `targets` (layout.BATCH) per batch written.

    `data[0]` lies at `file_position`; `arena[starts[i]:ends[i]]` is a payload. With IN_PLACE, `out` is the arena, which
    holds a single batch. `kept` needs KEPT_ROW_BYTES for each record of the largest batch. For each row, `sources` is
    the batch it came from and `actions` what was done with it. Returns (batches done, bytes in `out`, rows, FILTER_* or
    the status of a bad record in the first batch not done).
    """
    survivors, _, slots, _, seeds, settings = place
    at = rows = 0
    for i in range(first, len(batches)):
        row = batches[i]
        flag = int(flags[i])
        count = int(row["count"])
        control = int(row["attributes"]) & _CONTROL != 0
        if flag & DELETE != 0:
            counters[BATCHES_READ] += 1
            counters[BATCHES_DISCARDED] += 1
            counters[RECORDS_DISCARDED] += max(count, 0)
            if not control and flag & KEEP_ALL == 0:
                ordinals[DIRTY_ORDINAL if flag & DIRTY != 0 else CLEAN_ORDINAL] += max(count, 0)
            continue
        if flag & DEAD != 0:
            counters[BATCHES_READ] += 1
            counters[RECORDS_READ] += count
            counters[RECORDS_SUPERSEDED] += count
            ordinals[DIRTY_ORDINAL] += count
            continue
        if count < 0 or count * LEAST_RECORD_SIZE > ends[i] - starts[i]:
            return i, at, rows, COUNT_INVALID
        most = _OVERHEAD + max(int(row["size"]), ends[i] - starts[i]) + count * MOST_GROWTH
        if most > len(out) - at:
            return i, at, rows, FILTER_FULL
        if flag & MAP_UNASKED == 0 and not control and settings[CLEAN_BITS] == 0 and settings[SLOTS] != 0:
            prefetch_slots(arena, starts[i], ends[i], count, slots, settings[SLOTS], seeds, settings[HASH_MASK])
        dirty, clean = ordinals[DIRTY_ORDINAL], ordinals[CLEAN_ORDINAL]
        if _bits_decide(row, flag, settings):
            status, n, tombstones = _choose_indexed(
                arena, starts[i], ends[i], row, flag & EXPIRED != 0, dirty, survivors, kept, counters
            )
            ordinals[DIRTY_ORDINAL] += count
        else:
            status, n, tombstones = _choose(arena, starts[i], ends[i], row, flag, ordinals, place, kept, counters)
        if status != RECORDS_VALID:
            return i, at, rows, status
        if flag & KEEP_ALL != 0:
            ordinals[DIRTY_ORDINAL], ordinals[CLEAN_ORDINAL] = dirty, clean
        counters[BATCHES_READ] += 1
        if n == 0 and flag & RETAIN_EMPTY == 0:
            continue
        position = int(row["position"]) - file_position
        at, actions[rows] = write_batch(
            data, position, arena, starts[i], row, flag, kept, n, tombstones, settings, out, at, targets[rows], counters
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
    """Decides which messages of magic 0 and 1 in `rows` (layout.RECORD) survive; fills `keep` (uint8)."""
    flags = DIRTY if dirty else 0
    for i in range(len(rows)):
        row = rows[i]
        key_size = int(row["key_size"])
        keep[i] = 0
        counters[RECORDS_READ] += 1
        if key_size < 0:
            counters[RECORDS_WITHOUT_KEY] += 1
        elif not _is_latest(
            arena,
            int(row["key_position"]),
            key_size,
            row["offset"],
            flags,
            ordinals,
            place,
        ):
            counters[RECORDS_SUPERSEDED] += 1
        elif row["value_size"] < 0 and expired:
            counters[TOMBSTONES_EXPIRED] += 1
        else:
            keep[i] = 1
            counters[RECORDS_WRITTEN] += 1
            if row["value_size"] < 0:
                counters[TOMBSTONES_KEPT] += 1
        ordinals[DIRTY_ORDINAL if dirty else CLEAN_ORDINAL] += 1


@kernel
def flag_last_batches(
    batches: Batches, producer_ids: Int64s, offsets: Int64s, epochs: Int64s, flags: WritableBytes
) -> None:
    """Sets RETAIN_EMPTY on the last batch of each active producer.

    `producer_ids` ascend; `offsets` are the last offsets of their last data batches, -1 if none is known. Then the
    flag goes to the control batches of the producer's current epoch.
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
            flags[i] |= RETAIN_EMPTY
