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

import numpy as np

from seglog import layout
from seglog.kernels._jit import (
    copy_bytes,
    inlined,
    kernel,
    load_int64,
    multiply_high,
    prefetch,
    store_byte,
    store_int64,
)
from seglog.kernels.encode import seal_batch
from seglog.kernels.hashing import hash_key
from seglog.kernels.offset_map import SLOT_BYTES, find_key, get_bit, set_bit
from seglog.kernels.records import COUNT_INVALID, LEAST_RECORD_SIZE, LENGTH_INVALID, RECORDS_VALID, TRAILING_BYTES
from seglog.kernels.spans import read_record
from seglog.kernels.varint import read_varint, varint_size, write_varint

# Flags of a batch.
DISCARD = 1  # none of its records is kept
RETAIN_EMPTY = 2  # without records it stays as a header
DELETE = 4  # DISCARD without RETAIN_EMPTY: not even read
STAMP_MARKER = 8  # a marker whose transaction has no batch left: gets a horizon
DIRTY = 16  # its last offset is at or behind the first dirty offset, and its records have ordinals
EXPIRED = 32  # its tombstones are not protected any more
KEEP_ALL = 64  # the index passed over it as aborted: no ordinals, and nothing is dropped

# What became of a batch in the output (column of the caller's `actions`).
VERBATIM = 0
EMPTY = 1
REBUILT = 2

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

# Ordinals (int64): next among the records indexed, next among those in front of them.
DIRTY_ORDINAL = 0
CLEAN_ORDINAL = 1

KEPT_ROW_BYTES = 32  # start, end, timestamp delta, position behind the delta

_CONTROL = layout.CONTROL_MASK
_APPEND_TIME = layout.TIMESTAMP_TYPE_MASK
_HORIZON = layout.DELETE_HORIZON_MASK
_EMPTY_ATTRIBUTES = layout.TIMESTAMP_TYPE_MASK | layout.TRANSACTIONAL_MASK | layout.CONTROL_MASK
_REBUILT_ATTRIBUTES = _EMPTY_ATTRIBUTES | layout.CODEC_MASK
_OVERHEAD = layout.RECORD_BATCH_OVERHEAD
_GROWTH = 12  # most bytes that a new timestamp delta and the longer length add to a record


@kernel
def _prefetch_slots(
    arena: np.ndarray, p: int, end: int, count: int, slots: np.ndarray, settings: np.ndarray, seeds: np.ndarray
) -> None:
    """Asks for the slots of a batch's keys; a broken record ends it in silence, as the filter will meet it again."""
    for _ in range(count):
        status, stop, _, _, _, key_position, key_size, _, _ = read_record(arena, p, end)
        if status != RECORDS_VALID:
            return
        if key_size >= 0:
            key_hash = hash_key(arena, key_position, key_size, seeds) & settings[4]
            prefetch(slots, SLOT_BYTES * multiply_high(key_hash, settings[2]))
        p = stop


@inlined
def _is_latest(
    arena: np.ndarray,
    key_position: int,
    key_size: int,
    offset: int,
    flags: int,
    survivors: np.ndarray,
    superseded: np.ndarray,
    ordinals: np.ndarray,
    slots: np.ndarray,
    store: np.ndarray,
    seeds: np.ndarray,
    settings: np.ndarray,
) -> bool:
    """Whether no record that survives has the same key."""
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
    arena: np.ndarray,
    start: int,
    end: int,
    row: np.ndarray,
    flags: int,
    ordinals: np.ndarray,
    survivors: np.ndarray,
    superseded: np.ndarray,
    slots: np.ndarray,
    store: np.ndarray,
    seeds: np.ndarray,
    settings: np.ndarray,
    kept: np.ndarray,
    counters: np.ndarray,
) -> tuple[int, int, int]:
    """Puts the records to keep into `kept`; returns (status, how many, how many of them without a value)."""
    count = np.int64(row["count"])
    base_offset = np.int64(row["base_offset"])
    control = np.int64(row["attributes"]) & _CONTROL != 0
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
        elif not _is_latest(
            arena,
            key_position,
            key_size,
            base_offset + offset_delta,
            flags,
            survivors,
            superseded,
            ordinals,
            slots,
            store,
            seeds,
            settings,
        ):
            counters[6] += 1
        elif value_size < 0 and flags & 32 != 0:
            counters[7] += 1
        else:
            keep = True
        if keep:
            at = n * KEPT_ROW_BYTES
            store_int64(kept, at, p)
            store_int64(kept, at + 8, stop)
            store_int64(kept, at + 16, timestamp_delta)
            store_int64(kept, at + 24, behind_delta)
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
    arena: np.ndarray,
    start: int,
    end: int,
    row: np.ndarray,
    expired: bool,
    ordinal: int,
    survivors: np.ndarray,
    kept: np.ndarray,
    counters: np.ndarray,
) -> tuple[int, int, int]:
    """The same for a batch whose every record has been indexed, so that its bits say all there is to say.

    What the index has read is known to be sound: of a record that goes only the length is read again.
    """
    count = np.int64(row["count"])
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
                at = n * KEPT_ROW_BYTES
                store_int64(kept, at, p)
                store_int64(kept, at + 8, stop)
                store_int64(kept, at + 16, timestamp_delta)
                store_int64(kept, at + 24, behind_delta)
                n += 1
                if value_size < 0:
                    tombstones += 1
        p = body + length
    counters[0] += count
    counters[6] += superseded
    counters[7] += dropped
    return RECORDS_VALID, n, tombstones


@kernel
def _rebuild_records(
    arena: np.ndarray, kept: np.ndarray, n: int, row: np.ndarray, out: np.ndarray, p: int, rebuilt: np.ndarray
) -> int:
    """Writes the kept records at `p`, and timestamps and count into `rebuilt`; returns the index behind them.

    `row` is the source batch. `rebuilt["base_timestamp"]` is the delete horizon if its attribute says so.
    """
    append_time = np.int64(row["attributes"]) & _APPEND_TIME != 0
    old_base = np.int64(row["base_timestamp"])
    latest = np.int64(row["max_timestamp"])
    if np.int64(rebuilt["attributes"]) & _HORIZON == 0:
        rebuilt["base_timestamp"] = latest if append_time else old_base + load_int64(kept, 16)
    base = np.int64(rebuilt["base_timestamp"])
    most = np.int64(-1)
    for k in range(n):
        at = k * KEPT_ROW_BYTES
        start = load_int64(kept, at)
        stop = load_int64(kept, at + 8)
        delta = load_int64(kept, at + 16)
        timestamp = latest if append_time else old_base + delta
        most = max(most, timestamp)
        if timestamp - base == delta:
            copy_bytes(arena, start, out, p, stop - start)
            p += stop - start
        else:
            rest = load_int64(kept, at + 24)
            p = write_varint(out, p, 1 + varint_size(timestamp - base) + stop - rest)
            store_byte(out, p, 0)
            p = write_varint(out, p + 1, timestamp - base)
            copy_bytes(arena, rest, out, p, stop - rest)
            p += stop - rest
    rebuilt["max_timestamp"] = latest if append_time else most
    rebuilt["count"] = n
    return p


@inlined
def _begin(row: np.ndarray, position: int, out: np.ndarray) -> None:
    """A row of the output that takes over what rewriting leaves alone."""
    out["position"] = position
    out["base_offset"] = row["base_offset"]
    out["last_offset"] = row["last_offset"]
    out["base_timestamp"] = row["base_timestamp"]
    out["max_timestamp"] = row["max_timestamp"]
    out["producer_id"] = row["producer_id"]
    out["crc"] = row["crc"]
    out["size"] = row["size"]
    out["count"] = row["count"]
    out["leader_epoch"] = row["leader_epoch"]
    out["base_sequence"] = row["base_sequence"]
    out["producer_epoch"] = row["producer_epoch"]
    out["attributes"] = row["attributes"]
    out["magic"] = row["magic"]


@kernel
def _write_batch(
    data: np.ndarray,
    data_position: int,
    arena: np.ndarray,
    row: np.ndarray,
    flags: int,
    kept: np.ndarray,
    n: int,
    tombstones: int,
    settings: np.ndarray,
    out: np.ndarray,
    at: int,
    target: np.ndarray,
    counters: np.ndarray,
) -> tuple[int, int]:
    """Writes what is left of a batch at `at` and its row to `target`; returns (index behind it, action)."""
    compressed = settings[6] != 0
    attributes = np.int64(row["attributes"])
    stamped = attributes & _HORIZON != 0
    stamp = (tombstones > 0 or flags & 8 != 0) and not stamped
    _begin(row, at, target)
    counters[1] += n
    counters[8] += tombstones
    if n == 0:
        counters[11] += 1
        target["base_timestamp"] = -1
        target["size"] = _OVERHEAD
        target["count"] = 0
        target["attributes"] = attributes & _EMPTY_ATTRIBUTES
        seal_batch(out, at, target, True)
        return at + _OVERHEAD, EMPTY
    if n == np.int64(row["count"]) and not stamp:
        counters[9] += 1
        if compressed:
            return at, VERBATIM
        copy_bytes(data, data_position, out, at, np.int64(row["size"]))
        return at + np.int64(row["size"]), VERBATIM
    counters[10] += 1
    if stamp:
        counters[12] += 1
        target["base_timestamp"] = settings[1]
    target["attributes"] = attributes & _REBUILT_ATTRIBUTES | (_HORIZON if stamp or stamped else 0)
    if compressed:
        behind = _rebuild_records(arena, kept, n, row, out, at, target)
        target["size"] = behind - at
        return behind, REBUILT
    behind = _rebuild_records(arena, kept, n, row, out, at + _OVERHEAD, target)
    target["size"] = behind - at
    seal_batch(out, at, target, True)
    return behind, REBUILT


@kernel
def filter_batches(
    data: np.ndarray,
    file_position: int,
    arena: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    batches: np.ndarray,
    first: int,
    flags: np.ndarray,
    ordinals: np.ndarray,
    survivors: np.ndarray,
    superseded: np.ndarray,
    slots: np.ndarray,
    store: np.ndarray,
    seeds: np.ndarray,
    settings: np.ndarray,
    kept: np.ndarray,
    out: np.ndarray,
    targets: np.ndarray,
    sources: np.ndarray,
    actions: np.ndarray,
    counters: np.ndarray,
) -> tuple[int, int, int, int]:
    """Filters v2 batches from `first` on into `out` (uint8), one row of `targets` (layout.BATCH) a batch written.

    `data[0]` is at `file_position`; `arena[starts[i]:ends[i]]` is a payload. `kept` needs KEPT_ROW_BYTES for each
    record of the largest batch. `sources` and `actions` tell of each row which batch it was and what was done.
    Returns (batches done, bytes in `out`, rows, FILTER_* or the status of a bad record in batch `done`).
    """
    at = 0
    rows = 0
    for i in range(first, len(batches)):
        row = batches[i]
        flag = np.int64(flags[i])
        count = np.int64(row["count"])
        control = np.int64(row["attributes"]) & _CONTROL != 0
        if flag & 4 != 0:
            counters[2] += 1
            counters[3] += 1
            counters[4] += max(count, 0)
            if not control and flag & 64 == 0:
                ordinals[0 if flag & 16 != 0 else 1] += max(count, 0)
            continue
        if count < 0 or count * LEAST_RECORD_SIZE > ends[i] - starts[i]:
            return i, at, rows, COUNT_INVALID
        most = _OVERHEAD + max(np.int64(row["size"]), ends[i] - starts[i]) + count * _GROWTH
        if most > len(out) - at:
            return i, at, rows, FILTER_FULL
        if flag & 80 == 0 and not control and settings[5] == 0 and settings[2] != 0:
            _prefetch_slots(arena, starts[i], ends[i], count, slots, settings, seeds)
        dirty, clean = ordinals[0], ordinals[1]
        holds_last_kept = np.int64(row["base_offset"]) <= settings[7] and settings[7] <= np.int64(row["last_offset"])
        if flag & 81 == 16 and not control and np.int64(row["base_offset"]) >= settings[0] and not holds_last_kept:
            status, n, tombstones = _choose_indexed(
                arena, starts[i], ends[i], row, flag & 32 != 0, dirty, survivors, kept, counters
            )
            ordinals[0] += count
        else:
            status, n, tombstones = _choose(
                arena,
                starts[i],
                ends[i],
                row,
                flag,
                ordinals,
                survivors,
                superseded,
                slots,
                store,
                seeds,
                settings,
                kept,
                counters,
            )
        if status != RECORDS_VALID:
            return i, at, rows, status
        if flag & 64 != 0:
            ordinals[0], ordinals[1] = dirty, clean
        counters[2] += 1
        if n == 0 and flag & 2 == 0:
            continue
        position = np.int64(row["position"]) - file_position
        at, actions[rows] = _write_batch(
            data, position, arena, row, flag, kept, n, tombstones, settings, out, at, targets[rows], counters
        )
        sources[rows] = i
        rows += 1
    return len(batches), at, rows, FILTER_COMPLETE


@kernel
def choose_rows(
    arena: np.ndarray,
    rows: np.ndarray,
    dirty: bool,
    expired: bool,
    ordinals: np.ndarray,
    survivors: np.ndarray,
    superseded: np.ndarray,
    slots: np.ndarray,
    store: np.ndarray,
    seeds: np.ndarray,
    settings: np.ndarray,
    keep: np.ndarray,
    counters: np.ndarray,
) -> None:
    """The same choice for the messages of magic 0 and 1 in `rows` (layout.RECORD): fills `keep` (uint8)."""
    flags = 16 if dirty else 0
    for i in range(len(rows)):
        row = rows[i]
        key_size = np.int64(row["key_size"])
        keep[i] = 0
        counters[0] += 1
        if key_size < 0:
            counters[5] += 1
        elif not _is_latest(
            arena,
            np.int64(row["key_position"]),
            key_size,
            row["offset"],
            flags,
            survivors,
            superseded,
            ordinals,
            slots,
            store,
            seeds,
            settings,
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
def stamp_records(
    arena: np.ndarray, start: int, end: int, row: np.ndarray, kept: np.ndarray, out: np.ndarray, target: np.ndarray
) -> tuple[int, int]:
    """Rewrites all records of a batch relative to the delete horizon that `target["base_timestamp"]` holds.

    `target["attributes"]` says that it holds one. Returns (index behind the records in `out`, record status).
    """
    count = np.int64(row["count"])
    p = start
    for n in range(count):
        status, stop, timestamp_delta, behind_delta, _, _, _, _, _ = read_record(arena, p, end)
        if status != RECORDS_VALID:
            return 0, status
        at = n * KEPT_ROW_BYTES
        store_int64(kept, at, p)
        store_int64(kept, at + 8, stop)
        store_int64(kept, at + 16, timestamp_delta)
        store_int64(kept, at + 24, behind_delta)
        p = stop
    return _rebuild_records(arena, kept, count, row, out, 0, target), RECORDS_VALID


@kernel
def mark_superseded(
    arena: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    batches: np.ndarray,
    ordinals: np.ndarray,
    slots: np.ndarray,
    store: np.ndarray,
    seeds: np.ndarray,
    settings: np.ndarray,
    superseded: np.ndarray,
) -> tuple[int, int]:
    """Sets the bit of every record in these batches whose key is in the map; returns (batches done, status).

    For rounds of several index passes, whose maps are gone when the copy begins. Control batches are passed over.
    """
    for i in range(len(batches)):
        row = batches[i]
        if np.int64(row["attributes"]) & _CONTROL != 0:
            continue
        count = np.int64(row["count"])
        end = ends[i]
        if count < 0 or count * LEAST_RECORD_SIZE > end - starts[i]:
            return i, COUNT_INVALID
        _prefetch_slots(arena, starts[i], end, count, slots, settings, seeds)
        p = starts[i]
        for _ in range(count):
            status, stop, _, _, _, key_position, key_size, _, _ = read_record(arena, p, end)
            if status != RECORDS_VALID:
                return i, status
            if key_size >= 0:
                key_hash = hash_key(arena, key_position, key_size, seeds) & settings[4]
                _, word = find_key(slots, settings[2], store, settings[3], arena, key_position, key_size, key_hash)
                if word != 0:
                    set_bit(superseded, ordinals[1])
            ordinals[1] += 1
            p = stop
    return len(batches), RECORDS_VALID


@kernel
def mark_superseded_rows(
    arena: np.ndarray,
    rows: np.ndarray,
    ordinals: np.ndarray,
    slots: np.ndarray,
    store: np.ndarray,
    seeds: np.ndarray,
    settings: np.ndarray,
    superseded: np.ndarray,
) -> None:
    """The same for messages of magic 0 and 1."""
    for i in range(len(rows)):
        key_size = np.int64(rows[i]["key_size"])
        if key_size >= 0:
            key_position = np.int64(rows[i]["key_position"])
            key_hash = hash_key(arena, key_position, key_size, seeds) & settings[4]
            _, word = find_key(slots, settings[2], store, settings[3], arena, key_position, key_size, key_hash)
            if word != 0:
                set_bit(superseded, ordinals[1])
        ordinals[1] += 1


@kernel
def flag_last_batches(
    batches: np.ndarray, producer_ids: np.ndarray, offsets: np.ndarray, epochs: np.ndarray, flags: np.ndarray
) -> None:
    """Sets RETAIN_EMPTY on the last batch of each active producer (ascending `producer_ids`; offset -1: none known).

    The last data batch where one is known, else the control batches of the producer's current epoch.
    """
    for i in range(len(batches)):
        row = batches[i]
        producer_id = np.int64(row["producer_id"])
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
            last = np.int64(row["attributes"]) & _CONTROL != 0 and row["producer_epoch"] == epochs[low]
        if last:
            flags[i] |= 2
